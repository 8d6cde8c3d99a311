//! The parameters of queries about PostgreSQL's catalog.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, Statement, Value, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pgwire::api::Type;

use super::tables;

/// The parameters, by number from 1, that a statement casts to `oid` or `oid[]`: to the engine these are other types,
/// and a client may know how to send no others.
pub(crate) fn oid_parameters(sql: &str) -> BTreeMap<usize, Type> {
    struct Casts(BTreeMap<usize, Type>);
    impl ast::Visitor for Casts {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let Expr::Cast {
                expr, data_type, ..
            } = expr
            else {
                return ControlFlow::Continue(());
            };
            let kind = match data_type.to_string().to_lowercase().as_str() {
                "oid" | "pg_catalog.oid" => Type::OID,
                "oid[]" | "pg_catalog.oid[]" => Type::OID_ARRAY,
                _ => return ControlFlow::Continue(()),
            };
            if let Expr::Value(value) = expr.as_ref()
                && let Value::Placeholder(name) = &value.value
                && let Some(number) = name.strip_prefix('$').and_then(|n| n.parse().ok())
            {
                self.0.insert(number, kind);
            }
            ControlFlow::Continue(())
        }
    }
    let mut casts = Casts(BTreeMap::new());
    if let Ok(statements) = Parser::parse_sql(&PostgreSqlDialect {}, sql) {
        let _: ControlFlow<()> = ast::Visit::visit(&statements, &mut casts);
    }
    casts.0
}

/// The parameters of a statement, and whether each is compared with a number.
#[derive(Default)]
pub(super) struct Parameters(BTreeMap<String, bool>);

impl Parameters {
    pub(super) fn of_statement(statement: &mut Statement) -> Self {
        let mut found = Self::default();
        let _: ControlFlow<()> = statement.visit(&mut found);
        found
    }

    /// What is left of a statement still takes parameters whose places are gone.
    pub(super) fn keep_in(mut self, statement: &mut Statement) {
        let left = Self::of_statement(statement);
        self.0.retain(|name, _| !left.0.contains_key(name));
        let Statement::Query(query) = statement else {
            return;
        };
        if self.0.is_empty() {
            return;
        }
        let columns = self.0.iter().enumerate().map(|(n, (name, is_number))| {
            let kind = if *is_number { "BIGINT" } else { "TEXT" };
            format!("CAST({name} AS {kind}) AS c{n}")
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        let sql = format!("WITH _parameters AS (SELECT {columns}) SELECT 1");
        let Ok(mut parsed) = Parser::parse_sql(&PostgreSqlDialect {}, &sql) else {
            return;
        };
        if let Some(Statement::Query(template)) = parsed.pop()
            && let Some(with) = template.with
        {
            match &mut query.with {
                Some(own) => own.cte_tables.extend(with.cte_tables),
                None => query.with = Some(with),
            }
        }
    }

    fn is_number(expr: &Expr) -> bool {
        let name = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        name.is_some_and(|name| tables::is_number(&name.value))
    }
}

impl VisitorMut for Parameters {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let placeholder = |expr: &Expr| match expr {
            Expr::Value(value) => match &value.value {
                Value::Placeholder(name) => Some(name.clone()),
                _ => None,
            },
            _ => None,
        };
        if let Expr::BinaryOp { left, right, .. } = expr {
            for (one, other) in [(&*left, &*right), (&*right, &*left)] {
                if let Some(name) = placeholder(one)
                    && Self::is_number(other)
                {
                    self.0.insert(name, true);
                }
            }
        }
        if let Some(name) = placeholder(expr) {
            self.0.entry(name).or_insert(false);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oids_are_told_from_numbers() {
        let sql = "SELECT typname FROM pg_type WHERE oid = any($2::oid[]) OR typelem = $1::oid";
        let expected = [(1, Type::OID), (2, Type::OID_ARRAY)];
        assert_eq!(oid_parameters(sql), BTreeMap::from(expected));
        assert!(oid_parameters("SELECT $1::int").is_empty());
    }
}
