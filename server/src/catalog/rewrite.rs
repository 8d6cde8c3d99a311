//! Queries about PostgreSQL's catalog in the SQL that the engine understands.
//!
//! What psql and drivers ask is PostgreSQL's SQL at its most particular: qualified functions and
//! operators, `regclass`, arrays with ANY, correlated subqueries. Most of it is about things that
//! Skewer has not, and a join with an empty table is empty: such queries are replaced by their
//! columns without rows.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, SetExpr, Statement, TableFactor, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::parameters::Parameters;
use super::{MAIN, PG_CATALOG, oid, tables};

/// Whether a statement with this token may be about PostgreSQL's catalog.
pub(crate) fn is_postgresql(token: &Token) -> bool {
    let Token::Word(word) = token else {
        return false;
    };
    let lower = word.value.to_lowercase();
    lower.starts_with("pg_") || lower == "current_schema" || REG_TYPES.contains(&lower.as_str())
}

/// Types whose values are oids and whose texts are names.
const REG_TYPES: [&str; 7] = [
    "regclass",
    "regnamespace",
    "regoper",
    "regproc",
    "regprocedure",
    "regrole",
    "regtype",
];

/// The statement as the engine understands it; what is no query stays as it is.
pub(crate) fn rewrite(sql: &str) -> String {
    if !skewer_sql::is_readable(sql) {
        return sql.to_owned();
    }
    let Ok(mut statements) = Parser::parse_sql(&PostgreSqlDialect {}, sql) else {
        // The engine's parser says it better.
        return sql.to_owned();
    };
    match statements.as_mut_slice() {
        [statement @ Statement::Query(_)] => {
            let taken = Parameters::of_statement(statement);
            let _: ControlFlow<()> = statement.visit(&mut Rewriter);
            taken.keep_in(statement);
            statement.to_string()
        }
        _ => sql.to_owned(),
    }
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if empty(&mut query.body) && matches!(*query.body, SetExpr::Select(_)) {
            query.order_by = None;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args, .. } = factor {
            if args.is_some() {
                strip(name);
            } else if let [ObjectNamePart::Identifier(table)] = name.0.as_slice()
                && tables::names().any(|known| known == table.value)
            {
                name.0
                    .insert(0, ObjectNamePart::Identifier(Ident::new(PG_CATALOG)));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let replaced = match expr {
            // A correlated subquery about nothing.
            Expr::Subquery(query) if is_about_nothing(query) => Some(null()),
            Expr::Subquery(query) if is_about_composite_types(query) => Some(null()),
            Expr::Function(function) if is_array_subquery(function) => Some(no_texts()),
            Expr::Function(function) if is_view_definition(function) => {
                first_argument(function).map(definition)
            }
            _ => None,
        };
        if let Some(replaced) = replaced {
            *expr = replaced;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let replaced = match expr {
            Expr::Function(function) => {
                strip(&mut function.name);
                aggregate_oids(function);
                None
            }
            Expr::Identifier(ident) if ident.value.eq_ignore_ascii_case("current_schema") => {
                Some(call("current_schema", Vec::new()))
            }
            Expr::Collate { expr, .. } => Some((**expr).clone()),
            Expr::BinaryOp {
                op: op @ BinaryOperator::PGCustomBinaryOperator(_),
                ..
            } => {
                if let Some(plain) = plain_operator(op) {
                    *op = plain;
                }
                None
            }
            Expr::AnyOp {
                left,
                compare_op: BinaryOperator::Eq,
                right,
                ..
            } if !matches!(**right, Expr::Subquery(_)) => {
                let right = match &**right {
                    Expr::Nested(inner) => (**inner).clone(),
                    other => other.clone(),
                };
                Some(call("array_has", vec![right, (**left).clone()]))
            }
            Expr::Value(value) => {
                if let Value::EscapedStringLiteral(text) = &value.value {
                    value.value = Value::SingleQuotedString(text.clone());
                }
                None
            }
            Expr::Cast {
                expr, data_type, ..
            } => cast(expr, data_type),
            _ => None,
        };
        if let Some(replaced) = replaced {
            *expr = replaced;
        }
        ControlFlow::Continue(())
    }
}

/// `array_agg(a.atttypid)` makes a list of oids, which have four bytes.
fn aggregate_oids(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else {
        return;
    };
    let name = function.name.0.last().and_then(ObjectNamePart::as_ident);
    if !name.is_some_and(|name| name.value.eq_ignore_ascii_case("array_agg")) {
        return;
    }
    if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))) = list.args.first_mut()
        && let Expr::CompoundIdentifier(parts) = argument
        && let Some(column) = parts.last()
        && matches!(column.value.as_str(), "oid" | "atttypid")
    {
        *argument = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(argument.clone()),
            data_type: ast::DataType::IntUnsigned(None),
            array: false,
            format: None,
        };
    }
}

/// `pg_catalog.f` → `f`.
fn strip(name: &mut ObjectName) {
    if let [ObjectNamePart::Identifier(schema), _] = name.0.as_slice()
        && schema.value.eq_ignore_ascii_case(PG_CATALOG)
    {
        name.0.remove(0);
    }
}

