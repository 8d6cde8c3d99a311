//! The server as a Node program sees it: `tests/clients/node_client.cjs`.

use std::process::Command;

use skewer_tests::served::Served;

use crate::clients::{Ran, asked, skip};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/node_client.cjs");

#[test]
fn a_node_program_gets_what_it_asks_for() {
    let mut ask = Command::new("node");
    ask.args(["-e", "require('pg')"]);
    if asked(ask).is_none() {
        let reason = "node finds no pg (npm install pg, and NODE_PATH)";
        return skip("a_node_program_gets_what_it_asks_for", reason);
    }
    let served = Served::start();
    let mut program = Command::new("node");
    program.arg(PROGRAM).arg(served.address.port().to_string());
    let said = Ran::from(program.output().unwrap()).success();
    assert_eq!(said.matches(" ok\n").count(), 7, "{said}");
}
