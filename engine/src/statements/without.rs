//! `WITHOUT [table] (predicate)`: a query without the rows of a base table that fulfil a predicate.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, TableReference};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr_rewriter::unalias;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, TableScan, not,
};
use datafusion::sql::sqlparser::ast::{self, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::Location;
use skewer_compat::suggest::suggest;
use skewer_diagnosis::excluded_rows::ExcludedPredicate;
use skewer_diagnosis::table_sql;
use skewer_exec::{IdentifiedTable, ROW_ID};
use skewer_sql::{SyntaxError, Without};

use crate::catalog::names::{Name, fold, split_row_ids};
use crate::error::Error;

/// A base table that a query reads.
struct Base {
    /// As in the log.
    logged: String,
    /// What the query calls it, in any of its places.
    names: Vec<String>,
    /// Those that the query gives it.
    aliases: Vec<String>,
    columns: Vec<String>,
}

/// The plan with a filter over every scan of the tables that the clauses mean, and what that
/// leaves out.
///
/// # Errors
/// That show the place in the predicate: a column that no table of the query has, or several have;
/// a predicate that is no condition.
pub(crate) fn leave_out(
    plan: LogicalPlan,
    clauses: &[Without],
    state: &SessionState,
    default_schema: &str,
) -> Result<(LogicalPlan, Vec<ExcludedPredicate>), Error> {
    let tables = base_tables(&plan)?;
    let mut plan = plan;
    let mut excluded = Vec::new();
    for clause in clauses {
        let (mut predicate, columns) = columns_of(clause)?;
        let table = meant(clause, &columns, &tables, default_schema)?;
        let logged = table.logged.clone();
        let _: ControlFlow<()> = predicate.visit(&mut Unqualify);
        plan = plan
            .transform_up_with_subqueries(|node| match node {
                LogicalPlan::TableScan(scan) if logged_name(&scan).as_ref() == Some(&logged) => {
                    let filtered = filtered(scan, clause, &predicate, state)
                        .map_err(Error::into_datafusion)?;
                    Ok(Transformed::yes(filtered))
                }
                other => Ok(Transformed::no(other)),
            })?
            .data;
        excluded.push(ExcludedPredicate {
            table: logged,
            predicate: predicate.to_string(),
        });
    }
    Ok((plan, excluded))
}

/// The tables that are read, by their names in the log.
fn base_tables(plan: &LogicalPlan) -> Result<Vec<Base>, Error> {
    let mut tables: BTreeMap<String, Base> = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        let (scan, alias) = match node {
            LogicalPlan::TableScan(scan) => (scan, None),
            LogicalPlan::SubqueryAlias(aliased) => match &*aliased.input {
                LogicalPlan::TableScan(scan) => (scan, Some(aliased.alias.table().to_owned())),
                _ => return Ok(TreeNodeRecursion::Continue),
            },
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        if let Some(logged) = logged_name(scan) {
            let schema = scan.source.schema();
            let columns = schema.fields().iter().map(|field| field.name().clone());
            let base = tables.entry(logged.clone()).or_insert_with(|| Base {
                logged,
                names: Vec::new(),
                aliases: Vec::new(),
                columns: columns.collect(),
            });
            if identified(scan).is_some() && !base.columns.iter().any(|name| name == ROW_ID) {
                base.columns.push(ROW_ID.to_owned());
            }
            let (own, _) = split_row_ids(scan.table_name.table());
            base.aliases.extend(alias.clone());
            base.names.extend(alias.or_else(|| Some(own.to_owned())));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(tables.into_values().collect())
}

fn identified(scan: &TableScan) -> Option<IdentifiedTable> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<IdentifiedTable>().cloned()
}

/// The table's name in the log; `None` if it is no table of the user's.
fn logged_name(scan: &TableScan) -> Option<String> {
    if let Some(table) = identified(scan) {
        return Some(table.log_name);
    }
    match &scan.table_name {
        TableReference::Bare { table } if table.ends_with("()") => None,
        TableReference::Bare { table } => Some(table.to_string()),
        TableReference::Partial { schema, table } | TableReference::Full { schema, table, .. } => {
            let is_system = matches!(&**schema, "sys" | "information_schema");
            (!is_system).then(|| format!("{schema}.{table}"))
        }
    }
}

/// A column that a predicate names.
struct Named {
    /// What stands before it.
    table: Option<String>,
    column: String,
    at: Location,
}

/// The columns of a clause's predicate, in their order; a predicate with subqueries is refused.
fn columns_of(clause: &Without) -> Result<(ast::Expr, Vec<Named>), Error> {
    struct Finder {
        columns: Vec<Named>,
        subquery: bool,
    }
    impl VisitorMut for Finder {
        type Break = ();
        fn pre_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
            self.subquery = true;
            ControlFlow::Break(())
        }
        fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
            let (table, column) = match &*expr {
                ast::Expr::Identifier(column) => (None, column),
                ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                    [.., table, column] => (Some(fold(table)), column),
                    _ => return ControlFlow::Continue(()),
                },
                _ => return ControlFlow::Continue(()),
            };
            self.columns.push(Named {
                table,
                column: fold(column),
                at: column.span.start,
            });
            ControlFlow::Continue(())
        }
    }
    let mut predicate = (*clause.predicate).clone();
    let mut finder = Finder {
        columns: Vec::new(),
        subquery: false,
    };
    let _: ControlFlow<()> = predicate.visit(&mut finder);
    if finder.subquery {
        let error = Error::Unsupported("a subquery in WITHOUT".to_owned());
        return Err(placed(error, clause, clause.predicate_at));
    }
    Ok((predicate, finder.columns))
}

