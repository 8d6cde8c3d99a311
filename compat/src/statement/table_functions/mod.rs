//! Functions in FROM: of the columns beside them, with ordinality, and what their columns are called.

mod calls;
mod named_columns;
mod replacements;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    JoinConstraint, JoinOperator, Select, Statement, TableAlias, TableAliasColumnDef, TableFactor,
    TableWithJoins, TimezoneInfo, UpdateTableFromKind, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::parser::ParserError;

use self::calls::{Call, function};
use self::named_columns::Named;
use self::replacements::{derived, numbered_series, ordinality, series};
use crate::statement::function_calls::{called, differs_each_time};
use crate::statement::names::fold;
use crate::statement::using_join::constraint;

/// What DataFusion calls the column of a series.
const VALUE: &str = "value";

/// In FROM, of SELECT blocks, UPDATE and DELETE:
///
/// * A series of columns beside it, as in `FROM t, generate_series(1, t.n)`, is the `unnest` of its list:
///   DataFusion's function in FROM takes constants alone.
/// * `LATERAL unnest(t.list)` is `unnest(t.list)`, which sees what is beside it anyhow.
/// * `WITH ORDINALITY` is one more list; of a series of constants, the number of a row.
/// * A series called `g` has a column `g`, as in PostgreSQL ([Table Functions]). It is `value`, as DataFusion calls
///   it, where the statement says `g.value` or `USING (value)`, or `value` though it reads nothing but functions.
/// * Functions without alias are called by their names, the second one `unnest_1`.
///
/// # Errors
/// WITH ORDINALITY of a list that is another each time, since it would be made twice.
///
/// [Table Functions]: https://www.postgresql.org/docs/current/queries-table-expressions.html#QUERIES-TABLEFUNCTIONS
pub(crate) fn rewrite_table_functions(node: &mut impl VisitMut) -> Result<(), ParserError> {
    let mut column_definition = Named::default();
    let _: ControlFlow<()> = node.visit(&mut column_definition);
    match node.visit(&mut Reads { column_definition }) {
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

struct Reads {
    column_definition: Named,
}

impl Reads {
    fn read(&self, all: &mut [TableWithJoins]) -> ControlFlow<ParserError> {
        let mut block = Block {
            column_definition: &self.column_definition,
            unnamed: Vec::new(),
        };
        for tables in all {
            if let Err(error) = block.read(tables) {
                return ControlFlow::Break(error);
            }
        }
        ControlFlow::Continue(())
    }
}

impl VisitorMut for Reads {
    type Break = ParserError;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<ParserError> {
        match statement {
            Statement::Update(update) => match &mut update.from {
                Some(
                    UpdateTableFromKind::BeforeSet(tables) | UpdateTableFromKind::AfterSet(tables),
                ) => self.read(tables),
                None => ControlFlow::Continue(()),
            },
            Statement::Delete(delete) => match &mut delete.using {
                Some(tables) => self.read(tables),
                None => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<ParserError> {
        self.read(&mut select.from)
    }
}

/// The FROM of one block.
struct Block<'a> {
    column_definition: &'a Named,
    /// The functions so far that the statement gives no alias.
    unnamed: Vec<&'static str>,
}

impl Block<'_> {
    fn read(&mut self, tables: &mut TableWithJoins) -> Result<(), ParserError> {
        self.read_table(&mut tables.relation, None)?;
        for join in &mut tables.joins {
            self.read_table(&mut join.relation, Some(&join.join_operator))?;
        }
        Ok(())
    }

    /// Reads what is first in FROM, or what is joined.
    fn read_table(
        &mut self,
        table: &mut TableFactor,
        joined: Option<&JoinOperator>,
    ) -> Result<(), ParserError> {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = table
        {
            return self.read(table_with_joins);
        }
        let Some(call) = Call::of_table(table) else {
            return Ok(());
        };
        let is_constant = !refers(&call.arguments);
        *table = self.table_of(call, joined.is_some_and(|join| is_key(join, VALUE)))?;
        let has_rows_of_its_own = matches!(
            joined,
            Some(JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_))
        );
        // DataFusion takes it for LATERAL, which cannot be on the right of them.
        if has_rows_of_its_own && is_constant && matches!(table, TableFactor::UNNEST { .. }) {
            *table = derived(table.clone())?;
        }
        Ok(())
    }

    /// What stands in FROM for a call, whose column is called `value` in any case if `is_value`.
    fn table_of(&mut self, mut call: Call, is_value: bool) -> Result<TableFactor, ParserError> {
        let is_series = call.function != UNNEST;
        let has_alias = call.alias.is_some();
        let mut alias = match call.alias.take() {
            Some(alias) => alias,
            None => self.alias_of(call.function),
        };
        if is_series && alias.columns.is_empty() {
            let column = match is_value {
                true => Ident::new(VALUE),
                false => self.column_definition.column_of(&alias.name, has_alias),
            };
            alias.columns.push(column_definition(column));
        }
        let is_constant = !refers(&call.arguments);
        if is_series && is_constant {
            return match call.ordinality {
                false => Ok(series(call.function, call.arguments, Some(alias))),
                true => numbered_series(call.function, call.arguments, alias),
            };
        }
        let mut lists = match is_series {
            true => vec![called(call.function, call.arguments, None)],
            false => call.arguments,
        };
        if call.ordinality {
            let mut all = lists.iter();
            if let Some(list) = all.find(|list| differs_each_time(std::slice::from_ref(*list))) {
                return Err(ParserError::ParserError(format!(
                    "WITH ORDINALITY of {list}, which is another list each time: make it in a subquery beside it"
                )));
            }
            name_columns(&mut alias, lists.len());
            name_ordinality(&mut alias, lists.len());
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

    /// The name of a function that has none.
    fn alias_of(&mut self, function: &'static str) -> TableAlias {
        let before = self.unnamed.iter().filter(|name| **name == function);
        let name = match before.count() {
            0 => function.to_owned(),
            number => format!("{function}_{number}"),
        };
        self.unnamed.push(function);
        TableAlias {
            explicit: true,
            name: Ident::new(name),
            columns: Vec::new(),
            at: None,
        }
    }
}

/// The function that is given its lists.
const UNNEST: &str = "unnest";

/// Gives names to the columns of `unnest` of so many lists that `alias` does not name: that of the table if
/// there is one.
pub fn name_columns(alias: &mut TableAlias, lists: usize) {
    for number in alias.columns.len()..lists {
        alias.columns.push(match (lists, number) {
            (1, _) => column_definition(alias.name.clone()),
            (_, 0) => TableAliasColumnDef::from_name(UNNEST),
            _ => TableAliasColumnDef::from_name(format!("{UNNEST}_{number}")),
        });
    }
}

/// The same for the column after those of so many lists.
fn name_ordinality(alias: &mut TableAlias, lists: usize) {
    if alias.columns.len() == lists {
        let ordinality = TableAliasColumnDef::from_name("ordinality");
        alias.columns.push(ordinality);
    }
}

fn column_definition(name: Ident) -> TableAliasColumnDef {
    TableAliasColumnDef {
        name,
        data_type: None,
    }
}

/// Whether columns, or queries, are among the arguments.
pub(crate) fn refers(arguments: &[Expr]) -> bool {
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

/// Series in `list` which begin or end with what `is_date`, as series of timestamps, as DataFusion has them in
/// FROM. Its list of dates ends a step early, and has no steps of hours.
pub fn with_times(list: &mut Expr, mut is_date: impl FnMut(&Expr) -> bool) {
    let _: ControlFlow<()> = ast::visit_expressions_mut(list, |part| {
        if let Expr::Function(call) = part
            && function(&call.name).is_some_and(|function| function != UNNEST)
            && let FunctionArguments::List(arguments) = &mut call.args
        {
            for argument in &mut arguments.args {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(time)) = argument
                    && is_date(time)
                {
                    *time = Expr::Cast {
                        kind: CastKind::Cast,
                        expr: Box::new(time.clone()),
                        data_type: DataType::Timestamp(None, TimezoneInfo::None),
                        array: false,
                        format: None,
                    };
                }
            }
        }
        ControlFlow::Continue(())
    });
}

/// Whether tables are joined by a column of that name.
fn is_key(join: &JoinOperator, name: &str) -> bool {
    let Some(JoinConstraint::Using(columns)) = constraint(join) else {
        return false;
    };
    let mut columns = columns
        .iter()
        .filter_map(|column| column.0.last()?.as_ident());
    columns.any(|column| fold(column) == name)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn read(sql: &str) -> Result<String, ParserError> {
        let mut statements = Parser::parse_sql(&GenericDialect {}, sql)?;
        rewrite_table_functions(&mut statements)?;
        Ok(statements[0].to_string())
    }

    #[test]
    fn functions_in_from_are_read_as_datafusion_can() {
        for (sql, expected) in [
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
                "SELECT * FROM range(2), range(3)",
                "SELECT * FROM range(2) AS range (value), range(3) AS range_1 (value)",
            ),
            (
                "SELECT * FROM unnest([NULL, 2]) WITH ORDINALITY AS u(x)",
                "SELECT * FROM UNNEST([NULL, 2], \
                 range(1, coalesce(CAST(array_length([NULL, 2]) AS BIGINT), 0) + 1)) AS u (x, ordinality)",
            ),
            (
                "SELECT * FROM t, unnest(t.a, [1]) WITH ORDINALITY",
                "SELECT * FROM t, UNNEST(t.a, [1], \
                 range(1, greatest(coalesce(CAST(array_length(t.a) AS BIGINT), 0), \
                 coalesce(CAST(array_length([1]) AS BIGINT), 0)) + 1)) \
                 AS unnest (unnest, unnest_1, ordinality)",
            ),
            (
                "SELECT * FROM generate_series(5, 1, -2) WITH ORDINALITY AS g",
                "SELECT * FROM (SELECT value, row_number() OVER () \
                 FROM generate_series(5, 1, -2) AS generate_series (value)) AS g (g, ordinality)",
            ),
            (
                "SELECT * FROM t RIGHT JOIN unnest([1, 2]) AS x ON t.a = x",
                "SELECT * FROM t RIGHT JOIN (SELECT * FROM UNNEST([1, 2]) AS x) AS x ON t.a = x",
            ),
            (
                "UPDATE t SET a = g FROM generate_series(1, t.n) AS g",
                "UPDATE t SET a = g FROM UNNEST(generate_series(1, t.n)) AS g (g)",
            ),
            (
                "DELETE FROM t USING LATERAL unnest(t.a) AS x WHERE x = 1",
                "DELETE FROM t USING UNNEST(t.a) AS x WHERE x = 1",
            ),
        ] {
            assert_eq!(read(sql).unwrap(), expected);
        }
    }

    #[test]
    fn the_column_of_a_series_is_called_as_the_statement_calls_it() {
        for (sql, column) in [
            ("SELECT * FROM range(3) AS g", "g"),
            ("SELECT g FROM range(3) AS g", "g"),
            ("SELECT g.g FROM range(3) AS g", "g"),
            (
                "SELECT g, 1 AS value FROM range(3) AS g ORDER BY value",
                "g",
            ),
            ("SELECT g, m.value FROM m, range(3) AS g", "g"),
            ("SELECT G FROM range(3) AS g", "g"),
            ("SELECT \"G\" FROM range(3) AS \"G\"", "\"G\""),
            ("SELECT g.value FROM range(3) AS g", "value"),
            ("SELECT value FROM range(3) AS g", "value"),
            // It may be of what is around.
            ("SELECT value FROM m, range(3) AS g", "g"),
            (
                "SELECT value FROM m WHERE EXISTS (SELECT 1 FROM range(3) AS g WHERE value = 1)",
                "g",
            ),
            ("SELECT 1 FROM m JOIN n USING (value), range(3) AS g", "g"),
            ("SELECT * EXCLUDE (value) FROM range(3) AS g", "value"),
            ("SELECT * RENAME (value AS v) FROM range(3) AS g", "value"),
            ("SELECT 1 FROM m JOIN range(3) AS g USING (value)", "value"),
        ] {
            let read = read(sql).unwrap();
            let (_, columns) = read.rsplit_once("range(3) AS ").unwrap();
            assert!(columns.contains(&format!("({column})")), "{sql}: {read}");
        }
        let unnamed = read("SELECT range FROM range(3)").unwrap();
        assert_eq!(unnamed, "SELECT range FROM range(3) AS range (range)");
    }

    #[test]
    fn a_list_that_is_another_each_time_has_no_ordinality() {
        let error = read("SELECT * FROM unnest([1], [random()]) WITH ORDINALITY").unwrap_err();
        assert!(
            error.to_string().contains("ORDINALITY of [random()]"),
            "{error}"
        );
    }
}
