//! What stands in FROM in the place of calls: series, their numbers, and lists in subqueries.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, SetExpr, TableAlias,
    TableAliasColumnDef, TableFactor, TableFunctionArgs, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use super::{VALUE, name_ordinality};

/// A series of constants in FROM.
pub(super) fn series(
    function: &str,
    arguments: Vec<Expr>,
    alias: Option<TableAlias>,
) -> TableFactor {
    let arguments = arguments.into_iter();
    let args = arguments.map(|value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value)));
    TableFactor::Table {
        name: ObjectName::from(vec![Ident::new(function)]),
        alias,
        args: Some(TableFunctionArgs {
            args: args.collect(),
            settings: None,
        }),
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// The same with the numbers of its rows.
pub(super) fn numbered_series(
    function: &str,
    arguments: Vec<Expr>,
    mut alias: TableAlias,
) -> Result<TableFactor, ParserError> {
    let template = format!("SELECT {VALUE}, row_number() OVER () FROM {function}(1)");
    let mut numbered = Parser::new(&GenericDialect {})
        .try_with_sql(&template)?
        .parse_query()?;
    if let SetExpr::Select(select) = numbered.body.as_mut()
        && let [tables] = select.from.as_mut_slice()
    {
        let value = TableAlias {
            explicit: true,
            name: Ident::new(function),
            columns: vec![TableAliasColumnDef::from_name(VALUE)],
            at: None,
        };
        tables.relation = series(function, arguments, Some(value));
    }
    name_ordinality(&mut alias, 1);
    Ok(TableFactor::Derived {
        lateral: false,
        subquery: numbered,
        alias: Some(alias),
        sample: None,
    })
}

/// `(SELECT * FROM table) AS table`.
pub(super) fn derived(table: TableFactor) -> Result<TableFactor, ParserError> {
    let alias = match &table {
        TableFactor::UNNEST { alias, .. } => alias.as_ref().map(|alias| TableAlias {
            columns: Vec::new(),
            ..alias.clone()
        }),
        _ => None,
    };
    let mut subquery = Parser::new(&GenericDialect {})
        .try_with_sql("SELECT * FROM t")?
        .parse_query()?;
    if let SetExpr::Select(select) = subquery.body.as_mut()
        && let [tables] = select.from.as_mut_slice()
    {
        tables.relation = table;
    }
    Ok(TableFactor::Derived {
        lateral: false,
        subquery,
        alias,
        sample: None,
    })
}

/// The list of the numbers from 1 to the length of the longest of `lists`.
pub(super) fn ordinality(lists: &[Expr]) -> Result<Expr, ParserError> {
    let length = "coalesce(CAST(array_length(NULL) AS BIGINT), 0)";
    let longest = match lists {
        [_] => length.to_owned(),
        _ => format!("greatest({})", vec![length; lists.len()].join(", ")),
    };
    let template = format!("range(1, {longest} + 1)");
    let mut numbers = Parser::new(&GenericDialect {})
        .try_with_sql(&template)?
        .parse_expr()?;
    let _: ControlFlow<()> = VisitMut::visit(&mut numbers, &mut Fills(lists.iter()));
    Ok(numbers)
}

/// Puts expressions in the places of NULLs.
struct Fills<'a, I: Iterator<Item = &'a Expr>>(I);

impl<'a, I: Iterator<Item = &'a Expr>> VisitorMut for Fills<'a, I> {
    type Break = ();

    // After what is in it, lest NULLs of what was put are taken for places.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Value(value) = expr
            && value.value == Value::Null
            && let Some(filled) = self.0.next()
        {
            *expr = filled.clone();
        }
        ControlFlow::Continue(())
    }
}
