//! A worker that takes the arguments of `skewer worker`, and has functions of its own:
//! [`skewer_tests::delays`].

use std::future::pending;

use skewer::{Worker, WorkerOptions};
use skewer_tests::delays;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value_of = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).cloned()
    };
    let data = value_of("--data").ok_or("--data is missing")?;
    let mut options = WorkerOptions::new(data);
    options.functions = delays::functions();
    options.join = value_of("--join").map(|token| token.parse()).transpose()?;
    options.name = value_of("--name");
    if let Some(listen) = value_of("--listen") {
        options.listen = listen;
    }
    options.threads = value_of("--threads")
        .map(|threads| threads.parse())
        .transpose()?;
    Worker::start(options)?.run(pending())?;
    Ok(())
}
