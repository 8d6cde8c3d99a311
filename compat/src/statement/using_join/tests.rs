use super::*;
use crate::statement::testing::query;

/// Tables a (k, x), b (k, y), c (k, j, z) and d (j, y); others are not known.
fn columns(name: &ObjectName) -> Option<Vec<String>> {
    let columns: &[&str] = match name.to_string().as_str() {
        "a" | "main.a" => &["k", "x"],
        "b" => &["k", "y"],
        "c" => &["k", "j", "z"],
        "d" => &["j", "y"],
        _ => return None,
    };
    Some(columns.iter().map(|&column| column.to_owned()).collect())
}

fn merged(sql: &str) -> Result<String, String> {
    let mut query = query(sql);
    coalesce_join_keys(&mut query, &columns)?;
    Ok(query.to_string())
}

fn becomes(sql: &str, expected: &str) {
    assert_eq!(merged(sql).as_deref(), Ok(expected), "{sql}");
    // Nothing is left to do.
    assert_eq!(merged(expected).as_deref(), Ok(expected), "{sql}");
}

#[test]
fn other_blocks_stay_as_they_are() {
    for sql in [
        "SELECT *, k FROM a, b WHERE k = 1",
        "SELECT k FROM a JOIN b ON a.k = b.k ORDER BY k",
        "SELECT (SELECT max(k) FROM b) FROM a UNION SELECT k FROM c",
    ] {
        becomes(sql, sql);
    }
    let query = query("SELECT * FROM a JOIN b ON a.k = b.k");
    assert_eq!(tables_of_using(&query), []);
}

#[test]
fn the_column_is_that_of_the_table_that_has_the_row() {
    for (join, k, all) in [
        ("JOIN", "a.k", "a.*, b.* EXCLUDE (k)"),
        ("LEFT JOIN", "a.k", "a.*, b.* EXCLUDE (k)"),
        (
            "RIGHT JOIN",
            "b.k",
            "a.* REPLACE (b.k AS k), b.* EXCLUDE (k)",
        ),
        (
            "FULL JOIN",
            "coalesce(a.k, b.k) AS K",
            "a.* REPLACE (coalesce(a.k, b.k) AS k), b.* EXCLUDE (k)",
        ),
    ] {
        let value = k.trim_end_matches(" AS K");
        becomes(
            &format!("SELECT K, k + x, a.k, * FROM a {join} b USING (k) WHERE k > 1"),
            &format!(
                "SELECT {k}, {value} + x, a.k, {all} FROM a {join} b ON a.k = b.k WHERE {value} > 1"
            ),
        );
    }
    becomes(
        "SELECT * FROM a LEFT SEMI JOIN b USING (k) WHERE k = 1",
        "SELECT a.* FROM a LEFT SEMI JOIN b ON a.k = b.k WHERE k = 1",
    );
}

#[test]
fn joins_go_on_with_what_was_merged() {
    becomes(
        "SELECT * FROM a FULL JOIN b USING (k) LEFT JOIN c USING (k) JOIN d ON k = d.j",
        "SELECT a.* REPLACE (coalesce(a.k, b.k) AS k), b.* EXCLUDE (k), c.* EXCLUDE (k), d.* \
         FROM a FULL JOIN b ON a.k = b.k LEFT JOIN c ON coalesce(a.k, b.k) = c.k \
         JOIN d ON coalesce(a.k, b.k) = d.j",
    );
    becomes(
        "SELECT k, j FROM a JOIN (b NATURAL JOIN c) USING (k) LEFT JOIN d USING (j)",
        "SELECT a.k, c.j FROM a JOIN (b JOIN c ON b.k = c.k) ON a.k = b.k LEFT JOIN d ON c.j = d.j",
    );
    becomes(
        "SELECT k FROM a AS l NATURAL JOIN a AS r",
        "SELECT l.k FROM a AS l JOIN a AS r ON l.k = r.k AND l.x = r.x",
    );
    becomes(
        "SELECT *, _row_id FROM a RIGHT JOIN b USING (_row_id)",
        "SELECT a.*, b.*, b._row_id FROM a RIGHT JOIN b ON a._row_id = b._row_id",
    );
    becomes(
        "SELECT * FROM a NATURAL LEFT JOIN d",
        "SELECT a.*, d.* FROM a LEFT JOIN d ON true",
    );
}

