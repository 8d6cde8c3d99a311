//! The server as a Node program sees it: `tests/clients/node_client.cjs`.

use std::process::Command;

use crate::clients::{asked, gets_what_it_asks_for, skip};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/node_client.cjs");

#[test]
fn a_node_program_gets_what_it_asks_for() {
    let mut ask = Command::new("node");
    ask.args(["-e", "require('pg')"]);
    if asked(ask).is_none() {
        let reason = "node finds no pg (npm install pg, and NODE_PATH)";
        return skip("a_node_program_gets_what_it_asks_for", reason);
    }
    let program = || {
        let mut program = Command::new("node");
        program.arg(PROGRAM);
        program
    };
    // As pg calls it where the server's certificate is its own.
    gets_what_it_asks_for(program, "no-verify", 7);
}
