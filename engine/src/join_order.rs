//! The order of joins of one statement: gathers statistics of its tables, then has the optimizer choose.

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
use skewer_exec::IdentifiedTable;
use skewer_optimizer::join_order::statistics::Summaries;
use skewer_optimizer::join_order::{JoinOrder, can_be_sampled, columns_of, order_joins};

use crate::catalog::native_table::NativeTable;

/// Fewer rows in all tables of a query are joined in any order faster than one is found.
const FEW_ROWS: u64 = 2_000;

/// `optimized` with its joins in the `order` that is asked for. If `state` plans for one process, its rules learn the
/// sizes of joins.
pub(crate) async fn with_ordered_joins(
    optimized: LogicalPlan,
    state: &mut SessionState,
    order: JoinOrder,
) -> LogicalPlan {
    match ordered(&optimized, state, order).await {
        Ok(Some(plan)) => plan,
        Ok(None) => optimized,
        Err(error) => {
            // The plan as it is returns the same.
            tracing::debug!(%error, "joins keep their order");
            optimized
        }
    }
}

async fn ordered(
    optimized: &LogicalPlan,
    state: &mut SessionState,
    order: JoinOrder,
) -> Result<Option<LogicalPlan>> {
    if order == JoinOrder::Text {
        return Ok(None);
    }
    let tables = Tables::of_joins(optimized)?;
    let rows: u64 = tables.0.values().map(|read| read.rows).sum();
    if order == JoinOrder::Cost && rows < FEW_ROWS {
        return Ok(None);
    }
    let summaries = match order {
        JoinOrder::Cost => tables.summaries(state).await?,
        _ => Summaries::default(),
    };
    let is_distributed = has_workers(state.config());
    let ordered = planning(|| order_joins(optimized, &summaries, order, state, is_distributed))?;
    let Some(ordered) = ordered else {
        return Ok(None);
    };
    if let Some(estimates) = ordered.estimates
        && !is_distributed
    {
        let options = state.config_mut().options_mut();
        options.extensions.insert(estimates);
    }
    Ok(Some(ordered.plan))
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
        native_table(&self.provider)
    }
}

fn native_table(provider: &Arc<dyn TableProvider>) -> Option<&NativeTable> {
    let table = provider.downcast_ref::<IdentifiedTable>()?;
    table.inner.downcast_ref::<NativeTable>()
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
        let Some(table) = native_table(&provider) else {
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
}
