//! A master and its workers are killed while statements write: every statement has happened
//! everywhere or nowhere, and what was acknowledged is there.
//!
//! `SKEWER_KILLS=n` kills more often, `SKEWER_SEED=n` at other moments.

mod processes;

use std::path::Path;
use std::time::Duration;

use processes::{Node, Processes};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer::{Database, Session};
use skewer_tests::contents::query;

/// How often somebody is killed.
const KILLS: u64 = 6;

fn number(variable: &str, default: u64) -> u64 {
    let chosen = std::env::var(variable).ok();
    chosen.map_or(default, |text| text.parse().expect("a number"))
}

/// A statement that writes; `n` counts them, `file` has rows of the table.
fn statement(random: &mut ChaCha8Rng, n: u64, file: &Path) -> String {
    let first = n * 100_000;
    match random.random_range(0..8) {
        0 | 1 => format!(
            "INSERT INTO t SELECT value, value % 97 FROM generate_series({first}, {})",
            first + random.random_range(1..4000)
        ),
        2 => format!("INSERT INTO t VALUES ({first}, 1), ({}, NULL)", first + 1),
        3 => format!("UPDATE t SET v = v + {n} WHERE id % 3 = {}", n % 3),
        // A third of what there is, while the others add what does not depend on it: the table
        // stays small however often is killed.
        4 => format!("DELETE FROM t WHERE id % 3 = {}", n % 3),
        5 => format!("COPY t FROM '{}'", file.display()),
        6 => format!(
            "CREATE OR REPLACE TABLE t AS SELECT * FROM t WHERE id % 7 <> {}",
            n % 7
        ),
        // Copies are not copied again.
        _ => "INSERT INTO t SELECT id + 50001, v FROM t WHERE id % 5 = 0".to_owned(),
    }
}

/// All rows, and that no two have one id.
const CONTENTS: &str = "SELECT id, v FROM t ORDER BY id, v";
const SAME_IDS: &str = "SELECT count(*) - count(DISTINCT _row_id) FROM t";

async fn contents(oracle: &Session) -> Vec<String> {
    query(oracle, CONTENTS).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_happen_everywhere_or_nowhere_whoever_is_killed() {
    let seed = number("SKEWER_SEED", 1);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut processes = Processes::start(2).await;
    let oracle = Database::in_memory().unwrap().session();
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("rows.csv");
    let rows: String = (0..3000).map(|id| format!("{id},{}\n", id % 89)).collect();
    std::fs::write(&file, format!("id,v\n{rows}")).unwrap();
    let create = "CREATE TABLE t (id BIGINT NOT NULL, v BIGINT)";
    oracle.sql(create).await.unwrap();
    processes.sql(create).await.unwrap();
    let (mut acknowledged, mut undone, mut done_unheard) = (0, 0, 0);
    for n in 1..=number("SKEWER_KILLS", KILLS) {
        // One that nobody disturbs, and one that somebody does.
        let sql = statement(&mut random, 2 * n, &file);
        processes.sql(&sql).await.unwrap();
        oracle.sql(&sql).await.unwrap();

        let sql = statement(&mut random, 2 * n + 1, &file);
        let before = contents(&oracle).await;
        oracle.sql(&sql).await.unwrap();
        let after = contents(&oracle).await;
        let victim = *[Node::Master, Node::Worker(1), Node::Worker(2)]
            .choose(&mut random)
            .unwrap();
        let running = processes.begin(&sql).await;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..250))).await;
        processes.kill(victim);
        let outcome = running.await.unwrap();
        processes.restart(victim).await;

        let at = format!("seed {seed}, kill {n} of {victim:?}, {outcome:?}:\n{sql}");
        let found = processes.rows(CONTENTS).await;
        match outcome {
            Ok(()) => {
                assert_eq!(found, after, "acknowledged and lost: {at}");
                acknowledged += 1;
            }
            Err(_) if found == after => done_unheard += usize::from(before != after),
            Err(_) => {
                assert_eq!(found, before, "half of a statement: {at}");
                undone += 1;
                // What the oracle did the cluster does now.
                processes.sql(&sql).await.unwrap();
                assert_eq!(processes.rows(CONTENTS).await, after, "done again: {at}");
            }
        }
        assert_eq!(processes.rows(SAME_IDS).await, ["0"], "{at}");
        if n % KILLS == 0 {
            println_counts(found.len(), acknowledged, undone, done_unheard);
        }
    }
    processes.has_no_orphans().await;
}

#[expect(clippy::print_stdout, reason = "what a long run has done")]
fn println_counts(rows: usize, acknowledged: usize, undone: usize, done_unheard: usize) {
    println!(
        "{acknowledged} statements were acknowledged, {undone} undone, {done_unheard} done without \
         an answer; {rows} rows"
    );
}
