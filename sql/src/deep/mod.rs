//! Statements that nest deeply, as programs write them.
//!
//! The parser, DataFusion's planner and optimizer, evaluation and even dropping a tree recurse. A
//! statement that nests too deeply would overflow a stack, which ends the process. The limits that
//! `skewer_compat::statement::balance` sets keep each statement within [`STACK`] bytes of stack.
//!
//! * `nesting`: refuses a text whose brackets or operators nest too deeply, before it is parsed
//! * `skewer_compat::statement::dialect`: refuses a text that the parser would read again and again
//! * `skewer_compat::statement::balance`: makes flat trees of long chains of AND, OR and UNION, and
//!   refuses trees that are still too deep

mod nesting;

use self::nesting::too_deep;
use crate::error::SyntaxError;
use crate::source_location::location_of;

/// Bytes of stack that threads need which plan and run statements. Stacks are memory only as far as they
/// were in use.
pub const STACK: usize = 256 << 20;

/// Bytes of stack that a text may take per byte, as `((((` does, and any text.
const STACK_PER_BYTE: usize = 8 << 10;
const STACK_AT_LEAST: usize = 1 << 20;

/// Runs `read`, which parses `sql` and may look at the tree, but does not return it, on a stack that is large
/// enough.
///
/// # Errors
/// If the text nests too deeply to be parsed.
pub fn guarded<T>(sql: &str, read: impl FnOnce() -> T) -> Result<T, SyntaxError> {
    if let Some((what, byte)) = too_deep(sql) {
        return Err(SyntaxError::at_location(
            sql,
            location_of(sql, byte),
            what.to_string(),
        ));
    }
    let needed = STACK_AT_LEAST + sql.len().saturating_mul(STACK_PER_BYTE);
    let needed = needed.min(STACK);
    Ok(stacker::maybe_grow(needed, needed, read))
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn a_mistake_within_many_calls_is_found() {
        for open in [
            "CAST(",
            "TRY_CAST(",
            "CASE WHEN ",
            "EXTRACT(",
            "SUBSTRING(",
            "POSITION(",
            "f(",
            "FLOOR(",
        ] {
            let sql = format!("SELECT {}1 +", open.repeat(60));
            assert!(parse(&sql).is_err(), "{open}");
        }
    }
}
