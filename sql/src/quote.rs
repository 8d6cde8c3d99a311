//! Literals and identifiers as SQL text.

/// A text as a literal: `it's` → `'it''s'`.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Keywords that are not names where a name may stand: the ones that PostgreSQL reserves, and the
/// ones that our parser takes for something else. Sorted.
const RESERVED: [&str; 92] = [
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "full",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "inner",
    "intersect",
    "interval",
    "into",
    "join",
    "lateral",
    "leading",
    "left",
    "limit",
    "localtime",
    "localtimestamp",
    "natural",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "outer",
    "placing",
    "primary",
    "qualify",
    "references",
    "returning",
    "right",
    "select",
    "session_user",
    "some",
    "struct",
    "symmetric",
    "table",
    "then",
    "to",
    "top",
    "trailing",
    "trim",
    "true",
    "union",
    "unique",
    "unnest",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

/// A column's or table's name as SQL must write it: quoted if it is a reserved keyword, or has other
/// characters than lower-case letters, digits and `_`.
pub fn identifier(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain && RESERVED.binary_search(&name).is_err() {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// SQL that names a table, from its name in schema `sys`: `schema.table`, or the path of a file.
pub fn recorded_table(logged: &str) -> String {
    let is_file = logged.contains(['/', '\\']) || logged.ends_with(".parquet");
    if is_file {
        return literal(logged);
    }
    match logged.split_once('.') {
        Some(("main", table)) => identifier(table),
        Some((schema, table)) => format!("{}.{}", identifier(schema), identifier(table)),
        None => identifier(logged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use datafusion::sql::sqlparser::ast::{Expr, Query, SelectItem, SetExpr, TableFactor};
    use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;

    use crate::Statement;

    /// Whether the word is a column's name in SELECT and WHERE, and a table's name in FROM.
    fn is_name(word: &str) -> bool {
        let sql = format!("SELECT {word}, t.{word} FROM {word}, t WHERE {word} = 1 AND 2 < {word}");
        let Ok(Statement::Query(query)) = crate::parse(&sql) else {
            return false;
        };
        names(&query, word).is_some_and(|found| found == 4)
    }

    fn names(query: &Query, word: &str) -> Option<usize> {
        let SetExpr::Select(select) = &*query.body else {
            return None;
        };
        let [SelectItem::UnnamedExpr(bare), SelectItem::UnnamedExpr(_)] = &select.projection[..]
        else {
            return None;
        };
        let [from, _] = &select.from[..] else {
            return None;
        };
        let is_word = |expr: &Expr| matches!(expr, Expr::Identifier(name) if name.value == word);
        let TableFactor::Table {
            name, alias: None, ..
        } = &from.relation
        else {
            return None;
        };
        let Some(Expr::BinaryOp { left, right, .. }) = &select.selection else {
            return None;
        };
        let (Expr::BinaryOp { left: first, .. }, Expr::BinaryOp { right: last, .. }) =
            (&**left, &**right)
        else {
            return None;
        };
        let found = [
            is_word(bare),
            name.to_string() == word,
            is_word(first),
            is_word(last),
        ];
        Some(found.into_iter().filter(|is| *is).count())
    }

    #[test]
    fn keywords_are_reserved_where_the_parser_takes_them_for_something_else() {
        let words = ALL_KEYWORDS.iter().map(|word| word.to_lowercase());
        let missing: Vec<String> = words
            .filter(|word| !is_name(word) && identifier(word) == *word)
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(RESERVED.is_sorted());
    }

    #[test]
    fn names_are_quoted_where_they_must_be() {
        for (name, sql) in [
            ("ratings", "ratings"),
            ("value", "value"),
            ("_row_id", "_row_id"),
            ("Orders", "\"Orders\""),
            ("order", "\"order\""),
            ("7z", "\"7z\""),
            ("a\"b", "\"a\"\"b\""),
            ("", "\"\""),
        ] {
            assert_eq!(identifier(name), sql);
        }
        assert_eq!(literal("it's"), "'it''s'");
    }

    #[test]
    fn tables_and_files_are_named_as_sql_wants_them() {
        for (logged, sql) in [
            ("main.ratings", "ratings"),
            ("sales.Orders", "sales.\"Orders\""),
            ("main.order", "\"order\""),
            ("ratings", "ratings"),
            ("data/it's.parquet", "'data/it''s.parquet'"),
        ] {
            assert_eq!(recorded_table(logged), sql);
        }
    }
}
