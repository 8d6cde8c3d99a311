//! Golden files that show each rewrite: a statement or a plan before it, and after.
//!
//! `SKEWER_REGENERATE=1 cargo test -p skewer-compat --test it plans` writes the files in `tests/golden` anew.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Tokenizer;
use skewer_compat::logical::bag_set_operations::expand_bag_set_operations;
use skewer_compat::logical::decorrelate::{Determinism, optimize_dependent_joins};
use skewer_compat::logical::with_movable_subqueries;
use skewer_compat::session::repaired;
use skewer_compat::statement::describe_in_from;
use skewer_compat::statement::desugar::desugar_statement;
use skewer_compat::statement::dialect::BoundedDialect;
use skewer_compat::statement::using_join::coalesce_join_keys;

/// Tables of the queries: all columns may be NULL.
const TABLES: [(&str, &[&str]); 3] = [("t", &["a", "b"]), ("u", &["b", "c"]), ("v", &["c", "d"])];

fn tables(context: SessionContext) -> SessionContext {
    for (table, columns) in TABLES {
        let fields: Vec<Field> = columns
            .iter()
            .map(|column| Field::new(*column, DataType::Int64, true))
            .collect();
        let rows = MemTable::try_new(Arc::new(Schema::new(fields)), vec![vec![]]);
        context
            .register_table(table, Arc::new(rows.unwrap()))
            .unwrap();
    }
    context
}

fn config() -> SessionConfig {
    SessionConfig::new().with_target_partitions(2)
}

/// A session of DataFusion as it is.
fn plain() -> SessionState {
    tables(SessionContext::new_with_config(config())).state()
}

/// A session with all repaired rules.
fn with_repairs() -> SessionState {
    let builder = SessionStateBuilder::new().with_config(config());
    tables(repaired(builder)).state()
}

/// Parses a statement as Skewer does, without rewriting it.
fn parsed(sql: &str) -> Statement {
    let dialect = BoundedDialect::for_text_of(sql.len());
    let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location();
    let tokens = describe_in_from::mark(tokens.unwrap());
    let parser = DFParserBuilder::new(tokens).with_dialect(&dialect).build();
    parser.unwrap().parse_statement().unwrap()
}

/// A statement after the rewrites that need no catalog.
fn desugared(sql: &str) -> Statement {
    let mut statement = parsed(sql);
    desugar_statement(&mut statement).unwrap();
    statement
}

