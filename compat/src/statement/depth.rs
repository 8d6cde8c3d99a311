//! How deep statements may nest.

/// How many expressions, queries and tables may be within each other, counting each operator of a chain.
pub const DEEPEST: usize = 3_500;

/// How many calls of functions, NOT and signs may be within each other: DataFusion's planner asks each for its
/// type and name, and each asks what is in it, so planning takes the cube of that.
pub const DEEPEST_CALLS: usize = 500;

/// How many subqueries may be within the expressions of each other: DataFusion 55.2 checks each as often as the
/// one around it, twice. Those in FROM are not meant.
pub const DEEPEST_SUBQUERIES: usize = 16;
