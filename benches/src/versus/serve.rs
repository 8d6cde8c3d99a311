//! The process of Skewer or of plain DataFusion: answers requests on standard input.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use serde_json::{Value, json};
use skewer::{Database, Session};
use tokio::runtime::Runtime;

use super::{System, answer};
use crate::error::BenchError;
use crate::measure::{Took, timed};

/// An open database, and the threads that ask it.
struct Serving {
    runtime: Runtime,
    engine: Engine,
}

#[derive(Clone)]
enum Engine {
    Skewer {
        database: Database,
        session: Session,
    },
    DataFusion(SessionContext),
}

/// Answers requests until there are no more.
///
/// # Errors
/// If standard input or output fails. What goes wrong with a request is its answer.
pub fn serve(system: System) -> Result<(), BenchError> {
    let mut serving = None;
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)
            .map_err(|error| BenchError::Unexpected(error.to_string()))?;
        let answer = answered(&mut serving, system, &request)
            .unwrap_or_else(|error| json!({"error": error.to_string()}));
        let mut output = std::io::stdout().lock();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

fn answered(
    serving: &mut Option<Serving>,
    system: System,
    request: &Value,
) -> Result<Value, BenchError> {
    let text = |name: &str| request[name].as_str();
    let missing = |what: &str| BenchError::Unexpected(format!("a request without {what}"));
    let wanted = text("do").unwrap_or_default();
    if wanted == "open" {
        *serving = Some(open(system, request)?);
        return Ok(json!({}));
    }
    let open = serving
        .as_ref()
        .ok_or_else(|| missing("an open database"))?;
    match wanted {
        "load" => {
            let statements = load_statements(request);
            let engine = open.engine.clone();
            let took = open.run(async move {
                for sql in statements {
                    engine.rows(&sql).await?;
                }
                Ok(())
            })?;
            Ok(told(took.1, 0))
        }
        "query" => {
            let sql = text("sql").ok_or_else(|| missing("SQL"))?.to_owned();
            let engine = open.engine.clone();
            let (batches, took) = open.run(async move { engine.rows(&sql).await })?;
            if let Some(path) = text("answer") {
                answer::write(Path::new(path), &batches)?;
            }
            let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
            Ok(told(took, rows as u64))
        }
        "close" => {
            if let Some(Serving { runtime, engine }) = serving.take()
                && let Engine::Skewer { database, session } = engine
            {
                drop(session);
                runtime.block_on(database.close())?;
            }
            Ok(json!({}))
        }
        other => Err(BenchError::Unexpected(format!("no request: {other}"))),
    }
}

impl Serving {
    /// Runs `work` on the threads of the runtime, not on this one beside them.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, BenchError>> + Send + 'static,
    ) -> Result<(T, Took), BenchError> {
        self.runtime.block_on(timed(async {
            let done = self.runtime.spawn(work).await;
            done?
        }))
    }
}

impl Engine {
    async fn rows(&self, sql: &str) -> Result<Vec<RecordBatch>, BenchError> {
        match self {
            Self::Skewer { session, .. } => Ok(session.sql(sql).await?.collect().await?),
            Self::DataFusion(context) => Ok(context.sql(sql).await?.collect().await?),
        }
    }
}

fn told(took: Took, rows: u64) -> Value {
    json!({"wall": took.wall, "cpu": took.cpu, "rows": rows})
}

/// The names and files in a request.
fn files<'a>(request: &'a Value, field: &str) -> Vec<(&'a str, &'a str)> {
    let pairs = request[field].as_array().into_iter().flatten();
    let pairs = pairs.map(|pair| (pair[0].as_str(), pair[1].as_str()));
    pairs
        .map(|(name, file)| (name.unwrap_or_default(), file.unwrap_or_default()))
        .collect()
}

fn load_statements(request: &Value) -> Vec<String> {
    let mut statements = Vec::new();
    for (name, file) in files(request, "tables") {
        let filled = format!("CREATE TABLE {name} AS SELECT * FROM '{file}'");
        if request["by"] == "copy" {
            statements.push(format!("{filled} LIMIT 0"));
            statements.push(format!("COPY {name} FROM '{file}'"));
        } else {
            statements.push(filled);
        }
    }
    statements
}

fn open(system: System, request: &Value) -> Result<Serving, BenchError> {
    let threads = request["threads"].as_u64().unwrap_or(1).max(1) as usize;
    let memory_limit = request["memory_limit"].as_u64().map(|bytes| bytes as usize);
    let settings: Vec<String> = request["settings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|setting| setting.as_str().map(|setting| format!("SET {setting}")))
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?;
    let engine = match system {
        System::Skewer => {
            let mut builder = Database::builder().worker_threads(threads);
            if let Some(path) = request["path"].as_str() {
                builder = builder.path(path);
            }
            if let Some(limit) = memory_limit {
                builder = builder.memory_limit(limit);
            }
            let database = builder.build()?;
            let session = database.session();
            Engine::Skewer { database, session }
        }
        System::Duckdb | System::DuckdbParquet => {
            return Err(BenchError::Unexpected("DuckDB is not served".to_owned()));
        }
        System::Datafusion | System::DatafusionMemory => {
            let mut environment = RuntimeEnvBuilder::new();
            if let Some(limit) = memory_limit {
                environment = environment.with_memory_pool(Arc::new(FairSpillPool::new(limit)));
            }
            let config = SessionConfig::new().with_target_partitions(threads);
            let environment = Arc::new(environment.build()?);
            Engine::DataFusion(SessionContext::new_with_config_rt(config, environment))
        }
    };
    let serving = Serving { runtime, engine };
    let views = files(request, "views");
    let views: Vec<_> = views
        .into_iter()
        .map(|(name, file)| (name.to_owned(), file.to_owned()))
        .collect();
    let engine = serving.engine.clone();
    serving.run(async move {
        if let Engine::DataFusion(context) = &engine {
            for (name, file) in views {
                register(context, &name, &file, system).await?;
            }
        }
        for sql in settings {
            engine.rows(&sql).await?;
        }
        Ok(())
    })?;
    Ok(serving)
}

/// Makes a Parquet file a table of plain DataFusion's.
async fn register(
    context: &SessionContext,
    name: &str,
    file: &str,
    system: System,
) -> Result<(), BenchError> {
    let options = ParquetReadOptions::default();
    if system == System::Datafusion {
        context.register_parquet(name, file, options).await?;
        return Ok(());
    }
    let rows = context.read_parquet(file, options).await?;
    let schema = Arc::new(rows.schema().as_arrow().clone());
    let partitions = rows.collect_partitioned().await?;
    let table = MemTable::try_new(schema, partitions)?;
    context.register_table(name, Arc::new(table))?;
    Ok(())
}
