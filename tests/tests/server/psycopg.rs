//! The server as a Python program sees it: `tests/clients/psycopg_client.py`.

use std::process::Command;

use crate::clients::{asked, gets_what_it_asks_for, skip};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/psycopg_client.py");

#[test]
fn a_python_program_gets_what_it_asks_for() {
    let python = std::env::var("SKEWER_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut ask = Command::new(&python);
    ask.args(["-c", "import psycopg"]);
    if asked(ask).is_none() {
        let reason = format!("{python} has no psycopg (pip install 'psycopg[binary]')");
        return skip("a_python_program_gets_what_it_asks_for", &reason);
    }
    let program = || {
        let mut program = Command::new(&python);
        program.arg(PROGRAM);
        program
    };
    gets_what_it_asks_for(program, "require", 11);
}