#[test]
fn every_clause_sees_it_and_order_by_the_result_first() {
    becomes(
        "SELECT DISTINCT ON (k) k AS n, sum(y) OVER (PARTITION BY k) FROM a JOIN b USING (k) \
         GROUP BY k, y HAVING k > 1 ORDER BY k, n",
        "SELECT DISTINCT ON (a.k) a.k AS n, sum(y) OVER (PARTITION BY a.k) FROM a JOIN b ON a.k = b.k \
         GROUP BY a.k, y HAVING a.k > 1 ORDER BY a.k, n",
    );
    becomes(
        "SELECT k, x FROM a JOIN b USING (k) ORDER BY k",
        "SELECT a.k, x FROM a JOIN b ON a.k = b.k ORDER BY k",
    );
    becomes(
        "(SELECT k FROM a JOIN b USING (k)) UNION SELECT k FROM a RIGHT JOIN b USING (k) ORDER BY k",
        "(SELECT a.k FROM a JOIN b ON a.k = b.k) UNION SELECT b.k FROM a RIGHT JOIN b ON a.k = b.k ORDER BY k",
    );
}

#[test]
fn a_name_is_that_of_the_nearest_table() {
    becomes(
        "SELECT x FROM a JOIN b USING (k) WHERE EXISTS (SELECT 1 FROM d WHERE d.j = k) \
         AND x IN (SELECT k FROM c) AND x IN (SELECT k FROM unknown)",
        "SELECT x FROM a JOIN b ON a.k = b.k WHERE EXISTS (SELECT 1 FROM d WHERE d.j = a.k) \
         AND x IN (SELECT k FROM c) AND x IN (SELECT k FROM unknown)",
    );
    // Which k it is, the planner asks.
    becomes(
        "SELECT k FROM a JOIN b USING (k), c",
        "SELECT k FROM a JOIN b ON a.k = b.k, c",
    );
}

#[test]
fn what_is_not_a_table_may_be_joined() {
    becomes(
        "WITH c AS (SELECT * FROM a JOIN b USING (k)) SELECT * FROM c NATURAL JOIN (SELECT 1 AS x) AS o",
        "WITH c AS (SELECT a.*, b.* EXCLUDE (k) FROM a JOIN b ON a.k = b.k) \
         SELECT c.* FROM c JOIN (SELECT 1 AS x) AS o ON c.x = o.x",
    );
    becomes(
        "SELECT k FROM a JOIN (SELECT 1 AS k) USING (k)",
        "SELECT a.k FROM a JOIN (SELECT 1 AS k) AS unnamed_subquery_1 ON a.k = unnamed_subquery_1.k",
    );
    becomes(
        "SELECT * FROM main.a JOIN f(1) USING (k) JOIN g(1) AS h (k, y) USING (k)",
        "SELECT main.a.*, f.* EXCLUDE (k), h.* EXCLUDE (k) \
         FROM main.a JOIN f(1) AS f ON main.a.k = f.k JOIN g(1) AS h (k, y) ON main.a.k = h.k",
    );
    becomes(
        "WITH RECURSIVE r (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM r JOIN a USING (k)) \
         SELECT * FROM r NATURAL JOIN a",
        "WITH RECURSIVE r (k) AS (SELECT 1 UNION ALL SELECT r.k + 1 FROM r JOIN a ON r.k = a.k) \
         SELECT r.*, a.* EXCLUDE (k) FROM r JOIN a ON r.k = a.k",
    );
}

#[test]
fn wildcards_keep_their_options() {
    becomes(
        "SELECT * EXCLUDE (k, y) FROM a FULL JOIN b USING (k)",
        "SELECT a.* EXCLUDE (k) FROM a FULL JOIN b ON a.k = b.k",
    );
    becomes(
        "SELECT * REPLACE (k + 1 AS k, 0 AS y) FROM a JOIN b USING (k)",
        "SELECT a.* REPLACE (a.k + 1 AS k), b.* EXCLUDE (k) REPLACE (0 AS y) FROM a JOIN b ON a.k = b.k",
    );
}

#[test]
fn what_cannot_be_told_is_an_error() {
    for (sql, part) in [
        (
            "SELECT 1 FROM a JOIN b USING (x)",
            "column x of USING is in no table of the right side",
        ),
        (
            "SELECT 1 FROM a JOIN b ON true JOIN c USING (k)",
            "column k of USING may be that of several tables of the left side",
        ),
        (
            "SELECT 1 FROM a NATURAL JOIN f(1)",
            "say USING (…), or name them behind its alias",
        ),
        (
            "SELECT * EXCLUDE (n) FROM a JOIN b USING (k)",
            "there is no column n for * EXCLUDE",
        ),
        (
            "SELECT 1 FROM a JOIN c USING (kk)",
            "column kk of USING is in no table of the left side of the join; did you mean k?",
        ),
        (
            "SELECT * EXCLUDE (yy) FROM a JOIN b USING (k)",
            "there is no column yy for * EXCLUDE; did you mean y?",
        ),
    ] {
        let error = merged(sql).unwrap_err();
        assert!(error.contains(part), "{sql}: {error}");
    }
}
