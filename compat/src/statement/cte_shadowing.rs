//! Queries of a `WITH` that have the name of one further out.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectNamePart, Query, TableAlias, TableFactor, VisitMut, VisitorMut, With,
};

use crate::statement::names::fold;

/// Gives the queries of a `WITH` that have the name of one of an enclosing query's another name,
/// which DataFusion would refuse to take again:
///
/// ```sql
/// WITH a AS (…) SELECT * FROM (WITH a        AS (…) SELECT * FROM a)
/// WITH a AS (…) SELECT * FROM (WITH "a (2)"  AS (…) SELECT * FROM "a (2)" AS a)
/// ```
///
/// As in PostgreSQL, the inner one is meant from where it is known on: in the queries after it, in
/// itself if the `WITH` is recursive, and in what the `WITH` belongs to.
pub fn rename_shadowing(node: &mut impl VisitMut) {
    let _: ControlFlow<()> = node.visit(&mut Renamer {
        enclosing: Vec::new(),
        renamed: 1,
    });
}

struct Renamer {
    /// The names of each enclosing query's `WITH`.
    enclosing: Vec<Vec<String>>,
    /// The number that the last new name has.
    renamed: usize,
}

impl VisitorMut for Renamer {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut names = names_of(query.with.as_ref());
        for place in 0..names.len() {
            let name = names[place].clone();
            // One `WITH` with a name twice stays as it is: that is an error.
            let is_twice = names.iter().filter(|other| **other == name).count() > 1;
            if is_twice || !self.enclosing.iter().flatten().any(|other| *other == name) {
                continue;
            }
            self.renamed += 1;
            let new = format!("{name} ({})", self.renamed);
            rename(query, place, &name, &new);
            names[place] = new;
        }
        self.enclosing.push(names);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.enclosing.pop();
        ControlFlow::Continue(())
    }
}

/// Names query number `place` of a `WITH` anew, and wherever it is meant.
fn rename(query: &mut Query, place: usize, old: &str, new: &str) {
    let Some(mut with) = query.with.take() else {
        return;
    };
    let mut references = References {
        old,
        new,
        shadowed: 0,
    };
    let first = if with.recursive { place } else { place + 1 };
    for later in &mut with.cte_tables[first..] {
        let _ = later.query.visit(&mut references);
    }
    // Without its `WITH`, which would be visited as a whole.
    let _ = query.visit(&mut references);
    renamed(&mut with.cte_tables[place].alias.name, new);
    query.with = Some(with);
}

/// Says `new` where `old` is said as a table's name, unless another query has that name there.
struct References<'a> {
    old: &'a str,
    new: &'a str,
    /// Queries being visited in which another one has the name, from the outermost of them on.
    shadowed: usize,
}

impl VisitorMut for References<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.shadowed > 0 {
            self.shadowed += 1;
            return ControlFlow::Continue(());
        }
        let names = names_of(query.with.as_ref());
        let shadowing = names.iter().position(|name| name == self.old);
        if let (Some(place), Some(with)) = (shadowing, &mut query.with) {
            let last = if with.recursive { place } else { place + 1 };
            for before in &mut with.cte_tables[..last] {
                before.query.visit(self)?;
            }
            self.shadowed = 1;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.shadowed = self.shadowed.saturating_sub(1);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if self.shadowed == 0
            && let TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } = table
            && let [part] = name.0.as_mut_slice()
            && let Some(ident) = part.as_ident()
            && fold(ident) == self.old
        {
            let mut new = ident.clone();
            // Columns are qualified with the name as it was.
            alias.get_or_insert_with(|| TableAlias {
                explicit: true,
                name: new.clone(),
                columns: vec![],
                at: None,
            });
            renamed(&mut new, self.new);
            *part = ObjectNamePart::Identifier(new);
        }
        ControlFlow::Continue(())
    }
}

fn names_of(with: Option<&With>) -> Vec<String> {
    let queries = with.into_iter().flat_map(|with| &with.cte_tables);
    queries.map(|query| fold(&query.alias.name)).collect()
}

/// The same place in the text has another name.
fn renamed(ident: &mut Ident, new: &str) {
    ident.value = new.to_owned();
    ident.quote_style = Some('"');
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn renamed(sql: &str) -> String {
        let mut statements = Parser::parse_sql(&GenericDialect {}, sql).unwrap();
        rename_shadowing(&mut statements);
        statements[0].to_string()
    }

    #[test]
    fn an_inner_query_is_meant_from_where_it_is_known_on() {
        for (sql, expected) in [
            (
                "WITH a AS (SELECT 1) SELECT * FROM (WITH A AS (SELECT * FROM a) SELECT a.x FROM a, b) AS s, a",
                "WITH a AS (SELECT 1) SELECT * FROM (WITH \"a (2)\" AS (SELECT * FROM a) SELECT a.x FROM \"a (2)\" AS a, b) AS s, a",
            ),
            (
                "WITH a AS (SELECT 1), b AS (WITH a AS (SELECT 2), c AS (SELECT * FROM a AS t) SELECT * FROM c WHERE x IN (SELECT x FROM a)) SELECT * FROM a, b",
                "WITH a AS (SELECT 1), b AS (WITH \"a (2)\" AS (SELECT 2), c AS (SELECT * FROM \"a (2)\" AS t) SELECT * FROM c WHERE x IN (SELECT x FROM \"a (2)\" AS a)) SELECT * FROM a, b",
            ),
            (
                "WITH a AS (SELECT 1) SELECT (WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT x + 1 FROM a) SELECT max(x) FROM a)",
                "WITH a AS (SELECT 1) SELECT (WITH RECURSIVE \"a (2)\" AS (SELECT 1 UNION ALL SELECT x + 1 FROM \"a (2)\" AS a) SELECT max(x) FROM \"a (2)\" AS a)",
            ),
            (
                "WITH a AS (SELECT 1) SELECT * FROM (WITH a AS (SELECT 2) SELECT * FROM a, (WITH b AS (SELECT * FROM a), a AS (SELECT * FROM a) SELECT * FROM a, b) AS s) AS t",
                "WITH a AS (SELECT 1) SELECT * FROM (WITH \"a (2)\" AS (SELECT 2) SELECT * FROM \"a (2)\" AS a, (WITH b AS (SELECT * FROM \"a (2)\" AS a), \"a (3)\" AS (SELECT * FROM \"a (2)\" AS a) SELECT * FROM \"a (3)\" AS a, b) AS s) AS t",
            ),
        ] {
            assert_eq!(renamed(sql), expected);
        }
    }

    #[test]
    fn what_shadows_nothing_stays() {
        for sql in [
            "WITH a AS (SELECT 1), a AS (SELECT 2) SELECT * FROM a",
            "WITH a AS (SELECT 1) SELECT * FROM main.a, (WITH b AS (SELECT * FROM a) SELECT * FROM b) AS s",
            "SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) AS s, (WITH a AS (SELECT 2) SELECT * FROM a) AS t, a",
            "WITH \"A\" AS (SELECT 1) SELECT * FROM (WITH a AS (SELECT 2) SELECT * FROM a) AS s",
        ] {
            assert_eq!(renamed(sql), sql);
        }
    }
}
