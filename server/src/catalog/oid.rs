//! Oids: hashes of names.
//!
//! A table keeps its oid for as long as it keeps its name, in every connection and after a
//! restart. Two names may share one, which is improbable enough for a list of tables: about one
//! in a million for a thousand of them.

use super::MAIN;

/// Below this are PostgreSQL's own.
const FIRST: u64 = 16_384;
/// Oids that fit into 31 bits, without the last.
const SPAN: u64 = (1 << 30) - FIRST;

/// The oid of a table or view. The last bit is whether its name needs no schema.
pub(crate) fn of_table(schema: &str, table: &str) -> i64 {
    let hash = fnv(schema, table) % SPAN + FIRST / 2;
    ((hash << 1) | u64::from(schema == MAIN)).cast_signed()
}

/// The oid of a schema.
pub(crate) fn of_schema(schema: &str) -> i64 {
    match schema {
        super::PG_CATALOG => 11,
        "public" | MAIN => 2200,
        other => of_table(other, ""),
    }
}

/// Whether the name of a table with this oid needs no schema.
pub(crate) fn is_visible(oid: i64) -> bool {
    oid & 1 == 1
}

/// FNV-1a, 64 bits.
fn fnv(schema: &str, table: &str) -> u64 {
    let bytes = schema.bytes().chain([0]).chain(table.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oids_are_positive_31_bit_numbers_that_know_their_schema() {
        for table in 0..1000 {
            let oid = of_table(MAIN, &table.to_string());
            assert!((16_384..=i64::from(i32::MAX)).contains(&oid), "{oid}");
            assert!(is_visible(oid) && !is_visible(of_table("sys", &table.to_string())));
        }
    }
}