fn columns_of_table(name: &ast::ObjectName) -> Option<Vec<String>> {
    let (_, columns) = TABLES
        .iter()
        .find(|(table, _)| *table == name.to_string())?;
    Some(columns.iter().map(|column| (*column).to_owned()).collect())
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// What a plan or an error looks like.
fn shown(plan: Result<String>) -> String {
    match plan {
        Ok(plan) => indented(&plan),
        Err(error) => {
            let text = error.strip_backtrace();
            format!("  error: {}\n", text.lines().next().unwrap_or_default())
        }
    }
}

fn logical(plan: &LogicalPlan) -> String {
    plan.display_indent().to_string()
}

/// A file with a section for each query. If `rewrite` returns two plans, they must differ: a rule
/// that no longer fires would go unnoticed otherwise.
fn golden(file: &str, queries: &[&str], rewrite: impl Fn(&str) -> Vec<(&'static str, String)>) {
    let mut text = String::new();
    for sql in queries {
        writeln!(text, "{sql}").unwrap();
        let plans = rewrite(sql);
        if let [(_, before), (_, after)] = &plans[..] {
            assert_ne!(before, after, "nothing rewrites {sql}");
        }
        for (title, plan) in plans {
            write!(text, "{title}\n{plan}").unwrap();
        }
        text.push('\n');
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    skewer_testing::golden(&path.join(file), &text);
}

#[test]
fn statements_are_desugared() {
    let files: &[(&str, &[&str])] = &[
        (
            "statement/desugar",
            &[
                "FROM t",
                "SELECT a, b FROM t ORDER BY ALL DESC",
                "SELECT a IN (VALUES (1)) FROM t",
                "SELECT (SELECT [t.a, t.b]) FROM t",
                "SELECT a AT TIME ZONE 'UTC' FROM t",
                "SELECT a = ANY ([1, 2]), a <> ALL ([1]) FROM t",
                "SELECT a LIKE 'x/%' ESCAPE '/', a SIMILAR TO 'x%' FROM t",
            ],
        ),
        (
            "statement/fetch_first",
            &[
                "SELECT a FROM t ORDER BY b FETCH FIRST 3 ROWS ONLY",
                "SELECT a FROM t ORDER BY b FETCH FIRST 3 ROWS WITH TIES",
                "SELECT a FROM t ORDER BY b LIMIT (SELECT max(c) FROM u)",
            ],
        ),
        (
            "statement/table_functions",
            &[
                "SELECT * FROM generate_series(1, 3) AS g(i)",
                "SELECT * FROM t, generate_series(1, t.a) AS g(i)",
                "SELECT * FROM unnest([7, 8]) WITH ORDINALITY AS x(v, n)",
            ],
        ),
        (
            "statement/row_comparison",
            &[
                "SELECT (a, b) = (1, 2) FROM t",
                "SELECT (a, b) < (1, 2) FROM t",
                "SELECT (a, b) IN ((1, 2), (3, 4)) FROM t",
                "SELECT 1 FROM t WHERE (a, b) IN (SELECT b, c FROM u)",
            ],
        ),
        (
            "statement/cte_shadowing",
            &["WITH x AS (SELECT 1) SELECT * FROM (WITH x AS (SELECT 2) SELECT * FROM x) AS y, x"],
        ),
        (
            "statement/recursive_cte_tail",
            &[
                "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL (SELECT n + 1 FROM r ORDER BY n LIMIT 3)) SELECT n FROM r",
                "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT 2 ORDER BY n LIMIT 1) SELECT n FROM x",
            ],
        ),
    ];
    for (file, queries) in files {
        golden(&format!("{file}.golden"), queries, |sql| {
            vec![("becomes", indented(&desugared(sql).to_string()))]
        });
    }
}

#[test]
fn joins_with_using_become_joins_with_on() {
    let queries = [
        "SELECT * FROM t JOIN u USING (b)",
        "SELECT b FROM t LEFT JOIN u USING (b) ORDER BY b",
        "SELECT b FROM t RIGHT JOIN u USING (b)",
        "SELECT b FROM t FULL JOIN u USING (b)",
        "SELECT * FROM t NATURAL JOIN u NATURAL JOIN v",
    ];
    golden("statement/using_join.golden", &queries, |sql| {
        let Statement::Statement(mut statement) = desugared(sql) else {
            panic!("{sql}")
        };
        coalesce_join_keys(statement.as_mut(), &columns_of_table).unwrap();
        vec![("becomes", indented(&statement.to_string()))]
    });
}

/// The plan of a statement as SQL was planned.
async fn planned(state: &SessionState, sql: &str) -> Result<LogicalPlan> {
    state.statement_to_plan(desugared(sql)).await
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

/// Golden files of a rewrite of plans as SQL was planned.
fn golden_plans(file: &str, queries: &[&str], rewrite: fn(LogicalPlan) -> Result<LogicalPlan>) {
    golden(file, queries, |sql| {
        let before = block_on(planned(&plain(), sql)).unwrap();
        let after = rewrite(before.clone());
        vec![
            ("before", indented(&logical(&before))),
            ("after", shown(after.map(|plan| logical(&plan)))),
        ]
    });
}

#[test]
fn set_operations_count_duplicates() {
    let queries = [
        "SELECT a FROM t INTERSECT ALL SELECT b FROM u",
        "SELECT a FROM t EXCEPT ALL SELECT b FROM u",
    ];
    golden_plans(
        "logical/bag_set_operations.golden",
        &queries,
        expand_bag_set_operations,
    );
}

#[test]
fn subqueries_move_to_where_datafusion_joins_them() {
    let files: &[(&str, &[&str])] = &[
        (
            "values_subqueries",
            &["VALUES ((SELECT max(a) FROM t)), (2)"],
        ),
        (
            "order_by_subqueries",
            &[
                "SELECT a FROM t ORDER BY EXISTS (SELECT 1 FROM u WHERE u.b = t.b)",
                "SELECT a FROM t ORDER BY (SELECT max(c) FROM u WHERE u.b = t.b)",
            ],
        ),
        (
            "join_conditions",
            &[
                "SELECT * FROM t LEFT JOIN u ON t.b = u.b AND t.a IN (SELECT c FROM v)",
                "SELECT * FROM t LEFT JOIN u ON t.b = u.b AND u.c IN (SELECT c FROM v)",
                "SELECT * FROM t FULL JOIN u ON t.b = u.b AND EXISTS (SELECT 1 FROM v WHERE v.c = t.a)",
                "SELECT * FROM t LEFT JOIN u ON EXISTS (SELECT 1 FROM v WHERE v.c = t.a AND v.d = u.c)",
            ],
        ),
        (
            "scalar_subquery",
            &[
                "SELECT (SELECT b FROM u WHERE u.c = t.a) FROM t",
                "SELECT a, (SELECT b FROM u WHERE u.c = t.a LIMIT 1) FROM t",
            ],
        ),
    ];
    for (file, queries) in files {
        golden_plans(
            &format!("logical/{file}.golden"),
            queries,
            with_movable_subqueries,
        );
    }
}

/// The optimized plan, with joins in place of correlated subqueries.
async fn optimized(mut state: SessionState, sql: &str) -> Result<LogicalPlan> {
    let plan = with_movable_subqueries(planned(&state, sql).await?)?;
    let determinism = Determinism {
        reads_changing_tables: &|_| false,
    };
    optimize_dependent_joins(&plan, &mut state, false, determinism, |plan, state| {
        state.optimize(plan)
    })
}

#[test]
fn correlated_subqueries_become_joins() {
    let queries = [
        "SELECT a, (SELECT count(*) FROM u WHERE u.b > t.b) FROM t",
        "SELECT a FROM t WHERE a > (SELECT sum(c) FROM (SELECT c FROM u WHERE u.b = t.b ORDER BY c LIMIT 3) AS q)",
        "SELECT a, n FROM t, LATERAL (SELECT count(*) AS n FROM u WHERE u.b < t.b) AS l",
    ];
    golden("logical/decorrelate.golden", &queries, |sql| {
        let plain = block_on(async {
            let state = plain();
            let plan = planned(&state, sql).await?;
            state.optimize(&plan)
        });
        let repaired = block_on(optimized(with_repairs(), sql));
        vec![
            ("DataFusion", shown(plain.map(|plan| logical(&plan)))),
            ("repaired", shown(repaired.map(|plan| logical(&plan)))),
        ]
    });
}

/// The optimized plans, and the operators, of DataFusion and with repairs.
fn compared(sql: &str, operators: bool) -> Vec<(&'static str, String)> {
    let shown_by = |state: SessionState| {
        block_on(async {
            let plan = state.optimize(&planned(&state, sql).await?)?;
            if !operators {
                return Ok(logical(&plan));
            }
            let plan = state
                .query_planner()
                .create_physical_plan(&plan, &state)
                .await?;
            Ok(displayable(plan.as_ref()).indent(false).to_string())
        })
    };
    vec![
        ("DataFusion", shown(shown_by(plain()))),
        ("repaired", shown(shown_by(with_repairs()))),
    ]
}

#[test]
fn rules_draw_no_wrong_conclusions() {
    let logical: &[(&str, &[&str])] = &[
        (
            "in_lists",
            &[
                "SELECT a FROM t WHERE NOT (a IN (3) AND a IN (4))",
                "SELECT a FROM t WHERE a IN (1, 2) AND a NOT IN (2, NULL)",
            ],
        ),
        (
            "subqueries",
            &["SELECT a FROM t WHERE EXISTS (SELECT max(c) FROM u WHERE u.b = t.b)"],
        ),
        (
            "constant_keys",
            &[
                "SELECT a, b, count(*) FROM t WHERE a = 7 GROUP BY a, b",
                "SELECT t.a, u.c, count(*) FROM t JOIN u ON t.b = u.b WHERE u.b = 3 GROUP BY t.a, t.b, u.c",
                // One key stays.
                "SELECT a, b, count(*) FROM t WHERE a = 7 AND b = 3 GROUP BY a, b",
            ],
        ),
        (
            "marks",
            &["SELECT sum(CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.b = t.b) THEN 1 END) FROM t"],
        ),
        (
            "null_equality",
            &["SELECT a FROM t JOIN u ON t.b IS NOT DISTINCT FROM u.b WHERE t.a = u.c"],
        ),
        (
            "dependencies",
            &[
                "SELECT DISTINCT b FROM (SELECT b, unnest([1, 2]) FROM (SELECT DISTINCT b FROM t) AS d) AS e",
            ],
        ),
        (
            "arithmetic",
            &[
                "SELECT a + b, a / 2, -a, CAST(a AS SMALLINT) FROM t",
                "SELECT sum(a), avg(CAST(a AS DECIMAL(9, 2))) FROM t",
            ],
        ),
        (
            "explicit_casts",
            &["SELECT CAST(CAST(a AS TIMESTAMP) AS VARCHAR), CAST('{1}' AS BIGINT[]) FROM t"],
        ),
    ];
    for (file, queries) in logical {
        golden(&format!("rules/{file}.golden"), queries, |sql| {
            compared(sql, false)
        });
    }
    let physical: &[(&str, &[&str])] = &[
        (
            "properties",
            &["SELECT b, count(*) FROM t GROUP BY ROLLUP (a, b) ORDER BY b"],
        ),
        (
            "offsets",
            &["SELECT a FROM (SELECT a FROM t LIMIT 3 OFFSET 2) AS q ORDER BY a"],
        ),
        (
            "sort_keys",
            &["SELECT row_number() OVER (ORDER BY abs(a) > 1) FROM t"],
        ),
        (
            "group_limits",
            &["SELECT DISTINCT a, count(*) OVER (PARTITION BY a) FROM t LIMIT 3"],
        ),
        (
            "shortcuts",
            &["SELECT a, count(*) OVER () FROM t GROUP BY a ORDER BY a LIMIT 1"],
        ),
    ];
    for (file, queries) in physical {
        golden(&format!("rules/{file}.golden"), queries, |sql| {
            compared(sql, true)
        });
    }
}
