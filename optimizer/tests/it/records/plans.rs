//! Golden files of what level `records` makes of each operator: the logical plan before the lineage rewrite, the
//! plan after it, and the instrumented operators.
//!
//! `SKEWER_REGENERATE=1 cargo test -p skewer-optimizer --test it records::plans` writes the files in `tests/golden` anew.

use std::fmt::Write;
use std::path::Path;

use datafusion::physical_plan::displayable;
use skewer_optimizer::lineage::LineageRewrite;
use skewer_optimizer::plan_query;
use skewer_profiling::{Level, Recorder, RecorderLimits};

use crate::records::running::{Options, context, tables};

/// A query for each operator that the rewrite treats in its own way.
const QUERIES: [(&str, &str); 11] = [
    ("scan", "SELECT k FROM a"),
    ("filter", "SELECT k FROM a WHERE v > 3"),
    ("costly_expression", "SELECT upper(s) FROM a"),
    ("join", "SELECT a.v, b.w FROM a JOIN b ON a.k = b.k"),
    ("semi_join", "SELECT v FROM a WHERE k IN (SELECT k FROM b)"),
    ("aggregate", "SELECT k, sum(v) FROM a GROUP BY k"),
    ("distinct", "SELECT DISTINCT k FROM a"),
    (
        "window",
        "SELECT v, sum(v) OVER (PARTITION BY k ORDER BY v) FROM a",
    ),
    ("union", "SELECT k FROM a UNION ALL SELECT k FROM b"),
    ("sort_and_limit", "SELECT k FROM a ORDER BY v LIMIT 3"),
    (
        "recursion",
        "WITH RECURSIVE r AS (SELECT k FROM a UNION ALL SELECT k + 1 FROM r WHERE k < 5) SELECT k FROM r",
    ),
];

#[tokio::test]
async fn the_lineage_rewrite_and_the_instrumentation_of_each_operator() {
    let context = context(&tables(8), Options::default());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, sql) in QUERIES {
        let state = context.state();
        let plan = state.create_logical_plan(sql).await.unwrap();
        let optimized = state.optimize(&plan).unwrap();
        let recorder = || Recorder::new(1, Level::Records, 1.0, RecorderLimits::default());
        let mut rewrite = LineageRewrite::new(recorder(), None);
        let annotated = rewrite.rewrite(&optimized).unwrap().plan;
        let operators = plan_query(&optimized, &state, &recorder()).await.unwrap();
        let mut text = format!("{sql}\n");
        for (title, plan) in [
            ("before", optimized.display_indent().to_string()),
            ("after", annotated.display_indent().to_string()),
            (
                "operators",
                displayable(operators.as_ref()).indent(false).to_string(),
            ),
        ] {
            writeln!(text, "{title}").unwrap();
            for line in plan.lines() {
                writeln!(text, "  {line}").unwrap();
            }
        }
        skewer_testing::golden(&folder.join(format!("{name}.golden")), &text);
    }
}
