//! What a table of schema `sys` is: a list of columns, from which its row struct, its Arrow
//! schema, its record batches and its page of the documentation follow.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

/// One table of schema `sys`.
#[derive(Debug)]
pub struct TableDefinition {
    /// The table's name in schema `sys`.
    pub name: &'static str,
    /// Lines of Markdown: what one row is.
    pub docs: &'static [&'static str],
    /// The columns, in order.
    pub columns: &'static [ColumnDefinition],
}

/// One column of a table of schema `sys`.
#[derive(Debug)]
pub struct ColumnDefinition {
    /// The column's name.
    pub name: &'static str,
    /// Type and nullability.
    pub kind: Kind,
    /// Lines of Markdown: what the column says, with its unit.
    pub docs: &'static [&'static str],
}

/// Type and nullability of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each kind is what its SQL type says; `Opt` kinds may be NULL"
)]
pub enum Kind {
    Int,
    OptInt,
    Text,
    OptText,
    Time,
    OptTime,
    Float,
    OptFloat,
    Flag,
    OptFlag,
}

impl Kind {
    /// The Arrow type of the column.
    pub fn data_type(self) -> DataType {
        match self {
            Kind::Int | Kind::OptInt => DataType::Int64,
            Kind::Text | Kind::OptText => DataType::Utf8,
            Kind::Time | Kind::OptTime => {
                DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()))
            }
            Kind::Float | Kind::OptFloat => DataType::Float64,
            Kind::Flag | Kind::OptFlag => DataType::Boolean,
        }
    }

    /// Whether the column may be NULL.
    pub fn nullable(self) -> bool {
        matches!(
            self,
            Kind::OptInt | Kind::OptText | Kind::OptTime | Kind::OptFloat | Kind::OptFlag
        )
    }

    /// The type's name in SQL.
    pub fn sql_name(self) -> &'static str {
        match self {
            Kind::Int | Kind::OptInt => "BIGINT",
            Kind::Text | Kind::OptText => "VARCHAR",
            Kind::Time | Kind::OptTime => "TIMESTAMP(ns, UTC)",
            Kind::Float | Kind::OptFloat => "DOUBLE",
            Kind::Flag | Kind::OptFlag => "BOOLEAN",
        }
    }
}

/// Time zone of all times in schema `sys`.
pub(crate) const UTC: &str = "UTC";

impl TableDefinition {
    /// The table's Arrow schema.
    pub fn schema(&self) -> SchemaRef {
        let fields: Vec<Field> = self
            .columns
            .iter()
            .map(|column| Field::new(column.name, column.kind.data_type(), column.kind.nullable()))
            .collect();
        Arc::new(Schema::new(fields))
    }

    /// A record batch of the table from one array per column.
    ///
    /// # Panics
    /// If the arrays do not fit the definition: both are made from the same list.
    pub(crate) fn batch(&self, columns: Vec<ArrayRef>) -> RecordBatch {
        RecordBatch::try_new(self.schema(), columns)
            .unwrap_or_else(|error| panic!("a batch of sys.{} does not fit: {error}", self.name))
    }
}

/// What the rows of one query have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// The query.
    pub query_id: i64,
    /// The worker that recorded.
    pub worker_id: i64,
    /// Name of the level that the query ran at.
    pub profile_level: String,
    /// Share of base records that were traced, 0 to 1.
    pub sample_rate: f64,
    /// Name of the mode in which the query kept what it learned of records; `None` below that level.
    pub lineage: Option<String>,
}

impl Origin {
    /// Of rows that belong to no query, which this process has itself.
    pub fn nobody() -> Self {
        Self {
            query_id: 0,
            worker_id: 0,
            profile_level: String::new(),
            sample_rate: 1.0,
            lineage: None,
        }
    }
}

/// A row of a table of schema `sys`, without the columns that [`Origin`] gives.
pub trait SysRow: Sized {
    /// The table of which this is a row.
    const TABLE: TableDefinition;

    /// Rows of one origin as a record batch of the table.
    fn batch(origin: &Origin, rows: &[Self]) -> RecordBatch;

    /// Bytes that the row's texts occupy beside the struct itself.
    fn text_bytes(&self) -> usize;
}

/// Rust type of a row's field for a column kind.
macro_rules! value {
    (Int) => { i64 };
    (OptInt) => { Option<i64> };
    (Text) => { String };
    (OptText) => { Option<String> };
    (Time) => { i64 };
    (OptTime) => { Option<i64> };
    (Float) => { f64 };
    (OptFloat) => { Option<f64> };
    (Flag) => { bool };
    (OptFlag) => { Option<bool> };
}

