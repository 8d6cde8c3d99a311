//! The cases of a test, and the sessions that run them.

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::logical_expr::Volatility;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use skewer::{Database, ProfileLevel, Session};
use skewer_tests::contents::lines;
use skewer_tests::watchdog::ends;

pub type Random = ChaCha8Rng;

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// The cases of a test: a name to find one again, and its source of randomness.
pub fn cases(default: u64) -> impl Iterator<Item = (String, Random)> {
    let seed = setting("SKEWER_SEED", 2019);
    (0..setting("SKEWER_CASES", default)).map(move |case| {
        let mut random = Random::seed_from_u64(seed);
        random.set_stream(case);
        (format!("SKEWER_SEED={seed}, case {case}"), random)
    })
}

/// A session with small batches, so that small tables have many, and functions that take time.
pub async fn session(database: &Database, level: ProfileLevel, skip_partial: bool) -> Session {
    let session = database.session();
    for sql in [
        format!("SET profile.level = '{level}'"),
        "SET datafusion.execution.batch_size = 4".to_owned(),
    ] {
        session.sql(&sql).await.unwrap();
    }
    if skip_partial {
        for sql in [
            "SET datafusion.execution.skip_partial_aggregation_probe_rows_threshold = 0",
            "SET datafusion.execution.skip_partial_aggregation_probe_ratio_threshold = 0.0",
        ] {
            session.sql(sql).await.unwrap();
        }
    }
    register(&session);
    session
}

/// Gives the session the function of one row that queries call.
pub fn register(session: &Session) {
    session.register_row_udf(
        "same",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        |row| Ok(row[0].clone()),
    );
}

/// The same, whose scans filter rows themselves, also by what joins learn at run time.
pub async fn session_of_filtering_scans(database: &Database, level: ProfileLevel) -> Session {
    let session = session(database, level, false).await;
    let filtering = "SET datafusion.execution.parquet.pushdown_filters = true";
    session.sql(filtering).await.unwrap();
    session
}

/// The same, whose joins on equal columns sort their inputs.
pub async fn session_of_other_plans(database: &Database, level: ProfileLevel) -> Session {
    let session = session_of_filtering_scans(database, level).await;
    let sorting = "SET datafusion.optimizer.prefer_hash_join = false";
    session.sql(sorting).await.unwrap();
    session
}

/// A query's schema and rows, or its error. It has to end.
pub async fn run(session: &Session, sql: &str) -> Result<(SchemaRef, Vec<String>, i64), String> {
    ends(session, sql, rows(session, sql)).await
}

async fn rows(session: &Session, sql: &str) -> Result<(SchemaRef, Vec<String>, i64), String> {
    let stream = session.sql(sql).await.map_err(|e| e.to_string())?;
    let (schema, query_id) = (stream.schema(), stream.query_id());
    let batches = stream.collect().await.map_err(|e| e.to_string())?;
    let rows = lines(&batches).map_err(|e| e.to_string())?;
    Ok((schema, rows, query_id.unwrap_or_default()))
}
