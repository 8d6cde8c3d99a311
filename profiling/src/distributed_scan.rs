//! Scans of schema `sys` where its parts are: made where a query is planned, sent to the nodes of a
//! cluster, and there turned into scans of what each has.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use serde::{Deserialize, Serialize};

use crate::chunk_filter::ChunkFilter;
use crate::query_ids::QueryIds;
use crate::scan::{Question, SysScan};
use crate::sys_tables::SysTables;
use crate::tables::Table;

/// What one node reads of a table of schema `sys`, in the plan of a query for several. It runs only
/// as the [scan](SysTables::scan_of) that the node makes of its description.
#[derive(Debug)]
pub struct DistributedScan {
    question: Question,
    /// Workers that take no part in the query: the node asks them for their rows.
    workers: Vec<i64>,
    partitions: usize,
    properties: Arc<PlanProperties>,
}

/// A scan as it travels, but for the condition that chunks must meet: that is an expression over
/// some columns of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanDescription {
    table: String,
    ids: QueryIds,
    /// The columns of the condition.
    condition: Vec<usize>,
    projection: Vec<usize>,
    limit: Option<usize>,
    workers: Vec<i64>,
    partitions: usize,
}

impl DistributedScan {
    pub(crate) fn new(
        question: Question,
        workers: Vec<i64>,
        partitions: usize,
        schema: SchemaRef,
    ) -> DistributedScan {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        DistributedScan {
            question,
            workers,
            partitions,
            properties: Arc::new(properties),
        }
    }

    /// What travels, and the condition that chunks must meet, if there is one.
    pub fn describe(&self) -> (ScanDescription, Option<&Arc<dyn PhysicalExpr>>) {
        let Question {
            table,
            ids,
            chunks,
            projection,
            limit,
        } = &self.question;
        let description = ScanDescription {
            table: table.name().to_owned(),
            ids: ids.clone(),
            condition: chunks.columns().to_vec(),
            projection: projection.to_vec(),
            limit: *limit,
            workers: self.workers.clone(),
            partitions: self.partitions,
        };
        (description, chunks.predicate())
    }

    /// The workers, other than the node that scans, whose rows it asks for.
    pub fn workers(&self) -> &[i64] {
        &self.workers
    }
}

impl ScanDescription {
    fn table(&self) -> Result<Table> {
        match Table::by_name(&self.table) {
            Some(table) => Ok(table),
            None => plan_err!("there is no table sys.{}", self.table),
        }
    }

    /// The columns that the condition is about.
    ///
    /// # Errors
    /// If there is no such table or column.
    pub fn condition_schema(&self) -> Result<Schema> {
        let schema = self.table()?.definition().schema();
        Ok(schema.project(&self.condition)?)
    }
}

impl SysTables {
    /// The scan that was described, of what is here.
    ///
    /// # Errors
    /// If there is no such table or column.
    pub fn scan_of(
        &self,
        description: ScanDescription,
        condition: Option<Arc<dyn PhysicalExpr>>,
    ) -> Result<SysScan> {
        let table = description.table()?;
        let ScanDescription {
            ids,
            condition: columns,
            projection,
            limit,
            workers,
            partitions,
            ..
        } = description;
        let question = Question {
            table,
            ids,
            chunks: match condition {
                Some(condition) => ChunkFilter::of_predicate(columns, condition),
                None => ChunkFilter::default(),
            },
            projection: projection.into(),
            limit,
        };
        SysScan::in_partitions(self.store(), question, &workers, partitions)
    }
}

impl DisplayAs for DistributedScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SysScan: {}", self.question)
    }
}

impl ExecutionPlan for DistributedScan {
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

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!(
            "a scan of sys.{} was not sent to its node",
            self.question.table.name()
        )
    }
}
