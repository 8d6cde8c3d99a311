//! Functions of the program that a database is part of.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ScalarUDF, Volatility};
use skewer_exec::row_function::RowFunction;

/// Scalar functions that a program brings along, for all sessions of a database and for the workers of its
/// cluster ([`WorkerOptions::functions`](crate::WorkerOptions::functions)).
///
/// ```
/// use datafusion::arrow::datatypes::DataType;
/// use datafusion::common::ScalarValue;
/// use datafusion::logical_expr::Volatility;
/// use skewer_node::Functions;
///
/// let functions = Functions::new().with_row_udf(
///     "words",
///     vec![DataType::Utf8],
///     DataType::Int64,
///     Volatility::Immutable,
///     |row| {
///         let words = row[0].try_as_str().flatten().map(|text| text.split(' ').count() as i64);
///         Ok(ScalarValue::Int64(words))
///     },
/// );
/// assert_eq!(functions.names(), ["words"]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Functions(Vec<Arc<ScalarUDF>>);

impl Functions {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// These and `function`. One that has the name of an earlier one, or of one of SQL's own,
    /// takes its place.
    pub fn with_udf(mut self, function: ScalarUDF) -> Self {
        self.0.push(Arc::new(function));
        self
    }

    /// These and a function as a closure over one row's arguments. The profiler can time such a
    /// function row by row.
    ///
    /// `volatility` says whether equal arguments give equal results, always
    /// ([`Volatility::Immutable`]) or within a statement ([`Volatility::Stable`]): only then may a
    /// call be evaluated ahead or again.
    pub fn with_row_udf(
        self,
        name: &str,
        arguments: Vec<DataType>,
        result: DataType,
        volatility: Volatility,
        closure: impl Fn(&[ScalarValue]) -> datafusion::common::Result<ScalarValue>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let function = RowFunction::new(name, arguments, result, volatility, Arc::new(closure));
        self.with_udf(ScalarUDF::from(function))
    }

    /// What they are called in SQL.
    pub fn names(&self) -> Vec<String> {
        self.iter().map(|udf| udf.name().to_owned()).collect()
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ScalarUDF>> {
        self.0.iter()
    }
}
