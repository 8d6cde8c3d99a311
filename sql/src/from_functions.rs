//! Functions in FROM: of the columns beside them, with ordinality, and what their columns are called.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, Select, TableAlias, TableAliasColumnDef, TableFactor, TableFunctionArgs,
    TableWithJoins, Value, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use crate::calls::differs_each_time;

/// What DataFusion calls the column of a series.
const VALUE: &str = "value";

/// Within the FROM of the blocks of `node`:
///
/// * A series of columns beside it, as in `FROM t, generate_series(1, t.n)`, is the `unnest` of its list:
///   DataFusion's function in FROM takes constants alone.
/// * `LATERAL unnest(t.list)` is `unnest(t.list)`, which sees what is beside it anyhow.
/// * `WITH ORDINALITY` is one more list.
/// * A series called `g` has a column `g`, as in PostgreSQL ([SELECT]: "if no column aliases are given").
///   It stays DataFusion's `value` where the statement names a column so.
/// * Functions without alias are called by their names, the second one `unnest_1`.
///
/// # Errors
/// WITH ORDINALITY of a list that is another each time, since it would be made twice.
///
/// [SELECT]: https://www.postgresql.org/docs/current/queries-table-expressions.html#QUERIES-TABLEFUNCTIONS
pub(crate) fn read_functions(node: &mut impl VisitMut) -> Result<(), ParserError> {
    let mut names = NamesValue(false);
    let _: ControlFlow<()> = node.visit(&mut names);
    let mut reads = Reads {
        names_value: names.0,
    };
    match node.visit(&mut reads) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Whether `table` may be a function that is read otherwise than DataFusion reads it.
pub(crate) fn is_function(table: &TableFactor) -> bool {
    matches!(
        table,
        TableFactor::UNNEST { .. }
            | TableFactor::Function { .. }
            | TableFactor::Table { args: Some(_), .. }
    )
}

/// Whether an expression is a column of name [`VALUE`].
struct NamesValue(bool);

impl VisitorMut for NamesValue {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let column = match expr {
            Expr::Identifier(column) => Some(&*column),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        self.0 |= column.is_some_and(|column| column.value.eq_ignore_ascii_case(VALUE));
        ControlFlow::Continue(())
    }
}

struct Reads {
    names_value: bool,
}

impl VisitorMut for Reads {
    type Break = ParserError;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<ParserError> {
        let mut block = Block {
            names_value: self.names_value,
            unnamed: Vec::new(),
        };
        for tables in &mut select.from {
            if let Err(error) = block.read(tables) {
                return ControlFlow::Break(error);
            }
        }
        ControlFlow::Continue(())
    }
}

/// A SELECT.
struct Block {
    names_value: bool,
    /// The functions so far that the statement gives no alias.
    unnamed: Vec<&'static str>,
}

impl Block {
    fn read(&mut self, tables: &mut TableWithJoins) -> Result<(), ParserError> {
        let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
        for table in std::iter::once(&mut tables.relation).chain(joined) {
            match table {
                TableFactor::NestedJoin {
                    table_with_joins, ..
                } => self.read(table_with_joins)?,
                table => {
                    if let Some(call) = Call::of(table) {
                        *table = self.table_of(call)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What stands in FROM for a call.
    fn table_of(&mut self, call: Call) -> Result<TableFactor, ParserError> {
        let is_list = call.function == "unnest" || call.ordinality || refers(&call.arguments);
        let before = self.unnamed.iter().filter(|name| **name == call.function);
        let number = before.count();
        let mut alias = match call.alias {
            Some(alias) => alias,
            None => {
                self.unnamed.push(call.function);
                // DataFusion has a name of its own for a series.
                if !is_list && number == 0 {
                    return Ok(series(call.function, call.arguments, None));
                }
                let name = match number {
                    0 => call.function.to_owned(),
                    _ => format!("{}_{number}", call.function),
                };
                let columns = match is_list && call.function == "unnest" {
                    true => Vec::new(),
                    false => vec![TableAliasColumnDef::from_name(VALUE)],
                };
                TableAlias {
                    explicit: true,
                    name: Ident::new(name),
                    columns,
                    at: None,
                }
            }
        };
        if call.function != "unnest" && alias.columns.is_empty() {
            let name = match self.names_value {
                true => Ident::new(VALUE),
                false => alias.name.clone(),
            };
            alias.columns.push(column(name));
        }
        if !is_list {
            return Ok(series(call.function, call.arguments, Some(alias)));
        }
        let mut lists = match call.function {
            "unnest" => call.arguments,
            function => vec![list(function, call.arguments)],
        };
        if call.ordinality {
            if differs_each_time(&lists) {
                return Err(ParserError::ParserError(format!(
                    "WITH ORDINALITY of {}, which is another list each time: make it in a subquery beside it",
                    lists[0]
                )));
            }
            name_columns(&mut alias, lists.len());
            if alias.columns.len() == lists.len() {
                alias
                    .columns
                    .push(TableAliasColumnDef::from_name("ordinality"));
            }
            lists.push(ordinality(&lists)?);
        }
        Ok(TableFactor::UNNEST {
            alias: Some(alias),
            array_exprs: lists,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality: false,
        })
    }
}

/// Gives names to the columns of `unnest` of so many lists that `alias` does not name: that of the table if
/// there is one.
pub fn name_columns(alias: &mut TableAlias, lists: usize) {
    for number in alias.columns.len()..lists {
        alias.columns.push(match (lists, number) {
            (1, _) => column(alias.name.clone()),
            (_, 0) => TableAliasColumnDef::from_name("unnest"),
            _ => TableAliasColumnDef::from_name(format!("unnest_{number}")),
        });
    }
}

fn column(name: Ident) -> TableAliasColumnDef {
    TableAliasColumnDef {
        name,
        data_type: None,
    }
}

/// A call in FROM of a function that makes rows of a list.
struct Call {
    function: &'static str,
    arguments: Vec<Expr>,
    ordinality: bool,
    alias: Option<TableAlias>,
}

impl Call {
    fn of(table: &mut TableFactor) -> Option<Self> {
        let (function, arguments, ordinality, alias) = match table {
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality,
            } => ("unnest", array_exprs.clone(), *with_ordinality, alias),
            TableFactor::Function {
                name,
                args,
                with_ordinality,
                alias,
                ..
            } => (function(name)?, values(args)?, *with_ordinality, alias),
            TableFactor::Table {
                name,
                args:
                    Some(TableFunctionArgs {
                        args,
                        settings: None,
                    }),
                with_ordinality,
                alias,
                sample: None,
                ..
            } => (function(name)?, values(args)?, *with_ordinality, alias),
            _ => return None,
        };
        if arguments.is_empty() {
            return None;
        }
        Some(Self {
            function,
            arguments,
            ordinality,
            alias: alias.take(),
        })
    }
}

/// The function of this name.
fn function(name: &ObjectName) -> Option<&'static str> {
    let [part] = name.0.as_slice() else {
        return None;
    };
    let name = &part.as_ident()?.value;
    let functions = ["unnest", "generate_series", "range"];
    functions
        .into_iter()
        .find(|function| name.eq_ignore_ascii_case(function))
}

/// The arguments, if none has a name.
fn values(arguments: &[FunctionArg]) -> Option<Vec<Expr>> {
    let value = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    };
    arguments.iter().map(value).collect()
}

/// Whether columns, or queries, are among the arguments.
fn refers(arguments: &[Expr]) -> bool {
    struct Refers;

    impl Visitor for Refers {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_)
                | Expr::CompoundIdentifier(_)
                | Expr::Subquery(_)
                | Expr::Exists { .. }
                | Expr::InSubquery { .. } => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let mut arguments = arguments.iter();
    arguments.any(|argument| Visit::visit(argument, &mut Refers).is_break())
}

/// A series of constants in FROM.
fn series(function: &str, arguments: Vec<Expr>, alias: Option<TableAlias>) -> TableFactor {
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

/// A series as a list.
fn list(function: &str, arguments: Vec<Expr>) -> Expr {
    let arguments = arguments.into_iter();
    let args = arguments.map(|value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(function)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The list of the numbers from 1 to the length of the longest of `lists`.
fn ordinality(lists: &[Expr]) -> Result<Expr, ParserError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Result<String, ParserError> {
        let mut statements = Parser::parse_sql(&GenericDialect {}, sql)?;
        read_functions(&mut statements)?;
        Ok(statements[0].to_string())
    }

    #[test]
    fn functions_in_from_are_read_as_datafusion_can() {
        for (sql, expected) in [
            (
                "SELECT g FROM generate_series(1, 3) AS g",
                "SELECT g FROM generate_series(1, 3) AS g (g)",
            ),
            (
                "SELECT g.value FROM generate_series(1, 3) AS g",
                "SELECT g.value FROM generate_series(1, 3) AS g (value)",
            ),
            (
                "SELECT * FROM range(2), range(3)",
                "SELECT * FROM range(2), range(3) AS range_1 (value)",
            ),
            (
                "SELECT n FROM t, generate_series(1, t.n) AS g(n)",
                "SELECT n FROM t, UNNEST(generate_series(1, t.n)) AS g (n)",
            ),
            (
                "SELECT * FROM t LEFT JOIN LATERAL unnest(t.a) AS u ON true",
                "SELECT * FROM t LEFT JOIN UNNEST(t.a) AS u ON true",
            ),
            (
                "SELECT * FROM t, unnest(t.a), (u CROSS JOIN unnest(u.b, [NULL]))",
                "SELECT * FROM t, UNNEST(t.a) AS unnest, (u CROSS JOIN UNNEST(u.b, [NULL]) AS unnest_1)",
            ),
            (
                "SELECT * FROM unnest([NULL, 2]) WITH ORDINALITY AS u(x)",
                "SELECT * FROM UNNEST([NULL, 2], range(1, coalesce(CAST(array_length([NULL, 2]) AS BIGINT), 0) + 1)) AS u (x, ordinality)",
            ),
        ] {
            assert_eq!(read(sql).unwrap(), expected);
        }
        let ordinality = "coalesce(CAST(array_length(t.a) AS BIGINT), 0), \
                          coalesce(CAST(array_length([1]) AS BIGINT), 0)";
        assert_eq!(
            read("SELECT * FROM t, unnest(t.a, [1]) WITH ORDINALITY").unwrap(),
            format!(
                "SELECT * FROM t, UNNEST(t.a, [1], range(1, greatest({ordinality}) + 1)) \
                 AS unnest (unnest, unnest_1, ordinality)"
            )
        );
    }

    #[test]
    fn a_list_that_is_another_each_time_has_no_ordinality() {
        let error = read("SELECT * FROM unnest([random()]) WITH ORDINALITY").unwrap_err();
        assert!(error.to_string().contains("[random()]"), "{error}");
    }
}
