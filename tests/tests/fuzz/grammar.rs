//! Statements that call all functions with extreme arguments.

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// Columns of the table `t`.
const COLUMNS: [&str; 9] = ["a", "i", "f", "d", "s", "b", "dt", "ts", "bin"];

/// What makes the table `t`, in several segments.
pub(crate) const TABLE: [&str; 5] = [
    "CREATE TABLE t (a BIGINT, i INT, f DOUBLE, d DECIMAL(38, 10), s VARCHAR, b BOOLEAN, dt DATE, ts TIMESTAMP, bin BYTEA)",
    "INSERT INTO t VALUES (1, 1, 1.5, 2.5, 'abc', true, '2020-01-01', '2020-01-01 01:02:03', X'00')",
    "INSERT INTO t VALUES (9223372036854775807, 2147483647, 'NaN', 99999999999999999999.5, '', false, '1970-01-01', '1970-01-01', X'ff')",
    "INSERT INTO t SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
    "INSERT INTO t VALUES (-9223372036854775808, -2147483648, '-inf', -1, 'äöü€ x,y,z', true, '0001-01-01', '2262-01-01', X'')",
];

const VALUES: [&str; 84] = [
    "NULL",
    "0",
    "1",
    "-1",
    "2",
    "9223372036854775807",
    "-9223372036854775808",
    "-9223372036854775807",
    "2147483647",
    "-2147483648",
    "4294967296",
    "1e308",
    "-1e308",
    "'NaN'::DOUBLE",
    "'inf'::DOUBLE",
    "''",
    "'a'",
    "'abc'",
    "'äöü'",
    "'%'",
    "'\\'",
    "'('",
    "'(a|b)*'",
    "'[a-z'",
    "'g'",
    "'yyyy-MM-dd'",
    "'%Y-%m-%d'",
    "'day'",
    "'month'",
    "'century'",
    "'nanosecond'",
    "'hex'",
    "'base64'",
    "'sha256'",
    "repeat('a', 1000)",
    "repeat('x', 100000)",
    "true",
    "false",
    "DATE '2020-01-31'",
    "DATE '0001-01-01'",
    "DATE '9999-12-31'",
    "TIMESTAMP '2020-01-01 00:00:00'",
    "TIMESTAMP '1677-09-22 00:00:00'",
    "TIMESTAMP '2262-04-11 00:00:00'",
    "INTERVAL '1 day'",
    "INTERVAL '1000000 years'",
    "INTERVAL '-178956970 years'",
    "INTERVAL '1 nanosecond'",
    "INTERVAL '0 day'",
    "INTERVAL '1 month'",
    "[1, 2, 3]",
    "[NULL]",
    "[[1], [2, 3]]",
    "['a', NULL, 'b']",
    "make_array()",
    "make_array(1.5, 'NaN'::DOUBLE)",
    "[9223372036854775807, -9223372036854775808]",
    "'2020-01-01'",
    "'99999-99-99'",
    "decode('ff', 'hex')",
    "arrow_cast(1, 'UInt8')",
    "arrow_cast(18446744073709551615, 'UInt64')",
    "arrow_cast('a', 'Dictionary(Int32, Utf8)')",
    "arrow_cast('abc', 'LargeUtf8')",
    "arrow_cast('abc', 'Utf8View')",
    "99999999999999999999999999999999999999",
    "0.00000000000000000000000000000000000001",
    "arrow_cast(1.5, 'Float32')",
    "arrow_cast(-128, 'Int8')",
    "struct(1, 'a')",
    "named_struct('a', 1)",
    "map(['a'], [1])",
    "arrow_cast(12345, 'Time64(Nanosecond)')",
    "arrow_cast(86399999999999, 'Time64(Nanosecond)')",
    "arrow_cast(9223372036854775807, 'Timestamp(Nanosecond, None)')",
    "arrow_cast(-9223372036854775808, 'Timestamp(Nanosecond, None)')",
    "arrow_cast(9223372036854775807, 'Timestamp(Second, None)')",
    "arrow_cast(9223372036854775807, 'Timestamp(Microsecond, Some(\"+02:00\"))')",
    "arrow_cast(2147483647, 'Date32')",
    "arrow_cast(-2147483648, 'Date32')",
    "arrow_cast(9223372036854775807, 'Duration(Second)')",
    "'Europe/Berlin'",
    "(SELECT max(a) FROM t)",
    "X'00ff'",
];

const TYPES: [&str; 17] = [
    "INT",
    "BIGINT",
    "DOUBLE",
    "DECIMAL(5, 2)",
    "DECIMAL(38, 38)",
    "VARCHAR",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMPTZ",
    "INTERVAL",
    "BOOLEAN",
    "BYTEA",
    "SMALLINT",
    "TINYINT",
    "REAL",
    "BIGINT[]",
    "TIME",
];

const OPERATORS: [&str; 18] = [
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "<",
    "=",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    "~",
    "LIKE",
    "ILIKE",
    "SIMILAR TO",
    "IS DISTINCT FROM",
];

const PARTS: [&str; 9] = [
    "year",
    "epoch",
    "day",
    "century",
    "dow",
    "nanosecond",
    "week",
    "isodow",
    "quarter",
];