/// Arrow array of a column kind from an iterator over references to values.
macro_rules! array {
    (Int, $values:expr) => {
        datafusion::arrow::array::Int64Array::from_iter_values($values.copied())
    };
    (OptInt, $values:expr) => {
        $values
            .copied()
            .collect::<datafusion::arrow::array::Int64Array>()
    };
    (Text, $values:expr) => {
        datafusion::arrow::array::StringArray::from_iter_values($values)
    };
    (OptText, $values:expr) => {
        $values
            .map(|text| text.as_deref())
            .collect::<datafusion::arrow::array::StringArray>()
    };
    (Time, $values:expr) => {
        datafusion::arrow::array::TimestampNanosecondArray::from_iter_values($values.copied())
            .with_timezone($crate::definition::UTC)
    };
    (OptTime, $values:expr) => {
        $values
            .copied()
            .collect::<datafusion::arrow::array::TimestampNanosecondArray>()
            .with_timezone($crate::definition::UTC)
    };
    (Float, $values:expr) => {
        datafusion::arrow::array::Float64Array::from_iter_values($values.copied())
    };
    (OptFloat, $values:expr) => {
        $values
            .copied()
            .collect::<datafusion::arrow::array::Float64Array>()
    };
    (Flag, $values:expr) => {
        datafusion::arrow::array::BooleanArray::from($values.copied().collect::<Vec<bool>>())
    };
    (OptFlag, $values:expr) => {
        $values
            .copied()
            .collect::<datafusion::arrow::array::BooleanArray>()
    };
}

/// One column of a batch: from the rows (`row`) or from their origin (`given`).
macro_rules! column {
    (row $name:ident $kind:ident, $origin:ident, $rows:ident) => {
        std::sync::Arc::new(array!($kind, $rows.iter().map(|row| &row.$name)))
            as datafusion::arrow::array::ArrayRef
    };
    (given $name:ident $kind:ident, $origin:ident, $rows:ident) => {
        std::sync::Arc::new(array!(
            $kind,
            std::iter::repeat_n(&$origin.$name, $rows.len())
        )) as datafusion::arrow::array::ArrayRef
    };
}

/// Bytes on the heap of one field.
macro_rules! heap {
    (Text, $value:expr) => {
        $value.len()
    };
    (OptText, $value:expr) => {
        $value.as_ref().map_or(0, String::len)
    };
    ($other:ident, $value:expr) => {
        0
    };
}

/// Defines a table of schema `sys`. Two forms:
///
/// `struct Row = "table" { /// doc … row name: Kind, given name: Kind, … }` makes the row struct
/// `Row` with the `row` columns as fields and implements [`SysRow`] for it; the `given` columns
/// come from [`Origin`].
///
/// `const TABLE = "table" { /// doc … name: Kind, … }` makes only the definition, for tables
/// whose rows are recorded in chunks.
macro_rules! sys_table {
    ($(#[doc = $doc:literal])+ const $constant:ident = $table:literal {
        $($(#[doc = $column_doc:literal])+ $name:ident: $kind:ident,)+
    }) => {
        $(#[doc = $doc])+
        pub const $constant: $crate::definition::TableDefinition =
            $crate::definition::TableDefinition {
                name: $table,
                docs: &[$($doc),+],
                columns: &[$($crate::definition::ColumnDefinition {
                    name: stringify!($name),
                    kind: $crate::definition::Kind::$kind,
                    docs: &[$($column_doc),+],
                }),+],
            };
    };
    ($(#[doc = $doc:literal])+ struct $row:ident = $table:literal { $($body:tt)+ }) => {
        sys_table!(@column [$row $table [$($doc)+]] [] [] $($body)+);
    };
    (@column $head:tt [$($fields:tt)*] [$($columns:tt)*]
        $(#[doc = $doc:literal])+ row $name:ident: $kind:ident, $($rest:tt)*) => {
        sys_table!(@column $head
            [$($fields)* {[$($doc)+] $name $kind}]
            [$($columns)* {[$($doc)+] row $name $kind}]
            $($rest)*);
    };
    (@column $head:tt [$($fields:tt)*] [$($columns:tt)*]
        $(#[doc = $doc:literal])+ given $name:ident: $kind:ident, $($rest:tt)*) => {
        sys_table!(@column $head
            [$($fields)*]
            [$($columns)* {[$($doc)+] given $name $kind}]
            $($rest)*);
    };
    (@column [$row:ident $table:literal [$($doc:literal)+]]
        [$({[$($field_doc:literal)+] $field:ident $field_kind:ident})+]
        [$({[$($column_doc:literal)+] $from:ident $name:ident $kind:ident})+]) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $row {
            $($(#[doc = $field_doc])+ pub $field: value!($field_kind),)+
        }

        impl $crate::definition::SysRow for $row {
            const TABLE: $crate::definition::TableDefinition =
                $crate::definition::TableDefinition {
                    name: $table,
                    docs: &[$($doc),+],
                    columns: &[$($crate::definition::ColumnDefinition {
                        name: stringify!($name),
                        kind: $crate::definition::Kind::$kind,
                        docs: &[$($column_doc),+],
                    }),+],
                };

            fn batch(
                origin: &$crate::definition::Origin,
                rows: &[Self],
            ) -> datafusion::arrow::array::RecordBatch {
                // A table may have no column of the origin.
                let _ = origin;
                Self::TABLE.batch(vec![$(column!($from $name $kind, origin, rows)),+])
            }

            fn text_bytes(&self) -> usize {
                0 $(+ heap!($field_kind, self.$field))+
            }
        }
    };
}

pub(crate) use {array, column, heap, sys_table, value};
