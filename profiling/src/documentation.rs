//! The page of the documentation about schema `sys`, from the definitions.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::definition::{Kind, SysRow, TableDefinition};
use crate::isolation::anomalies;
use crate::isolation::expanded::Expansion;
use crate::present::PresentTable;
use crate::tables::Table;
use crate::user_detectors::UserDetection;
use crate::views::VIEWS;

const INTRODUCTION: &str = "\
# Schema `sys`

<!-- Generated from the definitions in profiling/src.
     SKEWER_REGENERATE=1 cargo test -p skewer-profiling rewrites this page. -->

Everything the profiler knows is a row of a table in schema `sys`, and everything it concludes is
a view over these tables. They can be queried and joined like any other table; they are read-only.

Rows appear when their query has ended. They stay until they are older than
`profile.retention_age` (7 days) or all together larger than `profile.retention_bytes` (1 GiB);
the oldest queries go first. `WHERE query_id = …` is fast however many queries there are.

In a cluster every process keeps what it recorded in its own directory, up to
`profile.retention_bytes` each, and the tables have the rows of all of them. A query over them is
distributed as others are: each node reads what it recorded, in memory and in files, filters and
aggregates it, and only results travel; `EXPLAIN` shows it. If a statement reads at most 16 queries
by their `query_id`, and no worker has more than 4 MiB of their rows, the master fetches and keeps
these rows: views and `EXPLAIN PROFILE` read them often. The master computes the views that follow a
query's plan.

When a query ends, the master waits for its workers, up to a second. Records of a lost worker are
missing; `sys.workers`, `EXPLAIN PROFILE` and the master's log name the worker. A query over schema
`sys` that loses a worker runs once more without it, or fails with its name if it has returned rows
already. Workers correct recorded times by the offset of their clocks from the master's;
`clock_error_ns` bounds the error of the correction.

Times are `TIMESTAMP(ns, UTC)`, durations `BIGINT` nanoseconds.

## Tables
";

const DEFINITIONS: &str = "\
## What the latencies mean

- **Computation latency** of a record: the time that expressions took on it, summed over the
  operators that it went through.
- **Shuffle latency** of a record that an aggregate made, in a partition: its edges of lineage ÷
  all edges of the partition × the time that the partition spent aggregating.
- **Total latency** of a record: the maximum over its inputs of the input's total latency plus the
  input's computation latency for the record; plus its shuffle latency. A base record has 0. A
  result row of several records (a join) has the maximum over them.
- **Most impactful source**: the base record that this maximum came from. Ties go to the smallest
  row id.
- **Remediated latency**: the total latency that the record would have if that one base record
  cost nothing; 0 if the record would not exist without it.
- **Impact** of a base record on a query: over the result rows whose most impactful source it is,
  the greatest total latency minus the greatest remediated latency.

A record of which no latency was recorded counts as 0. With `sample_rate` below 1 in `sys.queries`
only that share of the base records was traced; with `events_dropped` above 0 in
`sys.profiler_overhead` the log is incomplete.

## Views that follow a query's plan

