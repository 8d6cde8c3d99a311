//! Statements that nest deeply.

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// What stands before, between and behind the repeated part, and that part.
type Shape = (&'static str, &'static str, &'static str, &'static str);

/// Chains: `SELECT a`, ` + 1` again and again, ` FROM t`.
const CHAINS: [Shape; 16] = [
    ("SELECT a", " + 1", "", " FROM t"),
    ("SELECT s", " || s", "", " FROM t"),
    ("SELECT count(*) FROM t WHERE a = 1", " OR a = 2", "", ""),
    ("SELECT count(*) FROM t WHERE a <> 1", " AND a <> 2", "", ""),
    (
        "SELECT count(*) FROM t WHERE a = 1",
        " OR a = 2 AND i = 3",
        "",
        "",
    ),
    ("SELECT 1", " UNION ALL SELECT 2", "", ""),
    ("SELECT 1", " UNION SELECT 2", "", ""),
    ("SELECT 1", " UNION SELECT 2 EXCEPT SELECT 3", "", ""),
    ("SELECT a", "::BIGINT", "", " FROM t"),
    ("SELECT a", " IS NULL", "", " FROM t"),
    ("SELECT a IN (0", ", 1", "", ") FROM t"),
    ("SELECT CASE a", " WHEN 1 THEN 2", "", " END FROM t"),
    ("SELECT CAST(NULL AS INT", "[]", "", ")"),
    ("SELECT * FROM t", " JOIN t AS x USING (a)", "", ""),
    ("SELECT [1]", "[1]", "", ""),
    ("WITH q AS (SELECT 1)", ", q AS (SELECT 2)", "", " SELECT 1"),
];

/// Brackets: `SELECT `, `abs(` again and again, `a`, as many `)`, and ` FROM t`.
const NESTED: [Shape; 14] = [
    ("SELECT ", "(", ")", "a"),
    ("SELECT ", "abs(", ")", "a"),
    ("SELECT ", "- ", "", "a"),
    ("SELECT ", "NOT ", "", "b"),
    ("SELECT ", "[", "]", "1"),
    ("SELECT ", "CASE WHEN b THEN 1 ELSE ", " END", "a"),
    ("SELECT ", "CAST(", " AS BIGINT)", "a"),
    ("SELECT ", "coalesce(a, ", ")", "1"),
    ("SELECT ", "(SELECT ", ")", "1"),
    ("SELECT * FROM ", "(SELECT * FROM ", ") AS q", "t"),
    ("SELECT * FROM ", "(", ")", "t"),
    ("SELECT CAST(NULL AS ", "ARRAY<", ">", "INT"),
    ("", "EXPLAIN ", "", "SELECT 1"),
    ("SELECT ", "POSITION('a' IN ", ")", "s"),
];

/// How often parts are repeated.
const TIMES: [usize; 6] = [2, 30, 200, 1_000, 5_000, 20_000];

pub(crate) fn statement(random: &mut ChaCha8Rng) -> String {
    let times = *TIMES.choose(random).unwrap();
    let sql = match random.random_bool(0.5) {
        true => {
            let (before, part, _, behind) = CHAINS.choose(random).unwrap();
            format!("{before}{}{behind}", part.repeat(times))
        }
        false => {
            let (before, open, close, inner) = NESTED.choose(random).unwrap();
            let behind = match inner.len() == 1 && inner.chars().all(char::is_alphabetic) {
                true if !before.contains("FROM") => " FROM t",
                _ => "",
            };
            // A mistake within, or brackets that nobody closes, have an end, too.
            let close = match random.random_range(0..8) {
                0 => String::new(),
                1 => format!(" +{}", close.repeat(times)),
                _ => close.repeat(times),
            };
            format!("{before}{}{inner}{close}{behind}", open.repeat(times))
        }
    };
    match random.random_range(0..8) {
        0 => format!("EXPLAIN {sql}"),
        1 => format!("CREATE OR REPLACE VIEW deep AS {sql}"),
        2 => format!("EXPLAIN PROFILE {sql}"),
        _ => sql,
    }
}
