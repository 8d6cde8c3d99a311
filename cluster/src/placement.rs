//! Which worker scans which segments, and which runs which task.
//!
//! A segment is read by the node that owns it, and task *i* of a stage runs on worker *i*: the
//! order of the workers is the same for every table. Workers without segments of a table have
//! nothing of it.
//!
//! Workers of one process have their segments in common; there the owner of one follows from its
//! shard, if its table is divided by hash, otherwise from its number, and a table with fewer
//! segments than there are workers is cut into ranges of bytes if it is large.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, Statistics, exec_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::DataSourceExec;
use datafusion::datasource::physical_plan::{
    FileGroup, FileGroupPartitioner, FileScanConfig, FileScanConfigBuilder,
};
use datafusion::execution::SessionState;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DesiredTaskCountHandler, DistributedExt,
    DistributedLeafExec, RouteTasksEvent, RouteTasksEventResponse, RouteTasksHandler,
    ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse, ScaleUpLeafNodeHandler,
};
use parking_lot::Mutex;
use skewer_storage::SegmentName;

use crate::colocation::{ShardOf, without_needless_exchanges};
use crate::distributability::Leaf;
use crate::sys;
use crate::workers::Workers;
use crate::write::{self, Writing};

/// Decides where the parts of a query run.
#[derive(Debug, Clone)]
pub struct Placement {
    workers: Workers,
    store: ObjectStoreUrl,
    /// Scans of what several have, in stages that only one worker can run.
    alone: Arc<Mutex<Vec<Arc<dyn ExecutionPlan>>>>,
}

impl Placement {
    /// Places tasks on `workers`; segments are the files of `store`.
    pub fn new(workers: Workers, store: ObjectStoreUrl) -> Self {
        Self {
            workers,
            store,
            alone: Arc::default(),
        }
    }

    /// Who runs tasks.
    pub(crate) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Where segments are.
    pub fn store(&self) -> &ObjectStoreUrl {
        &self.store
    }

    /// `plan` without exchanges between workers whose rows are [where they
    /// meet](crate::colocation) already; `None` if it has none.
    pub(crate) fn without_needless_exchanges(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let leaf = |plan: &Arc<dyn ExecutionPlan>| Leaf::of_plan(plan, &self.store);
        without_needless_exchanges(plan, &self.workers, &leaf)
    }

    /// Whether the planner has put no scan into a stage of one task since this was asked last.
    pub(crate) fn has_none_alone(&self) -> bool {
        std::mem::take(&mut *self.alone.lock()).is_empty()
    }

    /// `plan` with an exchange on top of each scan that the planner has put into a stage of one
    /// task: there, one worker would read the segments of all. `None` if there is none, or none
    /// any more.
    ///
    /// ```text
    /// UnionExec               only one task, since VALUES are returned once
    ///   CoalescePartitions    ← new: the planner puts an exchange below
    ///     DataSourceExec
    ///   PlaceholderRowExec
    /// ```
    pub(crate) fn with_scans_apart(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let alone = std::mem::take(&mut *self.alone.lock());
        if alone.is_empty() {
            return Ok(None);
        }
        let apart = Arc::clone(plan).transform_up(|node| {
            Ok(match alone.iter().any(|scan| Arc::ptr_eq(scan, &node)) {
                true => Transformed::yes(Arc::new(CoalescePartitionsExec::new(node)) as _),
                false => Transformed::no(node),
            })
        })?;
        Ok(apart.transformed.then_some(apart.data))
    }

    /// `plan`, whose rows are then written by workers.
    pub(crate) fn written(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        writing: &Writing,
        state: &SessionState,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let partitions = state.config().target_partitions();
        write::wrap(Arc::clone(plan), writing, &self.workers, partitions)
    }

    /// Lets the planner ask.
    pub(crate) fn register(self, config: &mut SessionConfig) {
        config.set_extension(Arc::new(self.clone()));
        config.set_distributed_desired_task_count_handler(self.clone());
        config.set_distributed_scale_up_leaf_node_handler(self.clone());
        config.set_distributed_route_tasks_handler(self);
    }