/// `OPERATOR(pg_catalog.~)` → `~`.
fn plain_operator(operator: &BinaryOperator) -> Option<BinaryOperator> {
    let BinaryOperator::PGCustomBinaryOperator(path) = operator else {
        return None;
    };
    Some(match path.last()?.as_str() {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" => BinaryOperator::NotEq,
        "+" => BinaryOperator::Plus,
        _ => return None,
    })
}

/// Casts to PostgreSQL's own types; `None` for those that the engine has.
fn cast(expr: &Expr, data_type: &mut ast::DataType) -> Option<Expr> {
    let name = match data_type {
        ast::DataType::Regclass => "regclass".to_owned(),
        ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(item, _)) => {
            if let ast::DataType::Custom(name, _) = item.as_ref() {
                let name = name.0.last()?.as_ident()?.value.to_lowercase();
                **item = plain_type(&name)?;
            }
            return None;
        }
        ast::DataType::Array(_) => return None,
        ast::DataType::Custom(name, _) => name.0.last()?.as_ident()?.value.to_lowercase(),
        _ => return None,
    };
    let text = match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.as_str()),
            _ => None,
        },
        _ => None,
    };
    let number = |oid: i64| Expr::value(Value::Number(oid.to_string(), false));
    let to = |data_type: ast::DataType| Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr.clone()),
        data_type,
        array: false,
        format: None,
    };
    Some(match (name.as_str(), text) {
        ("regclass", Some(text)) => number(text.parse().unwrap_or_else(|_| oid_of_table(text))),
        ("regnamespace", Some(text)) => {
            number(text.parse().unwrap_or_else(|_| oid::of_schema(text)))
        }
        ("regtype", None) => call("format_type", vec![expr.clone(), number(-1)]),
        (reg, None) if REG_TYPES.contains(&reg) => to(ast::DataType::Text),
        (plain, _) => to(plain_type(plain)?),
    })
}

/// The engine's type for one of PostgreSQL's own.
fn plain_type(name: &str) -> Option<ast::DataType> {
    Some(match name {
        "oid" | "xid" | "int8" => ast::DataType::BigInt(None),
        "name" | "char" | "text" | "cstring" | "aclitem" => ast::DataType::Text,
        "int2" => ast::DataType::SmallInt(None),
        "int4" => ast::DataType::Integer(None),
        "bool" => ast::DataType::Boolean,
        _ => return None,
    })
}

/// The oid of a table by its name as written.
fn oid_of_table(text: &str) -> i64 {
    let plain = |part: &str| match part.strip_prefix('"').and_then(|p| p.strip_suffix('"')) {
        Some(quoted) => quoted.to_owned(),
        None => part.to_lowercase(),
    };
    match text.rsplit_once('.') {
        Some((schema, table)) => oid::of_table(&plain(schema), &plain(table)),
        None => oid::of_table(MAIN, &plain(text)),
    }
}

/// Replaces selects that join with an empty table; whether it was one.
fn empty(body: &mut SetExpr) -> bool {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            empty(left);
            empty(right);
            false
        }
        SetExpr::Select(select) if joins_nothing(select) && !aggregates(select) => {
            let columns = std::mem::take(&mut select.projection)
                .into_iter()
                .enumerate();
            let columns = columns.map(|(n, item)| SelectItem::ExprWithAlias {
                expr: null(),
                alias: name_of(&item)
                    .unwrap_or_else(|| Ident::with_quote('"', format!("column{n}"))),
            });
            select.projection = columns.collect();
            select.distinct = None;
            select.from = Vec::new();
            select.group_by = ast::GroupByExpr::Expressions(Vec::new(), Vec::new());
            select.having = None;
            select.selection = Some(Expr::value(Value::Boolean(false)));
            true
        }
        _ => false,
    }
}

/// Whether a table that inner joins combine has no rows.
fn joins_nothing(select: &Select) -> bool {
    let is_empty = |factor: &TableFactor| match factor {
        TableFactor::Table {
            name, args: None, ..
        } => {
            let last = name.0.last().and_then(ObjectNamePart::as_ident);
            last.is_some_and(|table| tables::is_empty(&table.value))
        }
        TableFactor::Derived { subquery, .. } => is_about_nothing(subquery),
        _ => false,
    };
    select.from.iter().any(|from| {
        // Behind an outer join from its left side rows may be missing.
        let mut inner = from.joins.iter().filter(|join| {
            matches!(
                join.join_operator,
                ast::JoinOperator::Join(_)
                    | ast::JoinOperator::Inner(_)
                    | ast::JoinOperator::CrossJoin(_)
            )
        });
        is_empty(&from.relation) || inner.any(|join| is_empty(&join.relation))
    })
}

