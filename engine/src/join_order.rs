//! The order of joins of one statement: gathers statistics of its tables and what earlier queries counted, then has the
//! optimizer choose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::logical_plan::TableScan;
use datafusion::logical_expr::utils::split_conjunction;
use skewer_cluster::has_workers;
use skewer_compat::functions::guarded::planning;
use skewer_optimizer::join_order::statistics::Summaries;
use skewer_optimizer::join_order::{
    JoinOrder, Knowledge, KnownRows, PlannedRun, can_be_sampled, columns_of, order_joins,
};

use crate::catalog::native_table::NativeTable;
use crate::plan_cache::OptimizedQuery;

/// Fewer rows in all tables of a query are joined in any order faster than one is found.
const FEW_ROWS: u64 = 2_000;

/// `optimized` with its joins in the `order` that is asked for, by statistics and by what is `known` from earlier queries.
/// A plan that `traces_records` keeps the lineage of the query as it is written.
pub(crate) async fn with_ordered_joins(
    optimized: LogicalPlan,
    state: &SessionState,
    order: JoinOrder,
    known: Option<&KnownRows>,
    traces_records: bool,
) -> OptimizedQuery {
    match ordered(&optimized, state, order, known, traces_records).await {
        Ok(Some(ordered)) => ordered,
        Ok(None) => OptimizedQuery::in_one_order(optimized),
        Err(error) => {
            // The plan as it is returns the same.
            tracing::debug!(%error, "joins keep their order");
            OptimizedQuery::in_one_order(optimized)
        }
    }
}

/// Has the rules of `state` know what the joins of `query` get, if it is planned for one process.
pub(crate) fn tell_estimates(query: &OptimizedQuery, state: &mut SessionState) {
    if let Some(estimates) = &query.estimates
        && !has_workers(state.config())
    {
        let options = state.config_mut().options_mut();
        options.extensions.insert(estimates.clone());
    }
}

async fn ordered(
    optimized: &LogicalPlan,
    state: &SessionState,
    order: JoinOrder,
    known: Option<&KnownRows>,
    traces_records: bool,
) -> Result<Option<OptimizedQuery>> {
    if order == JoinOrder::Text {
        return Ok(None);
    }
    let tables = Tables::of_joins(optimized)?;
    let rows: u64 = tables.0.values().map(|read| read.rows).sum();
    if order == JoinOrder::Cost && rows < FEW_ROWS {
        return Ok(None);
    }
    let summaries = tables.summaries(state).await?;
    let knowledge = Knowledge {
        summaries: &summaries,
        known: known.filter(|_| order == JoinOrder::Cost),
    };
    let run = PlannedRun {
        is_distributed: has_workers(state.config()),
        traces_records,
    };
    let ordered = planning(|| order_joins(optimized, knowledge, order, state, run))?;
    Ok(ordered.map(|ordered| OptimizedQuery {
        plan: ordered.plan,
        relations: ordered.relations,
        estimates: ordered.estimates,
        corrected: ordered.corrected,
        feedback: ordered.feedback,
        operators: None,
    }))
}

/// The tables of a query that has joins, by their versions.
#[derive(Default)]
struct Tables(BTreeMap<usize, TableRead>);

/// What a query reads of a table.
struct TableRead {
    provider: Arc<dyn TableProvider>,
    scans: Vec<TableScan>,
    rows: u64,
    columns: BTreeSet<String>,
    /// Columns that predicates read which are worth evaluating on a sample.
    sampled: BTreeSet<String>,
}

impl TableRead {
    fn table(&self) -> Option<&NativeTable> {
        NativeTable::of_provider(&self.provider)
    }
}