    /// The placement of a session's queries.
    pub(crate) fn of_session(config: &SessionConfig) -> Option<Arc<Self>> {
        config.get_extension::<Self>()
    }
}

#[async_trait]
impl DesiredTaskCountHandler for Placement {
    async fn handle(
        &self,
        event: DesiredTaskCountEvent<'_>,
    ) -> Option<Result<DesiredTaskCountEventResponse>> {
        if let Some(tasks) = write::tasks_of(event.plan) {
            // Neither fewer nor more, however many send to them: routes are made for so many.
            return Some(Ok(DesiredTaskCountEventResponse::maximum(tasks)));
        }
        if !event.plan.children().is_empty() {
            return None;
        }
        Some(Ok(match Leaf::of_plan(event.plan, &self.store) {
            Leaf::Segments | Leaf::Sys { .. } => {
                DesiredTaskCountEventResponse::desired(self.workers.count())
            }
            Leaf::Nothing => DesiredTaskCountEventResponse::desired(1),
            Leaf::Rows | Leaf::Here => DesiredTaskCountEventResponse::maximum(1),
        }))
    }
}

impl ScaleUpLeafNodeHandler for Placement {
    fn handle(&self, event: ScaleUpLeafNodeEvent) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
        let plan = Arc::clone(event.plan);
        let placed = match (Leaf::of_plan(&plan, &self.store), event.task_count) {
            (Leaf::Segments | Leaf::Sys { .. }, 1) => {
                self.alone.lock().push(Arc::clone(&plan));
                Ok(plan)
            }
            (Leaf::Segments, tasks) => self.placed(plan, tasks, event.session_config),
            (Leaf::Sys { .. }, tasks) => {
                let partitions = event.session_config.target_partitions();
                sys::placed(plan, &self.workers, tasks, partitions)
            }
            _ => Ok(plan),
        };
        Some(placed.map(ScaleUpLeafNodeEventResponse::new))
    }
}

impl RouteTasksHandler for Placement {
    fn handle(&self, event: RouteTasksEvent) -> Option<Result<RouteTasksEventResponse>> {
        match write::routes_to(event.plan, event.task_count, &self.workers) {
            Ok(Some(urls)) => return Some(Ok(RouteTasksEventResponse::new(urls))),
            Ok(None) => {}
            Err(error) => return Some(Err(error)),
        }
        let urls = self.workers.urls();
        if event.task_count > urls.len() {
            return Some(exec_err!(
                "{} tasks for {} workers",
                event.task_count,
                urls.len()
            ));
        }
        let urls = urls[..event.task_count].to_vec();
        Some(Ok(RouteTasksEventResponse::new(urls)))
    }
}

impl Placement {
    /// The scan `plan`, of which task *i* reads what worker *i* owns.
    fn placed(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        tasks: usize,
        config: &SessionConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(scan) = plan
            .downcast_ref::<DataSourceExec>()
            .and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>())
        else {
            return exec_err!("{} is not a scan of segments", plan.name());
        };
        let limits = Limits {
            partitions: config.target_partitions(),
            smallest_cut: config.options().optimizer.repartition_file_min_size,
        };
        let files = whole_files(scan);
        let shares = if self.workers.shares_segments() {
            shares(files, tasks, limits)
        } else {
            let numbers: Vec<u32> = self.workers.list().iter().map(|at| at.number).collect();
            owned(files, &numbers[..tasks.min(numbers.len())], limits)?
        };
        let variants: Vec<Arc<dyn ExecutionPlan>> = shares
            .into_iter()
            .map(|file_groups| {
                let part = FileScanConfigBuilder::from(scan.clone())
                    .with_statistics(expected(scan, &file_groups))
                    .with_file_groups(file_groups)
                    .build();
                DataSourceExec::from_data_source(part) as _
            })
            .collect();
        Ok(Arc::new(DistributedLeafExec::try_new(plan, variants)?))
    }
}

