//! Scans of schema `sys`: memory, files, and what workers have.

mod question;
mod reader;
mod units;

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};

pub(crate) use self::question::Question;
use self::reader::Reader;
use self::units::{Share, deal, units};
use crate::distributed_scan::DistributedScan;
use crate::store::Store;

/// Batches that wait to be consumed, per partition.
const CHANNEL_BATCHES: usize = 2;

/// What other processes have of a table.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// What they have been asked for, as it is stored.
    pub(crate) fetched: Vec<RecordBatch>,
    /// Those that are to be asked when the scan runs.
    pub(crate) workers: Vec<i64>,
}

/// Reads a table of schema `sys`: the buffers of queries in memory and row groups of files,
/// dealt out to partitions; and, where that is not done by the workers themselves, what they have.
#[derive(Debug)]
pub struct SysScan {
    store: Arc<Store>,
    question: Question,
    partitions: Vec<Share>,
    /// `None` if some of them are yet to be asked for.
    rows: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl SysScan {
    /// A scan of what is here, and of `others`.
    pub(crate) fn new(
        store: &Arc<Store>,
        question: Question,
        others: Others,
        partitions: usize,
    ) -> Result<SysScan> {
        let units = units(store, &question, others.fetched)?;
        let rows = units.iter().map(|(_, rows)| rows).sum();
        let rows = others.workers.is_empty().then_some(rows);
        let mut shares = deal(units, partitions);
        shares.extend(others.workers.into_iter().map(|worker| Share {
            here: Vec::new(),
            workers: vec![worker],
        }));
        Self::of_shares(store, question, shares, rows)
    }

    /// A scan of what is here, and of what `workers` have, in exactly so many partitions.
    pub(crate) fn in_partitions(
        store: &Arc<Store>,
        question: Question,
        workers: &[i64],
        partitions: usize,
    ) -> Result<SysScan> {
        let units = units(store, &question, Vec::new())?;
        let rows = units.iter().map(|(_, rows)| rows).sum();
        let rows = workers.is_empty().then_some(rows);
        let mut shares = deal(units, partitions);
        shares.resize_with(partitions.max(1), Share::default);
        // From the last to the first: the first have something already.
        let places: Vec<usize> = (0..shares.len()).rev().collect();
        for (worker, place) in workers.iter().zip(places.into_iter().cycle()) {
            shares[place].workers.push(*worker);
        }
        Self::of_shares(store, question, shares, rows)
    }

    fn of_shares(
        store: &Arc<Store>,
        question: Question,
        shares: Vec<Share>,
        rows: Option<usize>,
    ) -> Result<SysScan> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(question.schema()?),
            Partitioning::UnknownPartitioning(shares.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(SysScan {
            store: Arc::clone(store),
            question,
            partitions: shares,
            rows,
            properties: Arc::new(properties),
        })
    }

    /// Whether other nodes have parts of the table: each can scan its own.
    pub fn is_of_cluster(&self) -> bool {
        self.store.fetched().is_some()
    }

    /// Whether workers have more of what it reads than has been asked for already.
    pub fn asks_workers(&self) -> bool {
        self.partitions
            .iter()
            .any(|share| !share.workers.is_empty())
    }

    /// The scans of `nodes`, in their order: each of its own part, in so many partitions. Node 0,
    /// the master, also reads what those workers have that are not among them. `None` without it.
    pub fn placed(&self, nodes: &[u32], partitions: usize) -> Option<Vec<DistributedScan>> {
        let fetched = self.store.fetched()?;
        if !nodes.contains(&0) {
            return None;
        }
        let mut without = match self.question.table.is_of_workers() {
            true => fetched.others(),
            false => Vec::new(),
        };
        without.retain(|worker| nodes.iter().all(|node| i64::from(*node) != *worker));
        let of_node = |node: &u32| {
            let workers = match node {
                0 => without.clone(),
                _ => Vec::new(),
            };
            DistributedScan::new(self.question.clone(), workers, partitions, self.schema())
        };
        Some(nodes.iter().map(of_node).collect())
    }
}

impl DisplayAs for SysScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SysScan: {}", self.question)
    }
}

impl ExecutionPlan for SysScan {
    fn name(&self) -> &str {
        "SysScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let reader = Arc::new(Reader {
            store: Arc::clone(&self.store),
            question: self.question.clone(),
            schema: self.schema(),
        });
        let limit = self.question.limit.unwrap_or(usize::MAX);
        let mut builder = RecordBatchReceiverStreamBuilder::new(self.schema(), CHANNEL_BATCHES);
        let Share { here, workers } = self.partitions[partition].clone();
        if !workers.is_empty() {
            let (reader, sender) = (Arc::clone(&reader), builder.tx());
            builder.spawn(async move {
                for worker in workers {
                    reader.ask(worker, limit, &sender).await?;
                }
                Ok(())
            });
        }
        if !here.is_empty() {
            let sender = builder.tx();
            builder.spawn_blocking(move || reader.read_all(&here, limit, &sender));
        }
        Ok(builder.build())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let share = if args.partition().is_some() {
            self.partitions.len()
        } else {
            1
        };
        let projection = &self.question.projection;
        let rows = match self.rows {
            Some(rows) => Precision::Inexact(rows / share),
            None => Precision::Absent,
        };
        Ok(Arc::new(Statistics {
            total_byte_size: rows.map(|rows| rows * 8 * projection.len()),
            num_rows: rows,
            column_statistics: vec![ColumnStatistics::new_unknown(); projection.len()],
        }))
    }
}
