//! Runs the smallest query of each gap on plain DataFusion.
//!
//! If a test fails here after an upgrade, DataFusion has closed a gap: delete the module that the message names, and
//! its entry in `compat/src/gaps.rs`.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_compat::gaps::{Canary, GAPS};

/// The rows as lines: columns joined by `|`.
fn lines(batches: &[RecordBatch]) -> Result<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let mut lines = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns: Vec<ArrayFormatter> = columns
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<Result<_, _>>()?;
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            lines.push(cells.join("|"));
        }
    }
    Ok(lines)
}

/// The rows of a query, or an error. A panic is an error, too.
async fn run(sql: &'static str) -> Result<Vec<String>> {
    let query = async move {
        let config = SessionConfig::new().with_target_partitions(2);
        let context = SessionContext::new_with_config(config);
        lines(&context.sql(sql).await?.collect().await?)
    };
    match tokio::spawn(query).await {
        Ok(rows) => rows,
        Err(panic) => Err(DataFusionError::Execution(panic.to_string())),
    }
}

#[tokio::test]
async fn plain_datafusion_still_has_each_gap() {
    let (mut closed, mut seen) = (Vec::new(), 0);
    for gap in GAPS {
        let (sql, is_closed) = match gap.canary {
            Canary::Rows(sql, right) => {
                let rows = run(sql).await;
                (sql, rows.is_ok_and(|rows| rows == right))
            }
            Canary::Fails(sql, message) => {
                let rows = run(sql).await;
                (sql, rows.is_err_and(|e| e.to_string().contains(message)))
            }
            Canary::None(_) => continue,
        };
        seen += 1;
        if is_closed {
            closed.push(format!(
                "DataFusion closed the gap \"{}\": delete compat::{}. It is right about {sql}",
                gap.name, gap.module
            ));
        }
    }
    assert!(closed.is_empty(), "{}", closed.join("\n"));
    assert!(seen > 40, "only {seen} gaps were looked at");
}

#[test]
fn each_gap_names_a_module_and_a_script() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for gap in GAPS {
        let module = root.join("src").join(gap.module.replace("::", "/"));
        let is_there = module.with_extension("rs").exists() || module.join("mod.rs").exists();
        assert!(is_there, "{}: there is no module {}", gap.name, gap.module);
        let golden = root.join("../tests/slt").join(gap.golden);
        assert!(
            golden.exists(),
            "{}: there is no script {}",
            gap.name,
            gap.golden
        );
    }
}