/// About how many rows a part of a scan has.
fn expected(scan: &FileScanConfig, part: &[FileGroup]) -> Statistics {
    let rows = |file: &PartitionedFile| -> Option<f64> {
        let rows = *file.statistics.as_ref()?.num_rows.get_value()? as f64;
        Some(match &file.range {
            Some(range) => {
                rows * (range.end - range.start) as f64 / file.object_meta.size.max(1) as f64
            }
            None => rows,
        })
    };
    let files = part.iter().flat_map(FileGroup::iter);
    let mut statistics = Statistics::new_unknown(scan.file_schema());
    if let Some(rows) = files.map(rows).sum::<Option<f64>>() {
        statistics.num_rows = Precision::Inexact(rows as usize);
    }
    statistics
}

/// How scans are divided.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Partitions of each worker.
    partitions: usize,
    /// Fewer bytes than these are not cut.
    smallest_cut: usize,
}

/// The files of a scan, each once: the planner may have cut them into ranges.
fn whole_files(scan: &FileScanConfig) -> Vec<PartitionedFile> {
    let mut files: Vec<PartitionedFile> = Vec::new();
    let mut known = HashSet::new();
    for file in scan.file_groups.iter().flat_map(FileGroup::iter) {
        if known.insert(&file.object_meta.location) {
            let mut file = file.clone();
            file.range = None;
            files.push(file);
        }
    }
    files
}

/// What each of `workers` reads: its own segments.
fn owned(
    files: Vec<PartitionedFile>,
    workers: &[u32],
    limits: Limits,
) -> Result<Vec<Vec<FileGroup>>> {
    let mut owned: Vec<Vec<PartitionedFile>> = vec![Vec::new(); workers.len()];
    for file in files {
        let location = &file.object_meta.location;
        let Some(segment) = SegmentName::parse(location) else {
            return exec_err!("{location} is not the place of a segment");
        };
        let Some(place) = workers.iter().position(|number| *number == segment.owner) else {
            return exec_err!(
                "{location} is on node {}, which takes no part in the query",
                segment.owner
            );
        };
        owned[place].push(file);
    }
    let shares = owned.into_iter().map(|files| spread(files, limits));
    Ok(of_equal_length(shares.collect()))
}

/// What each of `workers` reads where all can read everything.
fn shares(files: Vec<PartitionedFile>, workers: usize, limits: Limits) -> Vec<Vec<FileGroup>> {
    let bytes: u64 = files.iter().map(|file| file.object_meta.size).sum();
    let mut shares: Vec<Vec<FileGroup>> = vec![Vec::new(); workers];
    let readers = ShardOf::readers(&files, workers);
    if readers.is_none() && files.len() < workers && bytes >= limits.smallest_cut as u64 {
        let groups = cut(files, workers * limits.partitions);
        for (number, group) in groups.into_iter().enumerate() {
            shares[number % workers].push(group);
        }
    } else {
        let mut owned: Vec<Vec<PartitionedFile>> = vec![Vec::new(); workers];
        for (number, file) in files.into_iter().enumerate() {
            let reader = match &readers {
                Some(readers) => readers[number],
                None => owner(&file, workers),
            };
            owned[reader].push(file);
        }
        for (share, files) in shares.iter_mut().zip(owned) {
            *share = spread(files, limits);
        }
    }
    of_equal_length(shares)
}

/// For all workers as many groups of files, some of them empty.
fn of_equal_length(mut shares: Vec<Vec<FileGroup>>) -> Vec<Vec<FileGroup>> {
    let groups = shares.iter().map(Vec::len).max().unwrap_or(0).max(1);
    for share in &mut shares {
        share.resize_with(groups, || FileGroup::new(Vec::new()));
    }
    shares
}

/// Who owns a segment: the segments of a table go round, in the order of their numbers.
fn owner(file: &PartitionedFile, workers: usize) -> usize {
    let name = file.object_meta.location.filename().unwrap_or_default();
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    let number: u64 = digits.parse().unwrap_or(0);
    (number % workers as u64) as usize
}