The depth of the recursion in these definitions depends on the plan. So the SQL of these views is
written for each query that a filter names: `WHERE query_id = …` or `IN (…)`. Without such a filter
they show the 16 newest queries of level `records`. (The SQL of `sys.anomaly_candidates` is the same
for all queries, but for the query's id.)
";

const BLAME: &str = "\
Why records were expensive, in their table's own columns: predicates that separate them from the
others, best first, at most five. A predicate is a threshold or a range of numbers and times, the
length of a text or list, a value that several records have, or IS NULL; it is over one column of
`table_name`, and can be pasted as it is. Its rows, `matched_rows`, are `row_share` of the table and
took `latency_share` of the time that was measured for the table's records: at least a tenth, and
four times the others' each. `without_ns` is about what the query would take without them, in place
of `query_ns`; the statement `verify` finds that out. Looked for in the table as it is now: if the
expensive rows are no longer there, and nothing else stands out, an error says so. Level `records`.
";

/// The columns of the table function `sys.blame`.
pub fn blame_schema() -> SchemaRef {
    const COLUMNS: [(&str, DataType); 10] = [
        ("query_id", DataType::Int64),
        ("rank", DataType::Int64),
        ("table_name", DataType::Utf8),
        ("predicate", DataType::Utf8),
        ("matched_rows", DataType::Int64),
        ("row_share", DataType::Float64),
        ("latency_share", DataType::Float64),
        ("query_ns", DataType::Int64),
        ("without_ns", DataType::Int64),
        ("verify", DataType::Utf8),
    ];
    let fields = COLUMNS.map(|(name, data_type)| Field::new(name, data_type, true));
    Arc::new(Schema::new(fields.to_vec()))
}

const WHAT_IF: &str = "\
About how long a query takes without some records of a table and without the profiler: `without_ns`, in place
of `query_ns`. The table's name is as in `sys.record_latency`, the row ids are separated by commas:
`sys.what_if(7, 'main.ratings', '12, 345')`. It is the estimate of `EXPLAIN PROFILE`
([explain-profile.md](explain-profile.md#expensive-inputs)).
";

/// The columns of the table function `sys.what_if`.
pub fn what_if_schema() -> SchemaRef {
    let columns = ["query_id", "query_ns", "without_ns"];
    let fields = columns.map(|name| Field::new(name, DataType::Int64, true));
    Arc::new(Schema::new(fields.to_vec()))
}

const CRITICAL_PATH: &str = "\
The tasks that gated the result of a query: first the task of the fragment that made the result which ended last,
then of each task's inputs the task that ended last. Only work on these tasks makes the query faster. `next_ns` is
how much earlier the fragment's next task ended: what the fragment gains at most if this task is faster. Level
`counters` and above.
";

/// The columns of the table function `sys.critical_path`.
pub fn critical_path_schema() -> SchemaRef {
    let time = || Kind::Time.data_type();
    let columns: [(&str, DataType); 11] = [
        ("step", DataType::Int64),
        ("fragment_id", DataType::Int64),
        ("worker_id", DataType::Int64),
        ("partition", DataType::Int64),
        ("began", time()),
        ("ended", time()),
        ("wall_ns", DataType::Int64),
        ("cpu_ns", DataType::Int64),
        ("off_processor_ns", DataType::Int64),
        ("input_wait_ns", DataType::Int64),
        ("next_ns", DataType::Int64),
    ];
    let fields = columns.map(|(name, data_type)| Field::new(name, data_type, true));
    Arc::new(Schema::new(fields.to_vec()))
}

const OTHERS: &str = "
### `is_sampled(row_id, rate)`

Whether a record is traced at sample rate `rate`, 0 to 1. The records of a lower rate are among those
of a higher one, on every worker and in every run.

## Tables of the present

`sys.running` has the statements that run queries, and the ones that wait for admission
([server.md](server.md)). On the master of a cluster, `sys.cluster` has its nodes
([cluster.md](cluster.md)). `sys.running_operators` has what the operators of these statements did so
far, from level `counters` on. `sys.cache` has the decoded columns that are kept in memory
([sql.md](sql.md#settings)). These rows are not stored: each node keeps its own, and a node that does not
answer within two seconds is left out.

`sys.quarantines` has the [quarantines](sql.md#quarantines) of all tables: `table_id`, `table_name` (as in
`sys.lineage`), `name`, `predicate`, `view_name` (NULL without a view) and `created_at`.

`sys.streams` has a row for each stream ([streams.md](streams.md)): `stream`, `sql`, `watermark_column`; `address`
(where a socket listens), `rows_kept` (rows that the stream has now), `files_taken`; and since the database was opened,
`rows_ingested` and `lines_rejected` (of sources other than INSERT), `is_ended` (the source has no more rows) and
`error` (what is wrong with the source).

`sys.continuous_queries` has a row for each continuous query: `continuous_query`, `sql`, `stream`, `target_table`,
`batches` (micro-batches that were committed), `next_row` (row id of the first row of the stream that was not read),
`first_needed_row` (rows before it are in no open window), `watermark`, `rows_waiting` and `error` (of the last
micro-batch; NULL if it was committed).

`sys.query_totals` has totals of the statements that have ended since the database was opened: a row for each
`status` and bucket of execution time, with `execution_up_to_ns` (the greatest execution time of the bucket; NULL
for the last one), `queries`, `rows_returned`, `queued_ns`, `planning_ns` and `execution_ns`. Unlike counts of rows
in `sys.queries`, these numbers never fall while the database is open.
";

/// The page `docs/sys-tables.md`.
pub fn sys_tables_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for table in Table::ALL {
        describe(table.definition(), &mut page);
    }
    page.push('\n');
    page.push_str(DEFINITIONS);
    for expansion in Expansion::VIEWS {
        let _ = write!(
            page,
            "\n### `sys.{}`\n\n{}\n",
            expansion.name(),
            expansion.doc()
        );
        page.push_str(&columns(&expansion.schema()));
        if expansion == Expansion::AnomalyCandidates {
            let sql = anomalies::SQL.trim_end();
            let _ = write!(page, "\nOf query `$query_id`:\n\n```sql\n{sql}\n```\n");
        }
    }
    page.push_str("\n## Functions that follow a query's plan\n");
    let traces = [
        (
            "backward_trace(query_id, output_row)",
            Expansion::BackwardTrace {
                query_id: 0,
                output_row: 0,
            },
        ),
        (
            "forward_trace(query_id, table_name, row_id)",
            Expansion::ForwardTrace {
                query_id: 0,
                table: String::new(),
                row_id: 0,
            },
        ),
    ];
    for (call, expansion) in traces {
        let _ = write!(page, "\n### `{call}`\n\n{}\n", expansion.doc());
        page.push_str(&columns(&expansion.schema()));
    }
    let _ = write!(page, "\n### `sys.blame(query_id)`\n\n{BLAME}");
    page.push_str(&columns(&blame_schema()));
    let _ = write!(
        page,
        "\n### `sys.what_if(query_id, table_name, row_ids)`\n\n{WHAT_IF}"
    );
    page.push_str(&columns(&what_if_schema()));
    let _ = write!(
        page,
        "\n### `sys.critical_path(query_id)`\n\n{CRITICAL_PATH}"
    );
    page.push_str(&columns(&critical_path_schema()));
    page.push_str(OTHERS);
    for table in PresentTable::ALL {
        describe(table.definition(), &mut page);
    }
    describe(&UserDetection::TABLE, &mut page);
    page.push_str("\n## Views\n");
    for view in VIEWS {
        let sql: Vec<&str> = view
            .sql
            .lines()
            .skip_while(|line| line.starts_with("--"))
            .collect();
        let _ = write!(
            page,
            "\n### `sys.{}`\n\n{}\n\n```sql\n{}\n```\n",
            view.name,
            view.doc(),
            sql.join("\n")
        );
    }
    page
}

/// Adds the section of a table.
fn describe(definition: &TableDefinition, page: &mut String) {
    let _ = write!(page, "\n### `sys.{}`\n\n", definition.name);
    for line in definition.docs {
        let _ = writeln!(page, "{}", line.trim());
    }
    page.push_str("\n| column | type | |\n|---|---|---|\n");
    for column in definition.columns {
        let docs: Vec<&str> = column.docs.iter().map(|line| line.trim()).collect();
        let null = if column.kind.nullable() {
            ", may be NULL"
        } else {
            ""
        };
        let _ = writeln!(
            page,
            "| `{}` | {}{null} | {} |",
            column.name,
            column.kind.sql_name(),
            docs.join(" ")
        );
    }
}

fn columns(schema: &Schema) -> String {
    let names: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| format!("`{}`", field.name()))
        .collect();
    format!("\nColumns: {}.\n", names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_page_in_docs_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/sys-tables.md");
        skewer_testing::golden(Path::new(path), &sys_tables_page());
    }
}