impl Tables {
    /// Those that `plan` scans; none if it joins nothing.
    fn of_joins(plan: &LogicalPlan) -> Result<Self> {
        let mut tables = Self::default();
        let mut has_join = false;
        plan.apply_with_subqueries(|node| {
            has_join |= matches!(node, LogicalPlan::Join(_));
            match node {
                LogicalPlan::TableScan(scan) => tables.add(scan, &[]),
                LogicalPlan::Filter(filter) => {
                    if let LogicalPlan::TableScan(scan) = filter.input.as_ref() {
                        let predicates = split_conjunction(&filter.predicate).into_iter();
                        let predicates = predicates.filter(|predicate| can_be_sampled(predicate));
                        let columns: Vec<_> = predicates.flat_map(columns_of).collect();
                        tables.add(scan, &columns);
                    }
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match has_join {
            true => tables,
            false => Self::default(),
        })
    }

    fn add(&mut self, scan: &TableScan, sampled: &[String]) {
        let Ok(provider) = source_as_provider(&scan.source) else {
            return;
        };
        let Some(table) = NativeTable::of_provider(&provider) else {
            return;
        };
        let (version, rows) = (table.version(), table.rows());
        let read = self.0.entry(version).or_insert_with(|| TableRead {
            provider,
            scans: Vec::new(),
            rows,
            columns: BTreeSet::new(),
            sampled: BTreeSet::new(),
        });
        let fields = scan.projected_schema.fields().iter();
        read.columns
            .extend(fields.map(|field| field.name().clone()));
        read.sampled.extend(sampled.iter().cloned());
        if !read
            .scans
            .iter()
            .any(|known| Arc::ptr_eq(&known.source, &scan.source))
        {
            read.scans.push(scan.clone());
        }
    }

    async fn summaries(&self, state: &SessionState) -> Result<Summaries> {
        let mut summaries = Summaries::default();
        let none = BTreeSet::new();
        for read in self.0.values() {
            let Some(table) = read.table() else {
                continue;
            };
            // Other nodes would send their rows.
            let sampled = match has_workers(state.config()) {
                true => &none,
                false => &read.sampled,
            };
            let summary = Arc::new(table.summary(&read.columns, sampled, state).await?);
            for scan in &read.scans {
                summaries.insert(scan, Arc::clone(&summary));
            }
        }
        Ok(summaries)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::arrow::util::pretty::pretty_format_batches;

    use crate::{Database, Session};

    const TABLES: &str = "
        CREATE TABLE sale AS SELECT value AS id, value % 300 AS shop, value * 7 % 40000 AS item,
            'note ' || (value % 200) AS note FROM generate_series(0, 149999);
        CREATE TABLE item AS SELECT value AS id, 'item ' || (value % 50) AS name
            FROM generate_series(0, 39999);
        CREATE TABLE shop AS SELECT value AS id, value % 3 AS region FROM generate_series(0, 299)";

    /// The tables that a query scans, in the order of its joins.
    async fn scans(session: &Session, query: &str) -> Vec<String> {
        let stream = session.sql(&format!("EXPLAIN {query}")).await.unwrap();
        let plan = pretty_format_batches(&stream.collect().await.unwrap()).unwrap();
        let plan = plan.to_string();
        let names = plan.split("TableScan: ").skip(1);
        let names = names.filter_map(|rest| rest.split_whitespace().next()?.rsplit('.').next());
        names.map(str::to_owned).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_predicate_that_a_sample_knows_decides_what_is_joined_first() {
        let session = Database::in_memory().unwrap().session();
        session.execute_script(TABLES).await.unwrap();
        let query = "SELECT count(*) FROM sale JOIN shop ON sale.shop = shop.id \
                     JOIN item ON sale.item = item.id WHERE ";
        for (condition, expected) in [
            // One item of fifty: 3,000 sales are left.
            ("item.name LIKE '%m 7'", ["shop", "item", "sale"]),
            // Nearly all items: the order of the text is right.
            (
                "item.name NOT LIKE '%m 7' AND shop.region = 1",
                ["sale", "shop", "item"],
            ),
        ] {
            let sql = format!("{query}{condition}");
            let found = scans(&session, &sql).await;
            assert_eq!(found, expected, "{sql}");
        }
        session.sql("SET join_order = 'text'").await.unwrap();
        let sql = format!("{query} item.name LIKE '%m 7'");
        assert_eq!(scans(&session, &sql).await, ["sale", "shop", "item"]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_takes_long_is_computed_once() {
        let session = Database::in_memory().unwrap().session();
        session.execute_script(TABLES).await.unwrap();
        let with = |rows: &str| {
            format!(
                "WITH made AS ({rows}) SELECT count(*) FROM made a JOIN made b ON a.id = b.id + 1"
            )
        };
        let groups = "SELECT shop.region AS id, sum(sale.item) AS s FROM sale JOIN shop ON sale.shop = shop.id \
                      GROUP BY shop.region HAVING sum(sale.item) > 0";
        for (rows, expected) in [
            (groups.to_owned(), 1),
            // Nearly as many rows as are read: keeping them takes longer than reading them again.
            ("SELECT id, item FROM sale GROUP BY id, item".to_owned(), 0),
            // Few rows are read.
            (
                "SELECT region AS id, count(*) FROM shop GROUP BY region".to_owned(),
                0,
            ),
            // Other rows at each place.
            (
                groups.replace("HAVING sum(sale.item)", "HAVING sum(random())"),
                0,
            ),
            // The same groups, of which others are left at each place.
            (groups.replace("> 0", "> random()"), 1),
        ] {
            let sql = with(&rows);
            assert_eq!(made(&session, &sql).await, expected, "{sql}");
        }
        session.sql("SET join_order = 'text'").await.unwrap();
        assert_eq!(made(&session, &with(groups)).await, 0);
    }

    /// How many parts of a query's plan are made once and read at several places.
    async fn made(session: &Session, query: &str) -> usize {
        let stream = session.sql(&format!("EXPLAIN {query}")).await.unwrap();
        let plan = pretty_format_batches(&stream.collect().await.unwrap()).unwrap();
        plan.to_string().matches("made elsewhere").count()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn distinct_values_and_samples_are_those_of_all_segments() {
        let session = Database::in_memory().unwrap().session();
        session.execute_script(TABLES).await.unwrap();
        // Without these items, no sale is left.
        session
            .execute_script(
                "INSERT INTO item SELECT value + 100000, 'late' FROM generate_series(0, 19999);
                 ALTER TABLE item ADD COLUMN extra BIGINT",
            )
            .await
            .unwrap();
        let query = "SELECT count(*) FROM sale JOIN shop ON sale.shop = shop.id \
                     JOIN item ON sale.item = item.id WHERE ";
        for (condition, expected) in [
            // A column that older segments lack: no row is left, so a table is built of what is joined first.
            ("item.extra IS NOT NULL", ["item", "sale", "shop"]),
            // A third of all items, of the second segment.
            ("item.name = 'late'", ["shop", "item", "sale"]),
        ] {
            let sql = format!("{query}{condition}");
            assert_eq!(scans(&session, &sql).await, expected, "{sql}");
        }
    }

    /// Lines of EXPLAIN about estimates that earlier queries corrected.
    async fn estimates(session: &Session, query: &str) -> Vec<String> {
        let stream = session.sql(&format!("EXPLAIN {query}")).await.unwrap();
        let batches = stream.collect().await.unwrap();
        let mut lines = Vec::new();
        for batch in &batches {
            let texts = [0, 1].map(|column| batch.column(column).as_string::<i32>().clone());
            let rows = texts[0].iter().zip(&texts[1]);
            let rows = rows.filter(|(kind, _)| *kind == Some("estimate"));
            lines.extend(rows.filter_map(|(_, text)| Some(text?.to_owned())));
        }
        lines
    }

    async fn count(session: &Session, query: &str) -> i64 {
        let batches = session.sql(query).await.unwrap().collect().await.unwrap();
        batches[0].column(0).as_primitive::<Int64Type>().value(0)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_query_that_has_run_corrects_the_next_one() {
        let session = Database::in_memory().unwrap().session();
        session.execute_script(TABLES).await.unwrap();
        // Of the sales with this note, hardly any is of such an item.
        let more = |rows: i64| {
            format!(
                "INSERT INTO sale SELECT value, 7, 48, 'note 7' FROM generate_series(1, {rows})"
            )
        };
        session.execute_script(&more(5)).await.unwrap();
        let query = "SELECT count(*) FROM sale JOIN item ON sale.item = item.id JOIN shop ON sale.shop = shop.id \
                     WHERE sale.note = 'note 7' AND item.name = 'item 48'";
        assert_eq!(estimates(&session, query).await, [""; 0]);
        let before = count(&session, query).await;
        assert_eq!(before, 5);
        let lines = estimates(&session, query).await;
        let joins = |lines: &[String]| {
            let joins = lines.iter().filter(|line| line.contains(" join of "));
            let rows = joins.filter_map(|line| Some(line.split_once(": ")?.1.to_owned()));
            rows.collect::<Vec<_>>()
        };
        let counted = joins(&lines);
        assert!(!counted.is_empty(), "{lines:?}");
        assert!(
            counted
                .iter()
                .all(|line| line.starts_with("5 rows, which query ")),
            "{lines:?}"
        );
        // The same relation in another order, with other names and columns.
        let other = "SELECT max(s.id) FROM shop b, item i, sale s WHERE s.note = 'note 7' AND b.id = s.shop \
                     AND i.name = 'item 48' AND i.id = s.item";
        assert_eq!(joins(&estimates(&session, other).await), counted);
        session.sql("SET cardinality_feedback = off").await.unwrap();
        assert_eq!(estimates(&session, query).await, [""; 0]);
        session.sql("RESET cardinality_feedback").await.unwrap();
        assert_eq!(count(&session, query).await, before);
        // Rows of a table that has changed are not known.
        session.execute_script(&more(9)).await.unwrap();
        let lines = estimates(&session, query).await;
        assert_eq!(joins(&lines), [""; 0]);
        assert_eq!(count(&session, query).await, before + 9);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn groups_that_a_filter_leaves_are_counted() {
        let session = Database::in_memory().unwrap().session();
        session.execute_script(TABLES).await.unwrap();
        let query = "SELECT count(*) FROM item JOIN (SELECT item FROM sale GROUP BY item HAVING min(id) >= 39950) AS late \
                     ON late.item = item.id";
        count(&session, query).await;
        let lines = estimates(&session, query).await;
        let of_groups = lines.iter().filter(|line| {
            line.starts_with("rows of sale where ") && line.contains(": 50 rows, which query ")
        });
        assert_eq!(of_groups.count(), 1, "{lines:#?}");
    }

    /// The order that has run is known, another one is not: it must promise more than a fifth.
    #[tokio::test(flavor = "multi_thread")]
    async fn feedback_changes_the_order_only_if_another_one_is_clearly_cheaper() {
        let query = "SELECT count(*) FROM sale JOIN item ON sale.item = item.id JOIN shop ON sale.shop = shop.id \
                     WHERE item.name LIKE '%m 48' AND shop.region = 1";
        for (more, is_changed) in [(30_000, false), (400_000, true)] {
            let session = Database::in_memory().unwrap().session();
            session.execute_script(TABLES).await.unwrap();
            let skew = format!(
                "INSERT INTO sale SELECT value, value % 300, 48, 'more' FROM generate_series(1, {more})"
            );
            session.execute_script(&skew).await.unwrap();
            let before = scans(&session, query).await;
            let counted = count(&session, query).await;
            let after = scans(&session, query).await;
            assert_eq!(before != after, is_changed, "{more}: {before:?}, {after:?}");
            assert_eq!(count(&session, query).await, counted);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_are_counted_by_relation_whatever_the_order() {
        let session = Database::in_memory().unwrap().session();
        session.execute_script(TABLES).await.unwrap();
        let query = "SELECT count(*) FROM sale JOIN item ON sale.item = item.id JOIN shop ON sale.shop = shop.id \
                     WHERE item.name LIKE '%m 7' AND shop.region = 1";
        let counted = "SELECT count(*) FROM sys.cardinalities WHERE query_id = last_query_id()";
        let truth = count(&session, query).await;
        assert!(
            count(&session, counted).await >= 3,
            "the join, and both sides that tables are built of"
        );
        let whole = format!(
            "{counted} AND name LIKE '%JoinExec' AND returned_rows = {truth} AND q_error >= 1"
        );
        assert_eq!(count(&session, &whole).await, 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_that_were_not_all_read_count_as_a_least_number() {
        let session = Database::in_memory().unwrap().session();
        session.execute_script(TABLES).await.unwrap();
        let query =
            "SELECT sale.id FROM sale JOIN item ON sale.item = item.id WHERE sale.id % 2 = 0";
        let joins = "SELECT count(*) FROM sys.cardinalities WHERE query_id = last_query_id()";
        let limited = format!("{query} LIMIT 3");
        session
            .sql(&limited)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        assert_eq!(
            count(&session, &format!("{joins} AND name LIKE '%JoinExec'")).await,
            0
        );
        // A join whose other side is empty does not read this one.
        let empty = "SELECT sale.id FROM shop JOIN sale ON sale.shop = shop.id WHERE shop.region = 77 AND sale.id % 3 = 0";
        session.sql(empty).await.unwrap().collect().await.unwrap();
        assert_eq!(
            count(&session, &format!("{joins} AND table_name = 'main.sale'")).await,
            0
        );
        let alone =
            "SELECT count(*) FROM sale JOIN item ON sale.item = item.id WHERE sale.id % 3 = 0";
        assert_eq!(count(&session, alone).await, 50_000);
    }
}
