//! The kinds of operators: the vocabulary of the columns of `sys.operators` that say what an operator is.
//!
//! `skewer_exec::operator_kind` classifies the operators of a plan. Databases and exported profiles that
//! older versions wrote have no kinds: [`with_kinds`] derives them from names and details, whenever such rows
//! are read. Reports also choose their words by names. Nothing else may depend on an operator's name.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray};
use datafusion::arrow::compute::is_not_null;
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::error::ArrowError;

/// Defines a fixed vocabulary of a column of `sys.operators`.
macro_rules! vocabulary {
    ($(#[doc = $doc:literal])+ $name:ident {
        $($(#[doc = $variant_doc:literal])+ $variant:ident = $text:literal,)+
    }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[doc = $variant_doc])+ $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// Its name in `sys.operators`.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)+
                }
            }

            /// The one of a name in `sys.operators`.
            pub fn from_name(name: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

vocabulary! {
    /// What an operator does: column `kind` of `sys.operators`.
    OperatorKind {
        /// Reads a table, files, schema `sys` or a table function.
        Scan = "scan",
        /// Returns rows that the statement itself has, as those of VALUES.
        Values = "values",
        /// Returns what the iteration before made of a recursive query.
        WorkingTable = "working table",
        /// Returns rows that another operator of the plan has made.
        SharedRows = "shared rows",
        /// Returns the values that a correlated subquery is computed for, which another operator has made.
        SubqueryValues = "subquery values",
        /// Keeps the rows that fulfil a condition.
        Filter = "filter",
        /// Computes columns.
        Projection = "projection",
        /// Evaluates expressions and times each record: the profiler takes them out of other operators.
        Evaluation = "evaluation",
        /// Makes a row of each element of a list.
        Unnest = "unnest",
        /// Joins two inputs.
        Join = "join",
        /// Groups rows.
        Aggregate = "aggregate",
        /// Computes window functions.
        Window = "window",
        /// Sorts rows, and may keep the first ones only.
        Sort = "sort",
        /// Keeps the first rows, or leaves them out.
        Limit = "limit",
        /// Returns the rows of all its inputs.
        Union = "union",
        /// Moves rows to other partitions, tasks or workers: its input is another fragment.
        Exchange = "exchange",
        /// Runs a recursive query.
        Recursive = "recursive",
        /// Writes rows, or prepares them for that.
        Write = "write",
        /// Anything else.
        Other = "other",
        /// Internal: returns the rows of its input. It is there for the planner alone.
        PassThrough = "pass-through",
        /// Internal: tells the groups that an aggregate made of spilled ones apart from its others.
        SpilledGroups = "spilled groups",
        /// Internal: tells the records that a window makes of frames, or of parts of frames, apart.
        Frames = "frames",
    }
}

impl OperatorKind {
    /// Whether the query would do the same without the operator. `sys.operators` has it for the sake of
    /// what refers to it.
    pub fn is_internal(self) -> bool {
        matches!(
            self,
            OperatorKind::PassThrough | OperatorKind::SpilledGroups | OperatorKind::Frames
        )
    }

    /// The kind of an operator that reads a table, if one is given: rows in memory are a table's then.
    #[must_use]
    pub fn reading(self, table_name: Option<&str>) -> OperatorKind {
        match (self, table_name) {
            (OperatorKind::Values, Some(_)) => OperatorKind::Scan,
            _ => self,
        }
    }
}

vocabulary! {
    /// How an exchange finds the partition of a row: column `routing` of `sys.operators`.
    Routing {
        /// By a hash of keys.
        Hash = "hash",
        /// By a hash of the number that one value has for which a correlated subquery is computed.
        ValueNumber = "value number",
        /// Batches in turn.
        RoundRobin = "round robin",
        /// All rows go to one partition, or those of all workers to one worker.
        Gather = "gather",
        /// All rows go to every worker.
        Broadcast = "broadcast",
    }
}

vocabulary! {
    /// What an operator makes records of: column `captured_records` of `sys.operators`.
    CapturedRecords {
        /// The groups of an aggregate.
        Groups = "groups",
        /// The frames of a window's rows.
        Frames = "frames",
        /// The rows of a recursive query.
        RecursiveRows = "recursive rows",
    }
}

impl CapturedRecords {
    /// What an operator of a kind makes records of, if it captures lineage.
    pub fn by_kind(kind: OperatorKind) -> Option<CapturedRecords> {
        match kind {
            OperatorKind::Aggregate | OperatorKind::SpilledGroups => Some(CapturedRecords::Groups),
            OperatorKind::Frames => Some(CapturedRecords::Frames),
            // Of other rows a projection makes no records.
            OperatorKind::Projection => Some(CapturedRecords::RecursiveRows),
            _ => None,
        }
    }
}

/// The name of operators that stand for what an aggregate makes of groups that it has spilled.
pub const MERGE_OF_SPILLED_GROUPS: &str = "merge of spilled groups";

/// The name of operators that stand for the records that a window makes of frames.
pub const FRAMES_OF_ROWS: &str = "frames of rows";

/// The name of operators that stand for the records that a window makes of parts of frames.
pub const PARTS_OF_FRAMES: &str = "parts of frames";

/// The key of exchanges by the number of a value that a correlated subquery is computed for begins with this.
pub const VALUE_NUMBER: &str = "__number";

/// The kind of an operator by its name and details in `sys.operators`: of rows that older versions wrote, and
/// of operators whose types are not accessible.
pub fn kind_by_name(name: &str, details: &str) -> OperatorKind {
    match name {
        "DataSourceExec" if details.contains("partition_sizes=") => OperatorKind::Values,
        "DataSourceExec" | "SysScan" | "SharedScan" | "PlannedAfterSteps" | "DeferredScan"
        | "StreamingTableExec" | "LazyMemoryExec" => OperatorKind::Scan,
        "EmptyExec" | "PlaceholderRowExec" | "EntryExec" => OperatorKind::Values,
        "WorkTableExec" => OperatorKind::WorkingTable,
        "SharedRowsExec" if !details.ends_with("made elsewhere") => OperatorKind::Exchange,
        "SharedRowsExec" if details.starts_with("values=") => OperatorKind::SubqueryValues,
        "SharedRowsExec" => OperatorKind::SharedRows,
        "FilterExec" => OperatorKind::Filter,
        "ProjectionExec" | "AsyncFuncExec" => OperatorKind::Projection,
        "TimedEvaluationExec" => OperatorKind::Evaluation,
        "UnnestExec" => OperatorKind::Unnest,
        "AggregateExec" => OperatorKind::Aggregate,
        "WindowAggExec" | "BoundedWindowAggExec" => OperatorKind::Window,
        "SortExec" | "SortExec(TopK)" | "PartialSortExec" | "PartitionedTopKExec" => {
            OperatorKind::Sort
        }
        "GlobalLimitExec" | "LocalLimitExec" => OperatorKind::Limit,
        "UnionExec" | "InterleaveExec" | "ChildrenIsolatorUnionExec" => OperatorKind::Union,
        "RepartitionExec"
        | "CoalescePartitionsExec"
        | "SortPreservingMergeExec"
        | "NetworkShuffleExec"
        | "NetworkCoalesceExec"
        | "NetworkBroadcastExec" => OperatorKind::Exchange,
        "RecursiveQueryExec" => OperatorKind::Recursive,
        "WriteSegmentsExec" | "RouteExec" | "ApplyChangesExec" | "DataSinkExec" => {
            OperatorKind::Write
        }
        "SoundPropertiesExec" | "CooperativeExec" | "CoalesceBatchesExec" | "BufferExec" => {
            OperatorKind::PassThrough
        }
        MERGE_OF_SPILLED_GROUPS => OperatorKind::SpilledGroups,
        FRAMES_OF_ROWS | PARTS_OF_FRAMES => OperatorKind::Frames,
        join if join.ends_with("JoinExec") => OperatorKind::Join,
        _ => OperatorKind::Other,
    }
}

/// How an exchange finds the partition of a row, by its name and details in `sys.operators`. It serves the same
/// operators as [`kind_by_name`].
pub fn routing_by_name(name: &str, details: &str) -> Option<Routing> {
    match name {
        "CoalescePartitionsExec" | "SortPreservingMergeExec" | "NetworkCoalesceExec" => {
            Some(Routing::Gather)
        }
        "SharedRowsExec" => match kind_by_name(name, details) {
            OperatorKind::Exchange => Some(Routing::Gather),
            _ => None,
        },
        "NetworkBroadcastExec" => Some(Routing::Broadcast),
        "RepartitionExec" | "NetworkShuffleExec" => {
            let (_, partitioning) = details.split_once("partitioning=")?;
            if partitioning.starts_with("RoundRobinBatch(") {
                return Some(Routing::RoundRobin);
            }
            let keys = partitioning.strip_prefix("Hash([")?;
            Some(if keys.starts_with(VALUE_NUMBER) {
                Routing::ValueNumber
            } else {
                Routing::Hash
            })
        }
        _ => None,
    }
}

/// The columns of `sys.operators` that rows of older versions lack.
const DERIVED: [&str; 4] = ["kind", "is_internal", "captured_records", "routing"];

/// Whether [`with_kinds`] fills in a column of `sys.operators`.
pub(crate) fn is_derived(column: &str) -> bool {
    DERIVED.contains(&column)
}

/// Rows of `sys.operators`, with all columns, where those that have no kind get what their names and details
/// tell.
///
/// # Errors
/// If they are no rows of that table.
pub(crate) fn with_kinds(rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let column = |name: &str| {
        let missing = || ArrowError::SchemaError(format!("there is no column {name}"));
        rows.column_by_name(name).ok_or_else(missing)
    };
    let known = is_not_null(column("kind")?)?;
    if known.true_count() == rows.num_rows() {
        return Ok(rows.clone());
    }
    let names: &StringArray = column("name")?.as_string();
    let details: &StringArray = column("details")?.as_string();
    let captures = column("captures")?.as_boolean();
    let tables: &StringArray = column("table_name")?.as_string();
    let recorded: Vec<(&str, &str)> = (0..rows.num_rows())
        .map(|row| (names.value(row), details.value(row)))
        .collect();
    let kinds: Vec<OperatorKind> = recorded
        .iter()
        .zip(tables)
        .map(|((name, details), table)| kind_by_name(name, details).reading(table))
        .collect();
    let captured = kinds.iter().zip(captures).map(|(kind, captures)| {
        let records = CapturedRecords::by_kind(*kind).filter(|_| captures == Some(true));
        records.map(CapturedRecords::name)
    });
    let routings = recorded
        .iter()
        .map(|(name, details)| routing_by_name(name, details).map(Routing::name));
    let texts = kinds.iter().map(|kind| Some(kind.name()));
    let internal = kinds.iter().map(|kind| Some(kind.is_internal()));
    // In the order of `DERIVED`.
    let derived: [ArrayRef; 4] = [
        Arc::new(texts.collect::<StringArray>()),
        Arc::new(internal.collect::<BooleanArray>()),
        Arc::new(captured.collect::<StringArray>()),
        Arc::new(routings.collect::<StringArray>()),
    ];
    let schema = rows.schema();
    let columns = schema.fields().iter().zip(rows.columns());
    let columns = columns.map(|(field, column)| {
        let place = DERIVED.iter().position(|name| name == field.name());
        match place {
            Some(place) => zip(&known, column, &derived[place]),
            None => Ok(Arc::clone(column)),
        }
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(schema, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_back_from_its_name() {
        for kind in OperatorKind::ALL {
            assert_eq!(OperatorKind::from_name(kind.name()), Some(*kind));
        }
        assert_eq!(OperatorKind::from_name("HashJoinExec"), None);
    }

    #[test]
    fn names_and_details_tell_operators_of_one_type_apart() {
        for (name, details, kind) in [
            (
                "DataSourceExec",
                "partitions=1, partition_sizes=[2]",
                OperatorKind::Values,
            ),
            ("DataSourceExec", "file_groups={…}", OperatorKind::Scan),
            ("SharedRowsExec", "values=1", OperatorKind::Exchange),
            (
                "SharedRowsExec",
                "values=1, made elsewhere",
                OperatorKind::SubqueryValues,
            ),
            (
                "SharedRowsExec",
                "rows=1, made elsewhere",
                OperatorKind::SharedRows,
            ),
            ("NestedLoopJoinExec", "", OperatorKind::Join),
            ("NetworkShuffleExec", "", OperatorKind::Exchange),
            ("SomethingElse", "", OperatorKind::Other),
        ] {
            assert_eq!(kind_by_name(name, details), kind, "{name}: {details}");
        }
    }

    #[test]
    fn details_tell_how_an_exchange_finds_partitions() {
        let shuffle = "partitioning=Hash([g@0], 6), input_partitions=2";
        let numbers = "partitioning=Hash([__number_3@0], 6), input_partitions=2";
        let batches = "partitioning=RoundRobinBatch(2), input_partitions=1";
        for (name, details, routing) in [
            ("RepartitionExec", shuffle, Some(Routing::Hash)),
            ("NetworkShuffleExec", shuffle, Some(Routing::Hash)),
            ("RepartitionExec", numbers, Some(Routing::ValueNumber)),
            ("RepartitionExec", batches, Some(Routing::RoundRobin)),
            ("NetworkCoalesceExec", "from 3 tasks", Some(Routing::Gather)),
            ("SharedRowsExec", "rows=1", Some(Routing::Gather)),
            ("SharedRowsExec", "rows=1, made elsewhere", None),
            ("FilterExec", "a@0 > 1", None),
        ] {
            assert_eq!(routing_by_name(name, details), routing, "{name}: {details}");
        }
    }
}