/// A worker's files in at most `limits.partitions` groups of about the same size.
fn spread(mut files: Vec<PartitionedFile>, limits: Limits) -> Vec<FileGroup> {
    let bytes: u64 = files.iter().map(|file| file.object_meta.size).sum();
    if files.len() < limits.partitions && bytes >= limits.smallest_cut as u64 {
        return cut(files, limits.partitions);
    }
    if limits.partitions == 1 && !files.is_empty() {
        // In their order: what is written anew keeps it.
        return vec![FileGroup::new(files)];
    }
    let mut groups: Vec<(u64, Vec<PartitionedFile>)> =
        vec![(0, Vec::new()); limits.partitions.min(files.len())];
    files.sort_by_key(|file| std::cmp::Reverse(file.object_meta.size));
    for file in files {
        if let Some((bytes, group)) = groups.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            *bytes += file.object_meta.size;
            group.push(file);
        }
    }
    groups
        .into_iter()
        .map(|(_, files)| FileGroup::new(files))
        .collect()
}

/// Files cut into at most `groups` groups of ranges; a row group belongs to the range in which
/// it begins.
fn cut(files: Vec<PartitionedFile>, groups: usize) -> Vec<FileGroup> {
    let whole = vec![FileGroup::new(files)];
    FileGroupPartitioner::new()
        .with_target_partitions(groups)
        .with_repartition_file_min_size(0)
        .repartition_file_groups(&whole)
        .unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        partitions: 2,
        smallest_cut: 1000,
    };

    fn file(number: u64, bytes: u64) -> PartitionedFile {
        PartitionedFile::new(format!("data/{number:012}.parquet"), bytes)
    }

    /// Names and ranges of the files of each worker's groups.
    fn names(shares: &[Vec<FileGroup>]) -> Vec<Vec<Vec<String>>> {
        let name = |file: &PartitionedFile| {
            let name = file.object_meta.location.filename().unwrap_or_default();
            let name = name.trim_start_matches('0').trim_end_matches(".parquet");
            match &file.range {
                Some(range) => format!("{name}[{}..{}]", range.start, range.end),
                None => name.to_owned(),
            }
        };
        shares
            .iter()
            .map(|share| share.iter().map(|g| g.iter().map(name).collect()).collect())
            .collect()
    }

    #[test]
    fn every_segment_has_one_owner_and_workers_without_segments_have_empty_groups() {
        let files = (1..=4).map(|number| file(number, 10)).collect();
        let shares = shares(files, 3, LIMITS);
        let empty: Vec<String> = vec![];
        assert_eq!(
            names(&shares),
            [
                [vec!["3".to_owned()], empty.clone()],
                [vec!["1".to_owned()], vec!["4".to_owned()]],
                [vec!["2".to_owned()], empty],
            ]
        );
    }

    #[test]
    fn a_segment_is_read_by_its_owner_and_by_nobody_else() {
        let file = |owner: u32, id| {
            let table = skewer_storage::TableId(7);
            let name = SegmentName { owner, table, id };
            PartitionedFile::new(name.location().to_string(), 10)
        };
        let files = || vec![file(3, 1), file(0, 2), file(3, 3), file(1, 4)];
        let shares = owned(files(), &[0, 1, 2, 3], LIMITS).unwrap();
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let expected: [[Vec<String>; 2]; 4] = [
            [of(&["2"]), of(&[])],
            [of(&["4"]), of(&[])],
            [of(&[]), of(&[])],
            [of(&["1"]), of(&["3"])],
        ];
        assert_eq!(names(&shares), expected);
        let error = owned(files(), &[0, 1, 2], LIMITS).unwrap_err().to_string();
        assert!(
            error.contains("node-3/segments/7/1.parquet is on node 3"),
            "{error}"
        );
    }

    #[test]
    fn a_small_table_is_not_cut() {
        let shares = shares(vec![file(7, 999)], 3, LIMITS);
        let counts: Vec<usize> = shares.iter().map(|s| s[0].len()).collect();
        assert_eq!(counts, [0, 1, 0]);
    }

    #[test]
    fn few_large_segments_are_cut_so_that_all_workers_read() {
        let shares = shares(vec![file(1, 6000)], 3, LIMITS);
        assert!(shares.iter().all(|share| share.len() == 2));
        let bytes: i64 = shares
            .iter()
            .flatten()
            .flat_map(FileGroup::iter)
            .map(|file| file.range.as_ref().map_or(0, |r| r.end - r.start))
            .sum();
        assert_eq!(bytes, 6000);
    }
}
