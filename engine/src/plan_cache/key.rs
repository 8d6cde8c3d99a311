//! What a plan is kept by: the query as it was written, the versions of its tables, and the settings.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::logical_plan::TableScan;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use parking_lot::Mutex;
use skewer_optimizer::join_order::JoinOrder;
use skewer_storage::{Snapshot, TableMeta};

use crate::catalog::native_table::NativeTable;

/// Settings that decide what becomes of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlanSettings {
    /// A hash of DataFusion's options.
    pub(crate) options: u64,
    pub(crate) join_order: JoinOrder,
    pub(crate) heeds_feedback: bool,
}

/// What a plan is kept by.
#[derive(Debug)]
pub(crate) struct PlanKey {
    hash: u64,
    /// The query before it is optimized.
    query: LogicalPlan,
    settings: PlanSettings,
    /// The tables of its scans, in the order of the plan.
    tables: Vec<Scanned>,
}

/// What a scan reads.
#[derive(Debug)]
struct Scanned {
    table: Arc<TableMeta>,
    /// Its columns, which may have the row ids among them.
    schema: SchemaRef,
}

impl PartialEq for Scanned {
    fn eq(&self, other: &Self) -> bool {
        // A change of a table makes another one of these.
        Arc::ptr_eq(&self.table, &other.table) && self.schema == other.schema
    }
}

impl PlanKey {
    /// What `query` is kept by; `None` if another run of it may need another plan.
    ///
    /// # Errors
    /// None of its own; those of walking a plan.
    pub(crate) fn of_query(query: &LogicalPlan, settings: PlanSettings) -> Result<Option<Self>> {
        let mut tables = Vec::new();
        let mut is_same_each_time = true;
        query.apply_with_subqueries(|node| {
            is_same_each_time &= match node {
                LogicalPlan::TableScan(scan) => match scanned(scan) {
                    Some(scanned) => {
                        tables.push(scanned);
                        true
                    }
                    None => false,
                },
                LogicalPlan::Explain(_)
                | LogicalPlan::Analyze(_)
                | LogicalPlan::Statement(_)
                | LogicalPlan::Dml(_)
                | LogicalPlan::Ddl(_)
                | LogicalPlan::Copy(_)
                | LogicalPlan::DescribeTable(_)
                | LogicalPlan::Extension(_)
                | LogicalPlan::RecursiveQuery(_) => false,
                _ => true,
            };
            node.apply_expressions(|expression| {
                is_same_each_time &= !expression.exists(|part| Ok(!is_immutable(part)))?;
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(match is_same_each_time {
                true => TreeNodeRecursion::Continue,
                false => TreeNodeRecursion::Stop,
            })
        })?;
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(query);
        Ok(is_same_each_time.then(|| Self {
            hash,
            query: query.clone(),
            settings,
            tables,
        }))
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether all tables are in `now` as they were.
    pub(crate) fn is_current(&self, now: &Snapshot) -> bool {
        self.tables.iter().all(|scanned| {
            let table = &scanned.table;
            now.table(&table.schema_name, &table.name)
                .is_some_and(|current| Arc::ptr_eq(&current, table))
        })
    }
}

impl PartialEq for PlanKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && self.settings == other.settings
            && self.tables == other.tables
            && self.query == other.query
    }
}

/// What `scan` reads, if that is a table of the database with all of its rows.
fn scanned(scan: &TableScan) -> Option<Scanned> {
    let provider = source_as_provider(&scan.source).ok()?;
    let table = NativeTable::of_provider(&provider)?.whole()?;
    Some(Scanned {
        table: Arc::clone(table),
        schema: provider.schema(),
    })
}

/// Whether `expression`, without what is in it, has the same value in each statement.
fn is_immutable(expression: &Expr) -> bool {
    let volatility = match expression {
        Expr::ScalarFunction(call) => call.func.signature().volatility,
        Expr::HigherOrderFunction(call) => call.func.signature().volatility,
        Expr::AggregateFunction(call) => call.func.signature().volatility,
        Expr::WindowFunction(call) => call.fun.signature().volatility,
        Expr::ScalarVariable(..) | Expr::Placeholder(_) => return false,
        _ => Volatility::Immutable,
    };
    volatility == Volatility::Immutable
}

/// The hash of a session's options, which are looked through again only after a change.
#[derive(Debug, Default)]
pub(crate) struct OptionsHash(Mutex<Option<(Arc<ConfigOptions>, u64)>>);

impl OptionsHash {
    pub(crate) fn of_options(&self, options: &Arc<ConfigOptions>) -> u64 {
        let mut known = self.0.lock();
        if let Some((same, hash)) = known.as_ref()
            && Arc::ptr_eq(same, options)
        {
            return *hash;
        }
        let mut hasher = DefaultHasher::new();
        for entry in options.entries() {
            (entry.key, entry.value).hash(&mut hasher);
        }
        let hash = hasher.finish();
        *known = Some((Arc::clone(options), hash));
        hash
    }
}
