//! Rewrites of parsed statements, before DataFusion plans them.
//!
//! * [`desugar`]: what PostgreSQL and DuckDB users write → what DataFusion understands
//! * [`dialect`]: the dialect that statements are parsed in, and the precedence of its operators
//! * [`depth`], [`balance`]: limits of nesting, and flat trees for long chains
//! * [`fetch_first`]: FETCH FIRST, with ties, and subqueries in LIMIT
//! * [`table_functions`]: functions in FROM, lateral ones too, and the names of their columns
//! * [`unnest_names`]: names and types of the columns of UNNEST in FROM
//! * [`untyped_lists`]: texts that are compared with lists
//! * [`row_comparison`]: comparisons of rows → comparisons of their columns
//! * [`recursive_cte_tail`]: ORDER BY and LIMIT after the terms of a recursive query
//! * [`cte_shadowing`]: common table expressions that hide one of the same name
//! * [`duplicate_column_names`]: output columns of one name
//! * [`using_join`]: joins with USING, and natural joins → joins with ON
//! * [`describe_in_from`]: DESCRIBE in FROM
//! * `function_calls`, `names`: helpers

pub mod balance;
pub mod cte_shadowing;
pub mod depth;
pub mod describe_in_from;
pub mod desugar;
pub mod dialect;
pub mod duplicate_column_names;
pub mod fetch_first;
pub mod function_calls;
pub mod names;
pub mod recursive_cte_tail;
pub mod row_comparison;
pub mod table_functions;
#[cfg(test)]
mod testing;
pub mod unnest_names;
pub mod untyped_lists;
pub mod using_join;
