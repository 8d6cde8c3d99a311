//! The report of EXPLAIN PROFILE: schema `sys`, read and written out.

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use skewer_sql::ProfileFormat;

use crate::error::Error;
use crate::session::Session;
use crate::statements::explain_profile::untraced_query;
use crate::statements::text_batch;

/// How the report is to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// For whom.
    pub(crate) format: ProfileFormat,
    /// Whether to print the SQL behind each section instead of its result.
    pub(crate) as_sql: bool,
}

/// The SQL behind the plan with its times.
fn plan_sql(query_id: i64) -> String {
    format!(
        "SELECT o.operator_id, o.parent_operator_id, o.name, sum(s.rows_out) AS rows, \
         sum(s.self_ns) AS self_ns \
         FROM sys.operators AS o LEFT JOIN sys.operator_stats AS s \
         ON s.query_id = o.query_id AND s.operator_id = o.operator_id \
         WHERE o.query_id = {query_id} \
         GROUP BY o.operator_id, o.parent_operator_id, o.name ORDER BY o.operator_id"
    )
}

/// Reports on a query that has finished.
pub(crate) async fn explain_profile(
    session: &Session,
    query_id: i64,
    options: Options,
) -> Result<RecordBatch, Error> {
    let sql = plan_sql(query_id);
    if options.as_sql {
        return text_batch(&["sql"], vec![vec![Some(sql)]]);
    }
    if options.format != ProfileFormat::Text {
        return Err(Error::Unsupported(
            "this format of EXPLAIN PROFILE".to_owned(),
        ));
    }
    let mut lines = vec![format!("query {query_id}")];
    let mut parents: Vec<(i64, Option<i64>, String)> = Vec::new();
    for batch in untraced_query(session, &sql).await? {
        let integers = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let names = datafusion::arrow::compute::cast(
            batch.column(2),
            &datafusion::arrow::datatypes::DataType::Utf8,
        )?;
        for row in 0..batch.num_rows() {
            let parent = integers(1);
            let parent =
                (!datafusion::arrow::array::Array::is_null(parent, row)).then(|| parent.value(row));
            let text = format!(
                "{}  rows {}  self {} ns",
                names.as_string::<i32>().value(row),
                integers(3).value(row),
                integers(4).value(row)
            );
            parents.push((integers(0).value(row), parent, text));
        }
    }
    let roots: Vec<i64> = parents
        .iter()
        .filter(|(_, parent, _)| parent.is_none())
        .map(|(id, ..)| *id)
        .collect();
    for root in roots {
        print(&parents, root, 0, &mut lines);
    }
    text_batch(
        &["profile"],
        lines.into_iter().map(|l| vec![Some(l)]).collect(),
    )
}

fn print(operators: &[(i64, Option<i64>, String)], id: i64, depth: usize, lines: &mut Vec<String>) {
    for (_, _, text) in operators.iter().filter(|(own, ..)| *own == id) {
        lines.push(format!("{}{text}", "  ".repeat(depth)));
    }
    for (child, ..) in operators
        .iter()
        .filter(|(_, parent, _)| *parent == Some(id))
    {
        print(operators, *child, depth + 1, lines);
    }
}