/// Takes away what stands before columns.
struct Unqualify;

impl VisitorMut for Unqualify {
    type Break = ();
    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::CompoundIdentifier(parts) = expr
            && let Some(column) = parts.last()
        {
            *expr = ast::Expr::Identifier(column.clone());
        }
        ControlFlow::Continue(())
    }
}

/// The table whose rows a clause means.
fn meant<'a>(
    clause: &Without,
    columns: &[Named],
    tables: &'a [Base],
    default_schema: &str,
) -> Result<&'a Base, Error> {
    let all = || {
        let names = tables.iter().map(|table| table_sql(&table.logged));
        names.collect::<Vec<_>>().join(", ")
    };
    if tables.is_empty() {
        let error = Error::Invalid("the query reads no table whose rows could be left out".into());
        return Err(placed(error, clause, clause.place));
    }
    let mut candidates: Vec<&Base> = tables.iter().collect();
    if let Some(name) = &clause.table {
        let wanted = Name::resolve(name, default_schema)?;
        let logged = format!("{}.{}", wanted.schema, wanted.table);
        let is_called = |table: &Base| table.names.contains(&wanted.table);
        let itself = tables.iter().find(|table| table.logged == logged);
        // Others may have its name in other schemas, but not one that the query gives them.
        let is_alias = tables
            .iter()
            .any(|table| table.logged != logged && table.aliases.contains(&wanted.table));
        match itself.filter(|_| name.0.len() > 1 || !is_alias) {
            Some(itself) => candidates = vec![itself],
            None => candidates.retain(|table| {
                table.logged == logged || table.logged == wanted.table || is_called(table)
            }),
        }
        if candidates.is_empty() {
            let text = format!("the query does not read {name}; it reads {}", all());
            return Err(placed(Error::Invalid(text), clause, clause.place));
        }
    }
    for named in columns.iter().filter(|named| named.table.is_some()) {
        let qualifier = named.table.as_deref().unwrap_or_default();
        candidates.retain(|table| {
            table.names.iter().any(|name| name == qualifier)
                || table.logged.rsplit('.').next() == Some(qualifier)
        });
        if candidates.is_empty() {
            let text = format!(
                "{qualifier}.{} is no column of {}; a clause is about one table",
                named.column,
                all()
            );
            return Err(placed(Error::Invalid(text), clause, named.at));
        }
    }
    for named in columns {
        let has = |table: &&Base| table.columns.contains(&named.column);
        if !candidates.iter().any(has) {
            let known = candidates.iter().flat_map(|table| &table.columns);
            let mut suggestions = suggest(&named.column, known.map(String::as_str));
            suggestions.dedup();
            let name = named.column.clone();
            let error = match suggestions.is_empty() {
                true => Error::Invalid(format!(
                    "WITHOUT is about the columns of tables, not of views or of the result, and there is no \
                     column {name} in {}",
                    with_columns(&candidates)
                )),
                false => Error::UnknownColumn { name, suggestions },
            };
            return Err(placed(error, clause, named.at));
        }
        candidates.retain(has);
    }
    match candidates.as_slice() {
        [table] => Ok(table),
        several => {
            let names: Vec<String> = several
                .iter()
                .map(|table| table_sql(&table.logged))
                .collect();
            let text = format!(
                "several tables have these columns: {}; say which, as in WITHOUT {} ({})",
                names.join(", "),
                names[0],
                clause.text
            );
            Err(placed(Error::Invalid(text), clause, clause.place))
        }
    }
}

