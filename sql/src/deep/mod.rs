//! Statements that nest deeply, as programs write them.
//!
//! Whoever walks over a tree recurses: the parser, DataFusion's planner and optimizer, expressions that are
//! evaluated, even a tree that is dropped. A statement that nests too deeply would overflow a stack, which ends
//! the process. So none is deeper than [`DEEPEST`], [`DEEPEST_CALLS`] and [`DEEPEST_SUBQUERIES`], for which [`STACK`] bytes of stack suffice:
//!
//! * [`nesting`]: what brackets and chains of operators would nest too deeply is refused before it is parsed
//! * [`dialect`]: a text that the parser would read again and again is refused
//! * [`balance`]: long chains of AND, OR and UNION become flat trees, and what is too deep all the same is
//!   refused

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