const FRAMES: [&str; 10] = [
    "",
    "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 9223372036854775807 PRECEDING AND 9223372036854775807 FOLLOWING",
    "ROWS 1 PRECEDING",
    "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "RANGE BETWEEN INTERVAL '1 day' PRECEDING AND CURRENT ROW",
    "GROUPS 1 PRECEDING",
    "ROWS BETWEEN 5 FOLLOWING AND 1 FOLLOWING",
    "RANGE BETWEEN 9223372036854775807 PRECEDING AND CURRENT ROW",
    "GROUPS BETWEEN 18446744073709551615 PRECEDING AND CURRENT ROW",
];

/// The functions that there are, by kind.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    pub(crate) scalar: Vec<String>,
    pub(crate) aggregate: Vec<String>,
    pub(crate) window: Vec<String>,
}

/// A statement.
pub(crate) struct Generated {
    pub(crate) sql: String,
    /// Whether each row of its result is made of one row of `t`, in any order.
    pub(crate) is_by_row: bool,
}

/// Generates statements.
pub(crate) struct Grammar<'a> {
    pub(crate) random: ChaCha8Rng,
    pub(crate) functions: &'a Functions,
}

impl Grammar<'_> {
    pub(crate) fn statement(&mut self) -> Generated {
        let plain = |sql| Generated {
            sql,
            is_by_row: false,
        };
        match self.random.random_range(0..100) {
            0..75 => self.of_a_call(),
            75..88 => plain(self.aggregate()),
            _ => plain(self.window()),
        }
    }

    fn one<'b>(&mut self, of: &[&'b str]) -> &'b str {
        of.choose(&mut self.random).copied().unwrap_or_default()
    }

    fn of_a_call(&mut self) -> Generated {
        let call = self.call(0);
        let form = self.random.random_range(0..8);
        let sql = match form {
            0..3 => format!("SELECT {call} FROM t"),
            3 => format!("SELECT {call} FROM t WHERE false"),
            4 => format!("SELECT {call}"),
            5 => format!("SELECT count(*) FROM t WHERE {call} IS NOT NULL"),
            6 => format!("SELECT {call}, count(*) FROM t GROUP BY 1"),
            _ => format!("SELECT 1 FROM t ORDER BY {call}"),
        };
        Generated {
            sql,
            is_by_row: form < 3,
        }
    }

    fn aggregate(&mut self) -> String {
        let name = self.functions.aggregate.choose(&mut self.random).unwrap();
        let count = [1, 1, 1, 2, 2, 3].choose(&mut self.random).unwrap();
        let arguments = self.arguments(*count, 1);
        let distinct = self.one(&["", "DISTINCT ", ""]);
        let order = self.one(&["", " ORDER BY a"]);
        let rest = self.one(&["", "WHERE false", "GROUP BY b"]);
        format!("SELECT {name}({distinct}{arguments}{order}) FROM t {rest}")
    }

    fn window(&mut self) -> String {
        let (windows, aggregates) = (&self.functions.window, &self.functions.aggregate);
        let at = self
            .random
            .random_range(0..windows.len() + aggregates.len());
        let name = windows.iter().chain(aggregates).nth(at).unwrap();
        let count = [0, 1, 1, 2, 3].choose(&mut self.random).unwrap();
        let arguments = self.arguments(*count, 1);
        let partition = self.one(&["", "PARTITION BY b "]);
        let order = self.one(&[
            "",
            "ORDER BY a ",
            "ORDER BY f ",
            "ORDER BY s ",
            "ORDER BY dt ",
            "ORDER BY ts DESC ",
        ]);
        let frame = self.one(&FRAMES);
        format!("SELECT {name}({arguments}) OVER ({partition}{order}{frame}) FROM t")
    }

    fn arguments(&mut self, count: usize, depth: usize) -> String {
        let arguments: Vec<_> = (0..count).map(|_| self.argument(depth)).collect();
        arguments.join(", ")
    }

    fn argument(&mut self, depth: usize) -> String {
        match self.random.random_range(0..100) {
            0..35 => self.one(&COLUMNS).to_owned(),
            35..90 => self.one(&VALUES).to_owned(),
            _ if depth > 1 => self.one(&VALUES).to_owned(),
            _ => self.call(depth + 1),
        }
    }

    fn call(&mut self, depth: usize) -> String {
        let inner = depth + 1;
        let form = self.random.random_range(0..100);
        if form >= 18 {
            let name = self.functions.scalar.choose(&mut self.random).unwrap();
            let count = [0, 1, 1, 1, 2, 2, 2, 3, 3, 4].choose(&mut self.random);
            let arguments = self.arguments(*count.unwrap(), depth);
            return format!("{name}({arguments})");
        }
        let (a, b) = (self.argument(inner), self.argument(inner));
        match form {
            0..6 => format!("CAST({a} AS {})", self.one(&TYPES)),
            6..11 => format!("({a} {} {b})", self.one(&OPERATORS)),
            11..13 => format!("extract({} FROM {a})", self.one(&PARTS)),
            13 => format!("({a})[{b}]"),
            14 => format!("({a})[{b}:{}]", self.argument(inner)),
            15 => format!(
                "CASE {a} WHEN {b} THEN {a} ELSE {} END",
                self.argument(inner)
            ),
            16 => format!("({a} BETWEEN {b} AND {})", self.argument(inner)),
            _ => format!("{a} IN ({b}, {})", self.argument(inner)),
        }
    }
}
