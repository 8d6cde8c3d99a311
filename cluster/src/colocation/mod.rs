//! Rows that are where they meet: joins and groups that need no exchange between workers.
//!
//! The rows of a table that is divided by hash are on the worker that owns their shard, as its
//! segments say. Where a join or an aggregate would send rows to each other by columns that
//! include those of the hash, they are on one worker already:
//!
//! ```text
//! HashJoinExec: on=[(k, k)]           HashJoinExec
//!   NetworkShuffleExec                  RepartitionExec     among the partitions of a task
//!     RepartitionExec: Hash([k])          DataSourceExec    its own shards of a
//!       DataSourceExec: a        →      RepartitionExec
//!   NetworkShuffleExec                    DataSourceExec    its own shards of b
//!     RepartitionExec: Hash([k])
//!       DataSourceExec: b
//! ```
//!
//! Nothing is taken from what a table says of itself but from its segments in the snapshot that is
//! read: one without a shard, or with another owner than the rest of its shard, and the table's
//! rows are shuffled.

mod located;
mod shards;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::DataSourceExec;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use skewer_compat::distribution::planning_barrier::BarrierExec;
use skewer_storage::SegmentName;

use self::located::{Key, Located, column_of, joined, of_unary};
pub use self::shards::ShardOf;
use crate::distributability::Leaf;
use crate::workers::Workers;
use crate::write::hashed_alike;

/// `plan` with the exchanges hidden that do not have to be between `workers`; `None` if all have
/// to be. Segments are the files that are a [`Leaf::Segments`] by `leaf`.
///
/// # Errors
/// Those of putting an operator on other inputs.
pub(crate) fn without_needless_exchanges(
    plan: &Arc<dyn ExecutionPlan>,
    workers: &Workers,
    leaf: &dyn Fn(&Arc<dyn ExecutionPlan>) -> Leaf,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut places = Places {
        workers,
        leaf,
        scans: HashMap::new(),
        exchanged: HashSet::new(),
    };
    // First every exchange is taken for needless; one that is not may make others needed.
    loop {
        let needed = places.exchanged.len();
        places.locate(plan);
        if places.exchanged.len() == needed {
            break;
        }
    }
    let mut hidden = 0;
    let plan = places.hide(plan, &mut hidden)?;
    Ok((hidden > 0).then_some(plan))
}

/// An operator of the plan that is looked at.
type Node = usize;

fn node(plan: &Arc<dyn ExecutionPlan>) -> Node {
    Arc::as_ptr(plan).cast::<()>() as Node
}

struct Places<'a> {
    workers: &'a Workers,
    leaf: &'a dyn Fn(&Arc<dyn ExecutionPlan>) -> Leaf,
    scans: HashMap<Node, Option<Located>>,
    /// Hash repartitions that must send rows to other workers, and joins whose one side must be
    /// sent to all.
    exchanged: HashSet<Node>,
}

