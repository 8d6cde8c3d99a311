//! The server as a Python program with asyncpg sees it: `tests/clients/asyncpg_client.py`.

use std::process::Command;

use crate::clients::{asked, gets_what_it_asks_for, skip};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/asyncpg_client.py");

#[test]
fn a_program_with_asyncpg_gets_what_it_asks_for() {
    let python = std::env::var("SKEWER_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut ask = Command::new(&python);
    ask.args(["-c", "import asyncpg"]);
    if asked(ask).is_none() {
        let reason = format!("{python} has no asyncpg (pip install asyncpg)");
        return skip("a_program_with_asyncpg_gets_what_it_asks_for", &reason);
    }
    let program = || {
        let mut program = Command::new(&python);
        program.arg(PROGRAM);
        program
    };
    gets_what_it_asks_for(program, "require", 4);
}
