//! The registry of gaps: everything that DataFusion, sqlparser or datafusion-distributed lack or get wrong.
//!
//! Each gap has the module that closes it, and the smallest query that shows it. The canary test
//! (`compat/tests/it/canaries.rs`) runs that query on plain DataFusion, and fails as soon as DataFusion is right: then
//! the module can go. Another test (`tests/tests/gaps.rs`) runs it on Skewer, which must be right.
//!
//! # The order of rewrites
//!
//! 1. [`statement::dialect`](crate::statement::dialect), [`describe_in_from`](crate::statement::describe_in_from):
//!    while the text is parsed
//! 2. [`desugar`](crate::statement::desugar): [`balance`](crate::statement::balance), then one visit for small
//!    forms, [`fetch_first`](crate::statement::fetch_first) and
//!    [`recursive_cte_tail`](crate::statement::recursive_cte_tail); then
//!    [`table_functions`](crate::statement::table_functions),
//!    [`row_comparison`](crate::statement::row_comparison), [`cte_shadowing`](crate::statement::cte_shadowing)
//! 3. [`using_join`](crate::statement::using_join), once the catalog has resolved tables;
//!    [`duplicate_column_names`](crate::statement::duplicate_column_names) if planning finds such names
//! 4. [`unnest_names`](crate::statement::unnest_names), [`untyped_lists`](crate::statement::untyped_lists),
//!    [`rules::ArithmeticPlanner`](crate::rules::ArithmeticPlanner): while DataFusion plans
//! 5. [`bag_set_operations`](crate::logical::bag_set_operations), then
//!    [`with_movable_subqueries`](crate::logical::with_movable_subqueries): on the plan
//! 6. [`explicit_casts`](crate::logical::explicit_casts),
//!    [`rules::CheckArithmetic`](crate::rules::CheckArithmetic): analyzer rules
//! 7. [`decorrelate`](crate::logical::decorrelate): around the optimizer, if DataFusion leaves a dependent join
//! 8. [`rules::logical_rules`](crate::rules::logical_rules()): in place of DataFusion's rules
//! 9. [`rules::physical_rules`](crate::rules::physical_rules()): in place of DataFusion's physical rules
//! 10. [`distribution`](crate::distribution): when plans are cut and sent
//! 11. [`operators`](crate::operators): exchanges, joins, filters and first stages of aggregates are replaced where a
//!     plan runs, by [`cooperation`](crate::operators::cooperation), which also makes operators yield

/// One thing that a dependency lacks or gets wrong.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    /// A short name.
    pub name: &'static str,
    /// The upstream issue or pull request; nothing if none is known.
    pub upstream: Option<&'static str>,
    /// The module of this crate that closes the gap.
    pub module: &'static str,
    /// The script of `tests/slt` that holds the right results.
    pub golden: &'static str,
    /// The version in which the gap was first seen.
    pub since: &'static str,
    /// How to see whether the gap is still there.
    pub canary: Canary,
}