/// How many columns of a table are named.
const COLUMNS: usize = 12;

/// The tables, each with its first columns: `t (a, b), u (c, …)`.
fn with_columns(tables: &[&Base]) -> String {
    let named = tables.iter().map(|table| {
        let columns = table.columns.iter().filter(|name| *name != ROW_ID);
        let mut columns: Vec<&str> = columns.map(String::as_str).collect();
        if columns.len() > COLUMNS {
            columns.splice(COLUMNS.., ["…"]);
        }
        format!("{} ({})", table_sql(&table.logged), columns.join(", "))
    });
    named.collect::<Vec<_>>().join(", ")
}

/// A scan without the rows that fulfil the predicate. Rows for which it is NULL stay.
fn filtered(
    scan: TableScan,
    clause: &Without,
    predicate: &ast::Expr,
    state: &SessionState,
) -> Result<LogicalPlan, Error> {
    let columns = scan.projected_schema.columns();
    let hidden = scan
        .projected_schema
        .field_with_unqualified_name(ROW_ID)
        .is_err();
    let plain = LogicalPlan::TableScan(scan.clone());
    let over_ids = match identified(&scan) {
        Some(table) if hidden => {
            let source = provider_as_source(Arc::new(table.showing_ids()));
            LogicalPlanBuilder::scan(scan.table_name.clone(), source, None)?.build()?
        }
        _ => plain.clone(),
    };
    // Without need the scan stays as it is: there it may be read without row ids.
    let condition = condition(predicate, over_ids.schema(), clause, state)?;
    let needs_ids = hidden
        && condition
            .column_refs()
            .iter()
            .any(|column| column.name == ROW_ID);
    let input = if needs_ids { over_ids } else { plain };
    // Not IS NOT TRUE: DataFusion's operator for it may say NULL where its plan says it may not.
    let stays = condition.clone().is_null().or(not(condition));
    let filtered = LogicalPlanBuilder::from(input).filter(stays)?;
    let filtered = match needs_ids {
        true => filtered.project(columns.into_iter().map(Expr::Column))?,
        false => filtered,
    };
    Ok(filtered.build()?)
}

fn condition(
    predicate: &ast::Expr,
    schema: &DFSchema,
    clause: &Without,
    state: &SessionState,
) -> Result<Expr, Error> {
    let in_place = |error| placed(error, clause, clause.predicate_at);
    let sql = ast::ExprWithAlias {
        expr: predicate.clone(),
        alias: None,
    };
    let planned = state.create_logical_expr_from_sql_expr(sql, schema);
    let condition = unalias(planned.map_err(|error| in_place(error.into()))?);
    let of_many = condition.exists(|node| {
        let of_many = matches!(
            node,
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::Unnest(_)
        );
        Ok(of_many)
    })?;
    if of_many {
        let text = "WITHOUT takes a condition over single rows, without aggregate functions, window functions and unnest";
        return Err(in_place(Error::Invalid(text.to_owned())));
    }
    let kind = condition.get_type(schema);
    match kind.map_err(|error| in_place(error.into()))? {
        DataType::Boolean | DataType::Null => Ok(condition),
        other => {
            let text = format!("WITHOUT takes a condition, and this is {other}");
            Err(in_place(Error::Invalid(text)))
        }
    }
}

/// An error that shows its place in the statement.
fn placed(error: Error, clause: &Without, place: Location) -> Error {
    let at = SyntaxError::at_location(&clause.source, place, error.to_string());
    match at.line {
        0 => error,
        _ => Error::Placed {
            error: Box::new(error),
            place: at,
        },
    }
}
