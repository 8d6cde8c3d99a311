//! Functions of the program that a database is part of: for all sessions of the database
//! ([`DatabaseBuilder::functions`](crate::DatabaseBuilder::functions)) and for the workers of its cluster
//! ([`WorkerOptions::functions`](crate::WorkerOptions::functions)).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
//! use datafusion::arrow::array::AsArray;
//! use datafusion::arrow::datatypes::{DataType, Int64Type};
//! use datafusion::common::ScalarValue;
//! use datafusion::logical_expr::Volatility;
//! use skewer::{Database, Functions};
//!
//! let functions = Functions::new().with_row_udf(
//!     "words",
//!     vec![DataType::Utf8],
//!     DataType::Int64,
//!     Volatility::Immutable,
//!     |row| {
//!         let words = row[0].try_as_str().flatten().map(|text| text.split(' ').count() as i64);
//!         Ok(ScalarValue::Int64(words))
//!     },
//! );
//! let session = Database::builder().functions(functions).build()?.session();
//! let batches = session.sql("SELECT words('of one row')").await?.collect().await?;
//! assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), 3);
//! # Ok(()) }
//! ```

pub use skewer_node::Functions;
