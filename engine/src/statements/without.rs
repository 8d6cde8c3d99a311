//! `WITHOUT [table] (predicate)`: a query without the rows of a base table that fulfil a predicate.

use std::collections::BTreeMap;

use datafusion::common::TableReference;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, SubqueryAlias, TableScan};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Location;
use skewer_compat::suggest::suggest;
use skewer_diagnosis::excluded_rows::ExcludedPredicate;
use skewer_diagnosis::table_sql;
use skewer_exec::ROW_ID;
use skewer_sql::Without;

use crate::catalog::names::{Name, split_row_ids};
use crate::catalog::row_predicate::{Keep, NamedColumn, RowPredicate, filtered, identified};
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
        let (predicate, columns) = written(clause, &clause.predicate).columns()?;
        let table = meant(clause, &columns, &tables, default_schema)?;
        let logged = table.logged.clone();
        plan = plan
            .transform_up_with_subqueries(|node| match node {
                LogicalPlan::TableScan(scan) if logged_name(&scan).as_ref() == Some(&logged) => {
                    let predicates = [written(clause, &predicate)];
                    let kept = filtered(scan, &predicates, Keep::Others, state);
                    Ok(Transformed::yes(kept.map_err(Error::into_datafusion)?))
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
            LogicalPlan::SubqueryAlias(aliased) => match scan_of(aliased) {
                Some(scan) => (scan, Some(aliased.alias.table().to_owned())),
                None => return Ok(TreeNodeRecursion::Continue),
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

/// The scan of the table that an alias names. A table with quarantines has an alias and a filter of
/// its own below that.
fn scan_of(aliased: &SubqueryAlias) -> Option<&TableScan> {
    match &*aliased.input {
        LogicalPlan::TableScan(scan) => Some(scan),
        LogicalPlan::SubqueryAlias(table) => {
            let mut below = &*table.input;
            loop {
                below = match below {
                    LogicalPlan::Projection(projection) => &projection.input,
                    LogicalPlan::Filter(filter) => &filter.input,
                    LogicalPlan::TableScan(scan) => {
                        let own = scan.table_name.table();
                        return (own == table.alias.table()).then_some(scan);
                    }
                    _ => return None,
                };
            }
        }
        _ => None,
    }
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

/// The table whose rows a clause means.
fn meant<'a>(
    clause: &Without,
    columns: &[NamedColumn],
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

/// The predicate of a clause, in its place.
fn written<'a>(clause: &'a Without, expr: &'a ast::Expr) -> RowPredicate<'a> {
    RowPredicate {
        taker: "WITHOUT",
        expr,
        source: &clause.source,
        at: clause.predicate_at,
    }
}

/// An error that shows its place in the statement.
fn placed(error: Error, clause: &Without, place: Location) -> Error {
    written(clause, &clause.predicate).placed(error, place)
}