impl Places<'_> {
    /// Where the rows of `plan` are, if by a hash. Notes the exchanges that are needed.
    fn locate(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Option<Located> {
        if plan.children().is_empty() {
            if let Some(known) = self.scans.get(&node(plan)) {
                return known.clone();
            }
            let found = self.of_scan(plan);
            self.scans.insert(node(plan), found.clone());
            return found;
        }
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            return self.of_join(plan, join);
        }
        let inputs: Vec<Option<Located>> = plan
            .children()
            .into_iter()
            .map(|child| self.locate(child))
            .collect();
        let [input] = plan.children()[..] else {
            let takes_any = plan.is::<UnionExec>()
                || plan.is::<CrossJoinExec>()
                || plan.is::<NestedLoopJoinExec>();
            if !takes_any {
                let senders = senders_below(plan);
                self.exchanged.extend(senders);
            }
            return None;
        };
        let located = inputs.into_iter().next().flatten();
        if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
            return match repartition.partitioning() {
                Partitioning::RoundRobinBatch(_) => located,
                Partitioning::Hash(by, _) if !self.exchanged.contains(&node(plan)) => {
                    let schema = input.schema();
                    let located = located.filter(|located| located.is_by(by, &schema));
                    if located.is_none() {
                        self.exchanged.insert(node(plan));
                    }
                    located
                }
                _ => None,
            };
        }
        of_unary(plan, &located?)
    }

    fn of_scan(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<Located> {
        if (self.leaf)(plan) != Leaf::Segments {
            return None;
        }
        let source = plan.downcast_ref::<DataSourceExec>()?.data_source();
        let scan = source.downcast_ref::<FileScanConfig>()?;
        let files: Vec<PartitionedFile> = scan
            .file_groups
            .iter()
            .flat_map(FileGroup::iter)
            .cloned()
            .collect();
        let shards = ShardOf::of_all(&files)?;
        let first = shards.first()?;
        let owners_of_files: Vec<u32> = match self.workers.shares_segments() {
            true => {
                let readers = ShardOf::readers(&files, self.workers.count())?;
                readers.into_iter().map(|reader| reader as u32).collect()
            }
            false => files
                .iter()
                .map(|file| Some(SegmentName::parse(&file.object_meta.location)?.owner))
                .collect::<Option<_>>()?,
        };
        let mut owners = BTreeMap::new();
        for (of, owner) in shards.iter().zip(owners_of_files) {
            let before = owners.insert(of.shard.index, owner);
            if before.is_some_and(|other| other != owner) {
                return None;
            }
        }
        let table = scan.file_schema();
        let keys = first.keys.iter().map(|key| {
            Some(Key {
                kind: hashed_alike(table.field(*key).data_type())?,
                columns: BTreeSet::from([*key]),
            })
        });
        let all_columns = Located {
            keys: keys.collect::<Option<_>>()?,
            of: first.shard.of,
            owners,
        };
        match scan.file_source().projection() {
            Some(projection) => all_columns.with_columns(
                projection
                    .expr_iter()
                    .map(|expression| column_of(&expression, table)),
            ),
            None => Some(all_columns),
        }
    }

    fn of_join(&mut self, plan: &Arc<dyn ExecutionPlan>, join: &HashJoinExec) -> Option<Located> {
        let right = self.locate(join.right());
        if *join.partition_mode() == PartitionMode::Partitioned {
            let left = self.locate(join.left());
            let mut senders = senders_below(join.left());
            senders.extend(senders_below(join.right()));
            if senders.iter().all(|sender| self.exchanged.contains(sender)) {
                return None;
            }
            if let (Some(left), Some(right)) = (&left, &right)
                && let Some(owners) = left.together(right, join)
                && !senders.iter().any(|sender| self.exchanged.contains(sender))
            {
                return joined(join, Some(left), right, owners);
            }
            // Partition n of one side meets partition n of the other: both are sent or none.
            self.exchanged.extend(senders);
            return None;
        }
        let collected = collected_side(join);
        let left = match collected {
            Some(side) => self.locate(side),
            None => {
                self.locate(join.left());
                None
            }
        };
        if collected.is_some() && !self.exchanged.contains(&node(plan)) {
            if let (Some(left), Some(right)) = (&left, &right)
                && let Some(owners) = left.together(right, join)
            {
                return joined(join, Some(left), right, owners);
            }
            self.exchanged.insert(node(plan));
        }
        // All of the left side comes to wherever the right side is.
        let right = right?;
        let owners = right.owners.clone();
        joined(join, None, &right, owners)
    }

    /// `plan` with what is not in `exchanged` hidden.
    fn hide(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        hidden: &mut usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_join = plan.downcast_ref::<HashJoinExec>().is_some_and(|join| {
            *join.partition_mode() == PartitionMode::CollectLeft && collected_side(join).is_some()
        });
        let is_here = (is_join || hash(plan).is_some()) && !self.exchanged.contains(&node(plan));
        let mut children = Vec::new();
        for (place, child) in plan.children().into_iter().enumerate() {
            let child = self.hide(child, hidden)?;
            children.push(match is_here && is_join && place == 0 {
                true => BarrierExec::wrap(child),
                false => child,
            });
        }
        let plan = match children.is_empty() {
            true => Arc::clone(plan),
            false => replace_children_if_necessary(Arc::clone(plan), children)?,
        };
        if !is_here {
            return Ok(plan);
        }
        *hidden += 1;
        Ok(BarrierExec::wrap(plan))
    }
}

/// What a repartition by hash hashes.
fn hash(plan: &Arc<dyn ExecutionPlan>) -> Option<&[Arc<dyn PhysicalExpr>]> {
    match plan.downcast_ref::<RepartitionExec>()?.partitioning() {
        Partitioning::Hash(by, _) => Some(by),
        _ => None,
    }
}

/// The side of a join that is collected in one partition and could be so on each worker by itself.
fn collected_side(join: &HashJoinExec) -> Option<&Arc<dyn ExecutionPlan>> {
    let collect = join.left().downcast_ref::<CoalescePartitionsExec>()?;
    // Whether there is any NULL is asked of all rows.
    (!join.null_aware && collect.fetch().is_none()).then(|| collect.input())
}

/// The hash repartitions that give `plan`'s rows their partitions.
fn senders_below(plan: &Arc<dyn ExecutionPlan>) -> Vec<Node> {
    if hash(plan).is_some() {
        return vec![node(plan)];
    }
    let has_one_partition =
        plan.is::<CoalescePartitionsExec>() || plan.is::<SortPreservingMergeExec>();
    if has_one_partition {
        return Vec::new();
    }
    plan.children()
        .into_iter()
        .flat_map(senders_below)
        .collect()
}
