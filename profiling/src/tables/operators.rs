//! Operators of physical plans.

use crate::definition::{array, column, heap, sys_table, value};
use crate::operator_kind::{CapturedRecords, OperatorKind, Routing};

sys_table! {
    /// One row per operator of the physical plan.
    struct Operator = "operators" {
        /// The query.
        given query_id: Int,
        /// The fragment that the operator belongs to.
        row fragment_id: Int,
        /// The operator, unique in its query.
        row operator_id: Int,
        /// The operator that consumes this one's rows; NULL for the root.
        row parent_operator_id: OptInt,
        /// The operator's name, for example `HashJoinExec`.
        row name: Text,
        /// What it does: expressions, keys, file groups.
        row details: Text,
        /// Rows that the optimizer expected it to return, over all partitions.
        row estimated_rows: OptInt,
        /// The part of the SQL text that it stems from, where that is known.
        row sql_span: OptText,
        /// Whether it writes rows of `sys.lineage`.
        row captures: Flag,
        /// The table or file that a scan reads, where that is known.
        row table_name: OptText,
        /// What kind of operator it is: `scan`, `values` (rows that the statement has), `working table` (of a
        /// recursive query), `shared rows` and `subquery values` (made by another operator), `filter`,
        /// `projection`, `evaluation` (of expressions, with a time for each record), `unnest`, `join`,
        /// `aggregate`, `window`, `sort`, `limit`, `union`, `exchange`, `recursive`, `write`, `other`; of
        /// internal operators `pass-through`, `spilled groups` and `frames`. Derived from `name` and `details`
        /// where a version recorded it that knew no kinds.
        row kind: OptText,
        /// Whether it is no operator of the query: it passes rows on for the planner's sake, or stands for
        /// records that `sys.lineage` tells apart.
        row is_internal: OptFlag,
        /// What it makes records of, if it captures lineage: `groups`, `frames` or `recursive rows`.
        row captured_records: OptText,
        /// How an exchange finds the partition of a row: `hash` of keys, `value number` (a hash of the number
        /// of a value that a subquery is computed for), `round robin`, `gather` or `broadcast`. NULL for other
        /// operators, and where that is not known.
        row routing: OptText,
        /// What can be done about skew of an exchange that hashes keys, separated by commas: `map` (heavy keys get
        /// partitions by a map), `split` (rows of a heavy key are spread over all partitions, and the matching
        /// rows of the other input are copied), `deal NULL` (rows with NULL in their key are spread), `drop NULL`
        /// (such rows are left out). NULL for other operators.
        row remedies: OptText,
        /// A name for the rows that it returns: a hash of the versions of tables, the conditions and the keys. Joins
        /// have the same name in any order. NULL where something above asks for only some of the rows, where another
        /// run may return others, and at level `records`.
        row relation: OptText,
    }
}

impl Operator {
    /// The same operator, of a kind, and if it captures lineage with what it makes records of.
    #[must_use]
    pub fn with_kind(self, kind: OperatorKind) -> Self {
        let kind = kind.reading(self.table_name.as_deref());
        let captured = CapturedRecords::by_kind(kind).filter(|_| self.captures);
        Self {
            kind: Some(kind.name().to_owned()),
            is_internal: Some(kind.is_internal()),
            captured_records: captured.map(|records| records.name().to_owned()),
            ..self
        }
    }

    /// The same operator, which finds partitions so.
    #[must_use]
    pub fn with_routing(self, routing: Option<Routing>) -> Self {
        Self {
            routing: routing.map(|routing| routing.name().to_owned()),
            ..self
        }
    }

    /// Stands for records that operator `parent_operator_id` makes beside its others.
    pub fn of_captured_records(
        kind: OperatorKind,
        name: &str,
        fragment_id: i64,
        operator_id: i64,
        parent_operator_id: i64,
    ) -> Self {
        let operator = Self {
            fragment_id,
            operator_id,
            parent_operator_id: Some(parent_operator_id),
            name: name.to_owned(),
            details: String::new(),
            estimated_rows: None,
            sql_span: None,
            captures: true,
            table_name: None,
            kind: None,
            is_internal: None,
            captured_records: None,
            routing: None,
            remedies: None,
            relation: None,
        };
        operator.with_kind(kind)
    }
}