/// Without rows, count(*) still gives one.
fn aggregates(select: &Select) -> bool {
    struct Aggregates(bool);
    impl ast::Visitor for Aggregates {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::Function(function) = expr {
                let name = function.name.0.last().and_then(ObjectNamePart::as_ident);
                let name = name
                    .map(|name| name.value.to_lowercase())
                    .unwrap_or_default();
                self.0 |= matches!(
                    name.as_str(),
                    "count" | "sum" | "min" | "max" | "string_agg"
                );
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            // Aggregates of a subquery are its own.
            ControlFlow::Break(())
        }
    }
    let mut found = Aggregates(false);
    for item in &select.projection {
        let _: ControlFlow<()> = ast::Visit::visit(item, &mut found);
    }
    found.0
}

fn name_of(item: &SelectItem) -> Option<Ident> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().cloned(),
        _ => None,
    }
}

fn is_about_nothing(query: &Query) -> bool {
    match &*query.body {
        SetExpr::Select(select) => joins_nothing(select) && !aggregates(select),
        _ => false,
    }
}

/// `ARRAY(SELECT …)`.
fn is_array_subquery(function: &Function) -> bool {
    matches!(function.args, FunctionArguments::Subquery(_))
        && function.name.to_string().eq_ignore_ascii_case("array")
}

/// Whether a subquery asks for the table whose rows are of a type: no type is such.
fn is_about_composite_types(query: &Query) -> bool {
    match &*query.body {
        SetExpr::Select(select) => select.selection.as_ref().is_some_and(|condition| {
            matches!(condition, Expr::BinaryOp { op: BinaryOperator::Eq, right, .. }
                if right.to_string().ends_with(".typrelid"))
        }),
        _ => false,
    }
}

/// `pg_get_viewdef(…)`.
fn is_view_definition(function: &Function) -> bool {
    let name = function.name.0.last().and_then(ObjectNamePart::as_ident);
    name.is_some_and(|name| name.value.eq_ignore_ascii_case("pg_get_viewdef"))
}

fn first_argument(function: &Function) -> Option<&Expr> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    match list.args.first()? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument),
        _ => None,
    }
}

/// The text of the view with this oid.
fn definition(oid: &Expr) -> Expr {
    let sql =
        format!("SELECT max(v.definition) FROM pg_catalog.pg_views AS v WHERE v.viewoid = {oid}");
    match Parser::parse_sql(&PostgreSqlDialect {}, &sql).as_deref() {
        Ok([Statement::Query(query)]) => Expr::Subquery(query.clone()),
        _ => null(),
    }
}

/// NULL as an array of texts.
fn no_texts() -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(null()),
        data_type: ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(
            Box::new(ast::DataType::Text),
            None,
        )),
        array: false,
        format: None,
    }
}

fn null() -> Expr {
    Expr::value(Value::Null)
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let arguments = arguments.into_iter().map(FunctionArgExpr::Expr);
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.map(FunctionArg::Unnamed).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn particulars_become_plain() {
        let cases = [
            (
                "SELECT c.oid FROM pg_class c WHERE c.relname OPERATOR(pg_catalog.~) '^(t)$' COLLATE pg_catalog.default",
                "SELECT c.oid FROM pg_catalog.pg_class c WHERE c.relname ~ '^(t)$'",
            ),
            (
                "SELECT pg_catalog.pg_backend_pid()",
                "SELECT pg_backend_pid()",
            ),
            ("SELECT '42'::pg_catalog.regclass", "SELECT 42"),
            (
                "SELECT 1 WHERE 2 = ANY(current_schemas(true))",
                "SELECT 1 WHERE array_has(current_schemas(true), 2)",
            ),
            ("SELECT current_schema", "SELECT current_schema()"),
        ];
        for (sql, expected) in cases {
            assert_eq!(rewrite(sql), expected);
        }
    }

    #[test]
    fn joins_with_what_there_is_not_are_empty() {
        let sql = "SELECT p.polname, 1 AS one FROM pg_catalog.pg_policy p WHERE p.x = ANY(f(1)) ORDER BY 1";
        assert_eq!(
            rewrite(sql),
            "SELECT NULL AS polname, NULL AS one WHERE false"
        );
        // As JDBC asks for primary keys.
        let sql = "SELECT r.a FROM (SELECT 1 AS a, f(i.indkey) AS k FROM pg_index AS i) AS r WHERE r.a = (r.k).x";
        assert_eq!(rewrite(sql), "SELECT NULL AS a WHERE false");
        // What is not asked for still takes its parameters.
        let sql = "SELECT conname FROM pg_constraint WHERE conrelid = $2 AND contype = $1";
        assert_eq!(
            rewrite(sql),
            "WITH _parameters AS (SELECT CAST($1 AS TEXT) AS c0, CAST($2 AS BIGINT) AS c1) \
             SELECT NULL AS conname WHERE false"
        );
        let sql = "SELECT count(*) FROM pg_catalog.pg_policy";
        assert_eq!(rewrite(sql), sql);
        let sql = "SELECT c.oid FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_am AS am ON am.oid = c.relam";
        assert_eq!(rewrite(sql), sql);
    }
}
