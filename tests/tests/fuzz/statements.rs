//! Statements end with a result or an error, and the next one works.

use std::time::Duration;

use skewer::{Database, Error, Session};
use skewer_tests::contents::lines;
use tokio::time::timeout;

use crate::cases::{Cases, random, watch};
use crate::deep;
use crate::grammar::{Functions, Grammar, TABLE};
use crate::mutations::{mutated, statements};

/// Statements that take longer are cancelled: what is asked for is a lot of work.
const PATIENCE: Duration = Duration::from_secs(20);

/// What no error says.
const FORBIDDEN: [&str; 5] = [
    "panick",
    "internal error",
    "unwrap()",
    "index out of bounds",
    "backtrace",
];

/// What makes results of one statement differ.
const VOLATILE: [&str; 7] = [
    "random",
    "rand(",
    "uuid",
    "now",
    "current",
    "today",
    "last_query_id",
];

/// After so many statements there is a new database: some drop tables, or fill them.
const PER_DATABASE: u64 = 200;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

async fn database() -> Database {
    let database = Database::builder().worker_threads(2).build().unwrap();
    let session = database.session();
    for sql in TABLE {
        session.sql(sql).await.unwrap();
    }
    database
}

async fn run(session: &Session, sql: &str) -> Result<Vec<String>, Error> {
    let batches = session.sql(sql).await?.collect().await?;
    let mut rows = lines(&batches)?;
    rows.sort_unstable();
    Ok(rows)
}

/// Runs a statement, and says what is wrong with how it ended. Gives its rows if it has ended well.
async fn judged(session: &Session, sql: &str) -> Result<Option<Vec<String>>, String> {
    let Ok(ended) = timeout(PATIENCE, run(session, sql)).await else {
        return Ok(None);
    };
    let error = match ended {
        Ok(rows) => return Ok(Some(rows)),
        Err(error) => error.to_string(),
    };
    let lower = error.to_lowercase();
    match FORBIDDEN.iter().any(|text| lower.contains(text)) {
        true => Err(error),
        false => Ok(None),
    }
}

/// Whether the session still works.
async fn works(session: &Session) -> Result<(), String> {
    for sql in ["RESET ALL", "SELECT 1"] {
        match timeout(PATIENCE, run(session, sql)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(format!("then {sql} fails: {error}")),
            Err(_) => return Err(format!("then {sql} does not end")),
        }
    }
    Ok(())
}

async fn functions(session: &Session) -> Functions {
    let of = async |kind: &str| {
        let sql = format!(
            "SELECT DISTINCT routine_name FROM information_schema.routines WHERE function_type = '{kind}'"
        );
        run(session, &sql).await.unwrap()
    };
    Functions {
        scalar: of("SCALAR").await,
        aggregate: of("AGGREGATE").await,
        window: of("WINDOW").await,
    }
}

#[test]
fn functions_take_any_arguments() {
    const NAME: &str = "statements::functions_take_any_arguments";
    let Some(mut cases) = Cases::of_this_process(1_500) else {
        return watch(NAME);
    };
    runtime().block_on(async {
        let database = database().await;
        let session = database.session();
        let functions = functions(&session).await;
        while let Some(case) = cases.next() {
            let mut grammar = Grammar {
                random: random(case),
                functions: &functions,
            };
            let generated = grammar.statement();
            let sql = &generated.sql;
            cases.note(case, sql);
            let rows = match judged(&session, sql).await {
                Ok(rows) => rows,
                Err(error) => {
                    cases.failed(case, sql, &error);
                    continue;
                }
            };
            if let Err(error) = works(&session).await {
                cases.failed(case, sql, &error);
            }
            let lower = sql.to_lowercase();
            let is_volatile = VOLATILE.iter().any(|name| lower.contains(name));
            if let Some(rows) = rows
                && generated.is_by_row
                && !is_volatile
            {
                run(&session, "SET datafusion.execution.batch_size = 1")
                    .await
                    .unwrap();
                let again = judged(&session, sql).await;
                if let Ok(Some(again)) = again
                    && again != rows
                {
                    let differs = format!("row by row {again:?}, else {rows:?}");
                    cases.failed(case, sql, &differs);
                }
                run(&session, "RESET ALL").await.unwrap();
            }
        }
    });
}

#[test]
fn deep_statements_end() {
    const NAME: &str = "statements::deep_statements_end";
    let Some(mut cases) = Cases::of_this_process(60) else {
        return watch(NAME);
    };
    runtime().block_on(async {
        let database = database().await;
        while let Some(case) = cases.next() {
            let sql = deep::statement(&mut random(case));
            cases.note(case, &sql);
            let session = database.session();
            if let Err(error) = judged(&session, &sql).await {
                cases.failed(case, &sql, &error);
            }
            if let Err(error) = works(&session).await {
                cases.failed(case, &sql, &error);
            }
        }
    });
}

#[test]
fn statements_of_parts_of_others_end() {
    const NAME: &str = "statements::statements_of_parts_of_others_end";
    let Some(mut cases) = Cases::of_this_process(1_000) else {
        return watch(NAME);
    };
    let statements = statements();
    runtime().block_on(async {
        let mut fresh = database().await;
        while let Some(case) = cases.next() {
            if case % PER_DATABASE == 0 {
                fresh = database().await;
            }
            let mut random = random(case);
            // The tables of a script are there before it.
            let session = fresh.session();
            let sql = mutated(&statements, &mut random);
            cases.note(case, &sql);
            if let Err(error) = judged(&session, &sql).await {
                cases.failed(case, &sql, &error);
            }
            if let Err(error) = works(&session).await {
                cases.failed(case, &sql, &error);
            }
        }
    });
}
