//! Queries that need what a lost worker has.

use std::collections::BTreeMap;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use skewer_net::LostWorker;
use skewer_sql::row_ids::WITH_ROW_IDS;
use skewer_storage::{DEFAULT_SCHEMA, MASTER, Snapshot};

use crate::error::Error;

/// Says which worker a query needs that is lost, and for which tables; `lost` says why a worker
/// takes no part, if it does not.
///
/// # Errors
/// [`Error::WorkerLost`] for the first such worker.
pub fn check_availability(
    plan: &LogicalPlan,
    snapshot: &Snapshot,
    lost: impl Fn(u32) -> Option<LostWorker>,
) -> Result<(), Error> {
    let mut needed: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let name = scan.table_name.table();
            let schema = scan.table_name.schema().unwrap_or(DEFAULT_SCHEMA);
            let name = name.strip_suffix(WITH_ROW_IDS).unwrap_or(name);
            if let Some(table) = snapshot.table(schema, name) {
                for owner in table.owners() {
                    let tables = needed.entry(owner).or_default();
                    let name = table.qualified_name();
                    if owner != MASTER && !tables.contains(&name) {
                        tables.push(name);
                    }
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    for (owner, tables) in needed {
        if owner != MASTER
            && let Some(LostWorker { name, reason }) = lost(owner)
        {
            return Err(Error::WorkerLost {
                name,
                reason,
                tables,
            });
        }
    }
    Ok(())
}