/// How a test sees that a gap is still there.
#[derive(Debug, Clone, Copy)]
pub enum Canary {
    /// A query with its right rows: columns joined by `|`, `NULL` for NULL.
    Rows(&'static str, &'static [&'static str]),
    /// A query that must fail, with a part of the right message.
    Fails(&'static str, &'static str),
    /// No query shows it, for this reason.
    None(&'static str),
}

use Canary::{Fails, Rows};

const DATAFUSION: &str = "datafusion 55.2.0";
const SQLPARSER: &str = "sqlparser 0.62.0";
const DISTRIBUTED: &str = "datafusion-distributed 4.0.0";

const fn gap(
    name: &'static str,
    module: &'static str,
    golden: &'static str,
    since: &'static str,
    canary: Canary,
) -> Gap {
    Gap {
        name,
        upstream: None,
        module,
        golden,
        since,
        canary,
    }
}

impl Gap {
    const fn upstream(mut self, url: &'static str) -> Self {
        self.upstream = Some(url);
        self
    }
}

/// All gaps, in the order in which their modules run.
pub const GAPS: &[Gap] = &[
    // While the text is parsed.
    gap(
        "repeated parsing of nested calls",
        "statement::dialect",
        "errors.slt",
        SQLPARSER,
        Canary::None("plain sqlparser takes exponential time"),
    ),
    gap(
        "precedence of ||",
        "statement::dialect",
        "select.slt",
        SQLPARSER,
        Rows("SELECT 'a' || 7 % 4", &["a3"]),
    ),
    gap(
        "precedence of IS DISTINCT FROM",
        "statement::dialect",
        "select.slt",
        SQLPARSER,
        Rows("SELECT true IS DISTINCT FROM true AND false", &["false"]),
    ),
    gap(
        "DESCRIBE in FROM",
        "statement::describe_in_from",
        "describe_in_from.slt",
        SQLPARSER,
        Rows("SELECT column_name FROM (DESCRIBE SELECT 1 AS a)", &["a"]),
    ),
    // On the parsed statement.
    gap(
        "stack overflow of deep trees",
        "statement::balance",
        "deep_plans.slt",
        DATAFUSION,
        Canary::None("plain DataFusion ends the process"),
    ),
    gap(
        "FROM without SELECT",
        "statement::desugar",
        "select.slt",
        DATAFUSION,
        Rows("FROM (VALUES (7)) AS t(x)", &["7"]),
    ),
    gap(
        "IN (VALUES …)",
        "statement::desugar",
        "select.slt",
        DATAFUSION,
        Rows("SELECT 1 IN (VALUES (1), (2))", &["true"]),
    ),
    gap(
        "ORDER BY ALL",
        "statement::desugar",
        "select.slt",
        DATAFUSION,
        Rows("SELECT x FROM (VALUES (2), (1)) AS t(x) ORDER BY ALL", &["1", "2"]),
    ),
    gap(
        "arrays of outer columns",
        "statement::desugar",
        "lists_in_subqueries.slt",
        DATAFUSION,
        Rows(
            "WITH t(a) AS (VALUES (1)) SELECT (SELECT array_length([t.a, 2])) FROM t",
            &["2"],
        ),
    ),
    gap(
        "AT TIME ZONE",
        "functions::zones",
        "time_zones.slt",
        DATAFUSION,
        Rows(
            "SELECT (TIMESTAMP '2024-03-10 02:30:00' AT TIME ZONE 'America/New_York') AT TIME ZONE 'UTC' \
             = TIMESTAMP '2024-03-10 07:30:00'",
            &["true"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/13212"),
    gap(
        "NULL in ANY",
        "functions::quantified",
        "null_conditions.slt",
        DATAFUSION,
        Rows("SELECT 2 = ANY(make_array(1, NULL))", &["NULL"]),
    ),
    gap(
        "LIKE with ESCAPE",
        "functions::patterns",
        "patterns.slt",
        DATAFUSION,
        Rows("SELECT 'a%' LIKE 'a/%' ESCAPE '/'", &["true"]),
    ),
    gap(
        "SIMILAR TO",
        "functions::patterns",
        "patterns.slt",
        DATAFUSION,
        Rows("SELECT 'abc' SIMILAR TO 'a%'", &["true"]),
    ),
    gap(
        "FETCH FIRST",
        "statement::fetch_first",
        "fetch_first.slt",
        DATAFUSION,
        Rows(
            "SELECT x FROM (VALUES (1), (1), (2)) AS t(x) ORDER BY x FETCH FIRST 1 ROW WITH TIES",
            &["1", "1"],
        ),
    ),
    gap(
        "subqueries in LIMIT",
        "statement::fetch_first",
        "fetch_first.slt",
        DATAFUSION,
        Rows("SELECT x FROM (VALUES (1), (2)) AS t(x) ORDER BY x LIMIT (SELECT 1)", &["1"]),
    ),
    gap(
        "ORDER BY and LIMIT of recursive queries",
        "statement::recursive_cte_tail",
        "recursive_queries.slt",
        DATAFUSION,
        Fails(
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 10 ORDER BY n LIMIT 3) \
             SELECT count(*) FROM r",
            "is recursive",
        ),
    ),
    gap(
        "WITH ORDINALITY",
        "statement::table_functions",
        "from_functions.slt",
        DATAFUSION,
        Rows(
            "SELECT v, n FROM unnest(make_array(7, 8)) WITH ORDINALITY AS t(v, n) ORDER BY n",
            &["7|1", "8|2"],
        ),
    ),
    gap(
        "lateral table functions",
        "statement::table_functions",
        "from_functions.slt",
        DATAFUSION,
        Rows(
            "WITH t(n) AS (VALUES (2)) SELECT i FROM t, generate_series(1, t.n) AS g(i) ORDER BY i",
            &["1", "2"],
        ),
    ),
    gap(
        "NULL in comparisons of rows",
        "statement::row_comparison",
        "row_values.slt",
        DATAFUSION,
        Rows("SELECT (1, CAST(NULL AS INT)) = (1, 2)", &["NULL"]),
    ),
    gap(
        "rows in subqueries",
        "statement::row_comparison",
        "row_values.slt",
        DATAFUSION,
        Rows("SELECT (1, 2) IN (SELECT 1, 2)", &["true"]),
    ),
    gap(
        "common table expressions that hide others",
        "statement::cte_shadowing",
        "views.slt",
        DATAFUSION,
        Rows(
            "WITH a AS (SELECT 1 AS x) SELECT x FROM (WITH a AS (SELECT 2 AS x) SELECT x FROM a) AS q",
            &["2"],
        ),
    ),
    gap(
        "merged columns of USING",
        "statement::using_join",
        "select.slt",
        DATAFUSION,
        Rows(
            "WITH a AS (SELECT 1 AS k), b AS (SELECT 2 AS k) SELECT k FROM a FULL JOIN b USING (k) ORDER BY k",
            &["1", "2"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/pull/22998"),
    gap(
        "output columns of one name",
        "statement::duplicate_column_names",
        "columns_of_one_name.slt",
        DATAFUSION,
        Rows("SELECT 1 AS a, 2 AS a", &["1|2"]),
    ),
    gap(
        "names of unnested columns",
        "statement::unnest_names",
        "from_functions.slt",
        DATAFUSION,
        Rows("SELECT u FROM unnest(make_array(7)) AS u", &["7"]),
    ),
    gap(
        "texts beside lists",
        "statement::untyped_lists",
        "array_literals.slt",
        DATAFUSION,
        Rows("SELECT make_array(1, 2) = '{1,2}'", &["true"]),
    ),
    // On the logical plan.
    gap(
        "INTERSECT ALL and EXCEPT ALL",
        "logical::bag_set_operations",
        "set_operations.slt",
        DATAFUSION,
        Rows(
            "SELECT count(*) FROM (SELECT x FROM (VALUES (1), (1)) AS t(x) INTERSECT ALL SELECT 1) AS q",
            &["1"],
        ),
    ),
    gap(
        "subqueries in VALUES",
        "logical::values_subqueries",
        "dependent_joins.slt",
        DATAFUSION,
        Rows("SELECT x FROM (VALUES ((SELECT 1)), (2)) AS t(x) ORDER BY x", &["1", "2"]),
    ),
    gap(
        "subqueries in ORDER BY",
        "logical::order_by_subqueries",
        "order_by_subqueries.slt",
        DATAFUSION,
        Rows(
            "WITH t(a) AS (VALUES (1), (2)), u(b) AS (VALUES (2)) \
             SELECT a FROM t ORDER BY EXISTS (SELECT 1 FROM u WHERE u.b = t.a) DESC",
            &["2", "1"],
        ),
    ),
    gap(
        "subqueries in ON of outer joins",
        "logical::join_conditions",
        "join_conditions.slt",
        DATAFUSION,
        Rows(
            "WITH t(a) AS (VALUES (1), (2)), u(b) AS (VALUES (1), (2)), v(c) AS (VALUES (1)) \
             SELECT a, b FROM t LEFT JOIN u ON t.a = u.b AND t.a IN (SELECT c FROM v) ORDER BY a",
            &["1|1", "2|NULL"],
        ),
    ),
    gap(
        "scalar subqueries with several rows",
        "functions::single_value",
        "dependent_joins.slt",
        DATAFUSION,
        Fails(
            "WITH t(a) AS (VALUES (1)), u(b) AS (VALUES (1), (1)) \
             SELECT (SELECT b FROM u WHERE u.b = t.a) FROM t",
            "more than one row",
        ),
    ),
    gap(
        "general decorrelation",
        "logical::decorrelate",
        "dependent_joins.slt",
        DATAFUSION,
        Rows(
            "WITH t AS (SELECT 1 AS a UNION ALL SELECT 2), u AS (SELECT 1 AS b UNION ALL SELECT 2 UNION ALL SELECT 3) \
             SELECT a, (SELECT count(*) FROM (SELECT b FROM u WHERE u.b > t.a UNION SELECT 7) AS q) FROM t ORDER BY a",
            &["1|3", "2|2"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/5492"),
    gap(
        "casts of times to text",
        "logical::explicit_casts",
        "time_zones.slt",
        DATAFUSION,
        Rows(
            "SELECT CAST(TIMESTAMP '2024-07-01 12:00:00' AS VARCHAR)",
            &["2024-07-01 12:00:00"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/25095"),
    gap(
        "array literals",
        "functions::read_array",
        "array_literals.slt",
        DATAFUSION,
        Rows("SELECT array_length(CAST('{1,2}' AS INT[]))", &["2"]),
    ),
    // Rules of the optimizer.
    gap(
        "window functions without arguments",
        "rules::arguments",
        "errors.slt",
        DATAFUSION,
        Fails(
            "SELECT first_value() OVER () FROM (VALUES (1)) AS t(x)",
            "needs an argument",
        ),
    ),
    gap(
        "overflow of whole numbers",
        "functions::arithmetic",
        "overflow.slt",
        DATAFUSION,
        Fails(
            "WITH t(x) AS (VALUES (9223372036854775807)) SELECT x + 1 FROM t",
            "out of range",
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/17539"),
    gap(
        "digits of quotients",
        "functions::arithmetic",
        "decimal_division.slt",
        DATAFUSION,
        Rows(
            "WITH t(x, y) AS (VALUES (CAST(2 AS DECIMAL(2, 1)), CAST(3 AS DECIMAL(2, 1)))) \
             SELECT round(x / y, 6) = 0.666667 FROM t",
            &["true"],
        ),
    ),
    gap(
        "x ^ x of NULL",
        "functions::arithmetic",
        "null_conditions.slt",
        DATAFUSION,
        Rows("WITH t(i) AS (VALUES (1), (CAST(NULL AS INT))) SELECT i ^ i FROM t ORDER BY i", &["0", "NULL"]),
    )
    .upstream("https://github.com/apache/datafusion/issues/24246"),
    gap(
        "contradicting lists and NULL",
        "rules::in_lists",
        "null_conditions.slt",
        DATAFUSION,
        Rows(
            "WITH t(i) AS (VALUES (1), (CAST(NULL AS INT))) SELECT i IN (3) AND i IN (4) FROM t ORDER BY i",
            &["false", "NULL"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/24246"),
    gap(
        "NULL in IN (subquery)",
        "rules::subqueries",
        "null_conditions.slt",
        DATAFUSION,
        Rows(
            "WITH t(a) AS (VALUES (1)), u(b) AS (VALUES (2), (CAST(NULL AS INT))) SELECT a IN (SELECT b FROM u) FROM t",
            &["NULL"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/25336"),
    gap(
        "the row of an aggregate in EXISTS",
        "rules::subqueries",
        "dependent_joins.slt",
        DATAFUSION,
        Rows(
            "WITH t(a) AS (VALUES (1), (2)), u(b) AS (VALUES (1)) \
             SELECT count(*) FROM t WHERE EXISTS (SELECT max(b) FROM u WHERE u.b = t.a)",
            &["2"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/24960"),
    gap(
        "IN and EXISTS as values",
        "rules::marks",
        "dependent_joins.slt",
        DATAFUSION,
        Rows(
            "WITH t(a) AS (VALUES (1), (2)), u(b) AS (VALUES (1)) \
             SELECT sum(CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.b = t.a) THEN 1 ELSE 0 END) FROM t",
            &["1"],
        ),
    ),
    gap(
        "conditions pulled out of LIMIT",
        "rules::pull_up",
        "dependent_joins.slt",
        DATAFUSION,
        Rows(
            "WITH t(a) AS (VALUES (1), (2)), u(b, c) AS (VALUES (1, 10), (2, 20)) \
             SELECT a, (SELECT max(c) FROM (SELECT c FROM u WHERE u.b = t.a LIMIT 1) AS q) FROM t ORDER BY a",
            &["1|10", "2|20"],
        ),
    ),
    gap(
        "equal NULLs in joins",
        "rules::null_equality",
        "dependent_joins.slt",
        DATAFUSION,
        Rows(
            "WITH a AS (SELECT 1 AS id, CAST(2 AS BIGINT) AS k UNION ALL SELECT 2, NULL), \
             b AS (SELECT 2 AS i, CAST(NULL AS BIGINT) AS kk UNION ALL SELECT 1, 2) \
             SELECT id FROM a JOIN b ON a.id IS NOT DISTINCT FROM b.i WHERE a.k = b.kk",
            &["1"],
        ),
    ),
    gap(
        "keys of unnested rows",
        "rules::dependencies",
        "from_functions.slt",
        DATAFUSION,
        Rows(
            "SELECT DISTINCT k FROM (SELECT k, unnest(make_array(1, 2)) AS x FROM \
             (SELECT DISTINCT k FROM (VALUES (1), (2)) AS t(k)) AS d) AS u ORDER BY k",
            &["1", "2"],
        ),
    ),
    gap(
        "groups of unnested rows",
        "rules::dependencies",
        "from_functions.slt",
        DATAFUSION,
        Canary::None("plain DataFusion leaves out again what it groups by, for the same reason"),
    ),
    gap(
        "sorts below OFFSET",
        "rules::offsets",
        "select.slt",
        DATAFUSION,
        Rows(
            "SELECT x FROM (SELECT x FROM (VALUES (3), (2), (1)) AS t(x) ORDER BY x LIMIT 2 OFFSET 1) AS q ORDER BY x",
            &["2", "3"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/pull/24958"),
    gap(
        "first rows below an aggregate",
        "rules::offsets",
        "distinct_limits.slt",
        DATAFUSION,
        Rows(
            "WITH few (x) AS (SELECT x FROM (VALUES (30), (10), (20)) AS v (x) ORDER BY 1 LIMIT 3), \
             thrice AS (SELECT * FROM few UNION ALL SELECT * FROM few UNION ALL SELECT * FROM few) \
             SELECT DISTINCT x FROM thrice ORDER BY x LIMIT 3",
            &["10", "20", "30"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/24927"),
    gap(
        "limits of aggregates in an order",
        "rules::group_limits",
        "distinct_limits.slt",
        DATAFUSION,
        Rows(
            "SELECT DISTINCT city, count(*) OVER (PARTITION BY city) AS n \
             FROM (VALUES ('Oslo', 'a'), ('Oslo', 'b'), ('Oslo', 'b')) AS visit(city, who) LIMIT 30",
            &["Oslo|3"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/25350"),
    gap(
        "limits of aggregates below windows",
        "rules::shortcuts",
        "aggregate_shortcuts.slt",
        DATAFUSION,
        Rows(
            "SELECT a, count(*) OVER () AS n FROM (VALUES (1), (2), (3)) AS t(a) GROUP BY a ORDER BY a LIMIT 1",
            &["1|3"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/25066"),
    gap(
        "statistics of joined columns",
        "rules::shortcuts",
        "aggregate_shortcuts.slt",
        DATAFUSION,
        Rows(
            "SELECT sum(q.x) FROM (SELECT a, 7 AS x FROM (VALUES (1), (2)) AS t(a)) AS q \
             JOIN (VALUES (1), (1), (1)) AS u(b) ON q.a = u.b",
            &["21"],
        ),
    ),
    gap(
        "filters by a name that two columns have",
        "rules::pushdown",
        "dynamic_filters.slt",
        DATAFUSION,
        Canary::None("only scans of Parquet files take such filters"),
    )
    .upstream("https://github.com/apache/datafusion/issues/21246"),
    gap(
        "dynamic filters of several aggregates",
        "rules::pushdown",
        "dynamic_filters.slt",
        DATAFUSION,
        Canary::None("only scans of Parquet files take such filters"),
    )
    .upstream("https://github.com/apache/datafusion/issues/18643"),
    gap(
        "conditions of sort-merge joins",
        "rules::join_filters",
        "join_conditions.slt",
        DATAFUSION,
        Canary::None("it takes a setting, which each engine spells otherwise"),
    )
    .upstream("https://github.com/apache/datafusion/issues/24414"),
    gap(
        "pruning of Parquet files with NaN",
        "rules::nan",
        "nan.slt",
        DATAFUSION,
        Canary::None("it takes a Parquet file"),
    ),
    gap(
        "groups in the order of a constant",
        "rules::constant_keys",
        "grouping.slt",
        DATAFUSION,
        Canary::None("it is slow, not wrong"),
    ),
    gap(
        "orders of sort keys without a range",
        "rules::sort_keys",
        "select.slt",
        DATAFUSION,
        Rows(
            "SELECT x, row_number() OVER (ORDER BY abs(x) > 1, x) AS n FROM (VALUES (2), (1)) AS t(x) ORDER BY n",
            &["1|1", "2|2"],
        ),
    ),
    gap(
        "order and constants of grouping sets and joins",
        "operators::conservative_properties",
        "select.slt",
        DATAFUSION,
        Canary::None("it takes inputs that are sorted; compat/tests/golden/rules/properties.golden shows a plan"),
    ),
    gap(
        "depth of chains of AND",
        "rules::chains",
        "deep_plans.slt",
        DATAFUSION,
        Canary::None("plain DataFusion takes quadratic time"),
    ),
    // Functions.
    gap(
        "sums that overflow",
        "functions::totals",
        "overflow.slt",
        DATAFUSION,
        Fails(
            "SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) AS t(x)",
            "out of range",
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/17539"),
    gap(
        "sums of frames after an infinity",
        "functions::totals",
        "nan.slt",
        DATAFUSION,
        Rows(
            "SELECT sum(x) OVER (ORDER BY i ROWS CURRENT ROW) FROM \
             (VALUES (1, CAST('Infinity' AS DOUBLE)), (2, CAST(1 AS DOUBLE))) AS t(i, x) ORDER BY i DESC LIMIT 1",
            &["1.0"],
        ),
    ),
    gap(
        "extremes of groups of infinities",
        "functions::totals",
        "nan.slt",
        DATAFUSION,
        Rows(
            "SELECT max(x) = CAST('-Infinity' AS DOUBLE) FROM \
             (VALUES (1, CAST('-Infinity' AS DOUBLE))) AS t(g, x) GROUP BY g",
            &["true"],
        ),
    ),
    gap(
        "several NaN",
        "functions::one_nan",
        "nan.slt",
        DATAFUSION,
        Rows(
            "SELECT z / z = CAST('NaN' AS DOUBLE) FROM (VALUES (CAST(0 AS DOUBLE))) AS t(z)",
            &["true"],
        ),
    ),
    gap(
        "casts that lose digits",
        "functions::conversion",
        "decimal_division.slt",
        DATAFUSION,
        Rows(
            "SELECT CAST(x AS DECIMAL(5, 1)) = 1.2 FROM (VALUES (CAST(1.23 AS DECIMAL(5, 2)))) AS t(x)",
            &["true"],
        ),
    ),
    gap(
        "results without a bound on their size",
        "functions::guarded",
        "errors.slt",
        DATAFUSION,
        Canary::None("plain DataFusion ends the process"),
    ),
    gap(
        "octet_length of bytes",
        "functions::octet_length",
        "types.slt",
        DATAFUSION,
        Rows("SELECT octet_length(CAST('abc' AS BYTEA))", &["3"]),
    ),
    gap(
        "lead and lag with IGNORE NULLS",
        "functions::shift",
        "lead_and_lag.slt",
        DATAFUSION,
        Rows(
            "SELECT lead(v) IGNORE NULLS OVER (ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) \
             FROM (VALUES (1, 10), (2, NULL), (3, NULL), (4, 50)) AS t(i, v) ORDER BY i LIMIT 1",
            &["50"],
        ),
    )
    .upstream("https://github.com/apache/datafusion/issues/25471"),
    gap(
        "series of small integers",
        "functions::series",
        "from_functions.slt",
        DATAFUSION,
        Rows(
            "SELECT value FROM generate_series(CAST(1 AS SMALLINT), CAST(2 AS SMALLINT)) ORDER BY value",
            &["1", "2"],
        ),
    ),
    // Operators.
    gap(
        "exchanges that spill and wait for each other",
        "operators::exchange",
        "distinct_limits.slt",
        DATAFUSION,
        Canary::None("plain DataFusion hangs, in some of many runs"),
    )
    .upstream("https://github.com/apache/datafusion/issues/24883"),
    gap(
        "joins larger than memory",
        "operators::spilling_join",
        "join_conditions.slt",
        DATAFUSION,
        Canary::None("it takes a memory limit, which each engine spells otherwise"),
    ),
    gap(
        "parts of a condition on rows that earlier parts leave out",
        "operators::selection",
        "conditions.slt",
        DATAFUSION,
        Rows(
            "SELECT count(*) FROM (VALUES (1), (2), (0), (4)) AS t(b) WHERE b <> 0 AND 12 / b > 4",
            &["2"],
        ),
    ),
    gap(
        "groups found by the bits of their keys, and grouping sets merged from each other",
        "operators::partial_groups",
        "grouping.slt",
        DATAFUSION,
        Canary::None("it is about time, not about a result"),
    ),
    gap(
        "memory pools whose limit changes",
        "operators::memory_pool",
        "settings.slt",
        DATAFUSION,
        Canary::None("it is a missing interface, not a result"),
    ),
    gap(
        "operators that yield by batches, not by the clock",
        "operators::cooperation",
        "settings.slt",
        DATAFUSION,
        Canary::None("it is about time, not about a result"),
    ),
    gap(
        "queries that take all threads",
        "operators::scheduling",
        "settings.slt",
        DATAFUSION,
        Canary::None("it is about time, not about a result"),
    ),
    // Distribution.
    gap(
        "depth of encoded plans",
        "distribution::deep_plan_codec",
        "deep_plans.slt",
        DISTRIBUTED,
        Canary::None("it takes workers"),
    ),
    gap(
        "order of encoded windows",
        "distribution::window_order",
        "lead_and_lag.slt",
        DISTRIBUTED,
        Canary::None("it takes workers"),
    ),
    gap(
        "operators that must not be cut off",
        "distribution::planning_barrier",
        "dependent_joins.slt",
        DISTRIBUTED,
        Canary::None("it takes workers"),
    ),
];
