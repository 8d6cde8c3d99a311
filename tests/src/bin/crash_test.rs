//! `cargo run -p skewer-tests --bin crash_test -- --kills 200`: kills a process that writes, as
//! often as it is told, and checks that everything acknowledged is still there.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use skewer_tests::crash::{kill_repeatedly, run_child};
use skewer_tests::stream_crash;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["--child", path, seed] => match seed.parse() {
            Ok(seed) => run_child(&PathBuf::from(path), seed)
                .await
                .map_err(|error| error.to_string()),
            Err(_) => Err(format!("{seed} is not a seed")),
        },
        ["--stream-child", path, next] => match next.parse() {
            Ok(next) => stream_crash::run_child(&PathBuf::from(path), next)
                .await
                .map_err(|error| error.to_string()),
            Err(_) => Err(format!("{next} is not an id")),
        },
        [] => kill(200, 0).await,
        ["--kills", kills] => match kills.parse() {
            Ok(kills) => kill(kills, 0).await,
            Err(_) => Err(format!("{kills} is not a number")),
        },
        ["--kills", kills, "--seed", seed] => match (kills.parse(), seed.parse()) {
            (Ok(kills), Ok(seed)) => kill(kills, seed).await,
            _ => Err("--kills and --seed take numbers".to_owned()),
        },
        _ => Err("usage: crash_test [--kills N [--seed FIRST]]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do if even this cannot be written.
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

async fn kill(kills: u64, seed: u64) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let acknowledged = kill_repeatedly(&program, kills, seed).await?;
    writeln!(
        std::io::stdout(),
        "{kills} kills, {acknowledged} acknowledged statements, none lost"
    )
    .map_err(|e| e.to_string())
}
