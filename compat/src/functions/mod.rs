//! Functions in place of DataFusion's, and functions that repaired plans call.
//!
//! * [`arithmetic`], [`totals`]: operators, sums and averages that fail instead of wrapping around
//! * [`conversion`]: casts of numbers that lose digits
//! * [`one_nan`]: one bit pattern for NaN
//! * [`guarded`]: functions with a bound on the size of their result
//! * [`zones`]: instants, and the local time of a time zone
//! * [`shift`]: `lead` and `lag`
//! * [`octet_length`]: the length of text and of bytes
//! * [`quantified`]: comparisons with any or all elements of a list
//! * [`read_array`]: PostgreSQL's array literals
//! * [`patterns`]: patterns with an escape character, and patterns of SIMILAR TO
//! * [`series`]: `generate_series` and `range` in FROM
//! * [`single_value`], [`scalar_or_error`]: the value of a scalar subquery that is planned as a join
//! * [`group_constant`]: the value that all rows of a group share
//! * [`row_numbers`]: numbers that tell the rows of a query apart

pub mod arithmetic;
pub mod conversion;
pub mod group_constant;
pub mod guarded;
pub mod octet_length;
pub mod one_nan;
pub mod patterns;
pub mod quantified;
pub mod read_array;
pub mod row_numbers;
pub mod scalar_or_error;
pub mod series;
pub mod shift;
pub mod single_value;
pub mod totals;
pub mod zones;
