//! Sums and averages that are right or errors.
//!
//! DataFusion 55.2 adds up whole numbers and decimals modulo their range (apache/datafusion issue 17539), and cuts the
//! averages of decimals. Here a sum has a carry beside it, which says how often it has left the range. What is out
//! of range in between, as in a part of the rows, does not count; only what a sum is in the end.
//!
//! * [`wide`]: sums with carries
//! * [`sum`]: the aggregate function `sum`
//! * [`average`]: the aggregate function `avg`
//! * [`extremes`]: the aggregate functions `max` and `min`
//! * `accumulators`: of all rows, or of those in a frame
//! * `frames`: of floating-point numbers in a frame, and of intervals
//! * `groups`: of groups
//! * `one_nan`: of floating-point numbers

mod accumulators;
pub mod average;
pub mod extremes;
mod frames;
mod groups;
mod one_nan;
pub mod sum;
pub mod wide;
