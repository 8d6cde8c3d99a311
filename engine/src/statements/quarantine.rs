//! CREATE QUARANTINE and DROP QUARANTINE.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast::ObjectName;
use skewer_compat::suggest::suggest;
use skewer_exec::ROW_ID;
use skewer_sql::quote::identifier;
use skewer_sql::{CreateQuarantine, ObjectKind};
use skewer_storage::{QuarantineMeta, Snapshot, TableMeta};

use super::{Context, Outcome};
use crate::catalog::Name;
use crate::catalog::native_table::NativeTable;
use crate::catalog::quarantine::TAKER;
use crate::catalog::row_predicate::RowPredicate;
use crate::error::Error;
use crate::session::Session;

/// What the generated name of a quarantine adds to its table's.
const SUFFIX: &str = "quarantine";

/// Keeps the rows of a predicate out of the queries of sessions that ask for it.
pub(crate) async fn create(
    context: &mut Context,
    create: CreateQuarantine,
) -> Result<Outcome, Error> {
    let snapshot = Arc::clone(context.catalog.snapshot());
    let table = table_of(context, &create.table)?;
    let name = match &create.name {
        Some(name) => beside(context, name, &table, "quarantine")?,
        None => free_name(&snapshot, &table),
    };
    if let Some((of, _)) = snapshot.quarantine(&table.schema_name, &name) {
        if create.if_not_exists && of.id == table.id {
            return Ok(Outcome::Done);
        }
        return Err(Error::Invalid(format!(
            "quarantine {name} of table {} exists already: give another name, or write DROP QUARANTINE {}",
            shown(&of),
            identifier(&name)
        )));
    }
    let view = create.view.as_ref();
    let view = view.map(|view| beside(context, view, &table, "view of the quarantine"));
    let view = view.transpose()?;
    if let Some(view) = &view {
        must_be_free(context, &table.schema_name, view)?;
    }
    let predicate = checked(context, &create, &table)?;
    let quarantine = QuarantineMeta::new(&name, &predicate, view.as_deref());
    let mut transaction = context.storage().begin();
    transaction.create_quarantine(table.id, quarantine)?;
    context.commit(transaction).await?;
    Ok(Outcome::Done)
}

/// Drops a quarantine, by its name or by its table.
pub(crate) async fn drop(
    context: &mut Context,
    if_exists: bool,
    name: Option<&ObjectName>,
    table: Option<&ObjectName>,
) -> Result<Outcome, Error> {
    let snapshot = Arc::clone(context.catalog.snapshot());
    let on = match table.map(|table| table_of(context, table)) {
        Some(Err(Error::UnknownTable { .. })) if if_exists => return Ok(Outcome::Done),
        other => other.transpose()?,
    };
    let found = match (name, &on) {
        (None, Some(table)) => match table.quarantines.keys().collect::<Vec<_>>().as_slice() {
            [] => None,
            [only] => Some((Arc::clone(table), (*only).clone())),
            several => {
                let names: Vec<_> = several.iter().map(|name| identifier(name)).collect();
                return Err(Error::Invalid(format!(
                    "table {} has several quarantines: {}; write DROP QUARANTINE and one of these names",
                    shown(table),
                    names.join(", ")
                )));
            }
        },
        (None, None) => {
            let text = "DROP QUARANTINE takes a name, or ON and a table";
            return Err(Error::Invalid(text.to_owned()));
        }
        (Some(name), on) => {
            let schema = on.as_ref().map(|table| table.schema_name.as_str());
            let schema = schema.unwrap_or(context.catalog.default_schema());
            let name = Name::resolve(name, schema)?;
            let found = snapshot.quarantine(&name.schema, &name.table);
            if let (Some((of, _)), Some(on)) = (&found, on)
                && of.id != on.id
            {
                return Err(Error::Invalid(format!(
                    "quarantine {} belongs to table {}, not to {}",
                    name.table,
                    shown(of),
                    shown(on)
                )));
            }
            if found.is_none() && !if_exists {
                return Err(unknown(&snapshot, &name));
            }
            found.map(|(table, _)| (table, name.table))
        }
    };
    let Some((table, name)) = found else {
        return match (if_exists, on) {
            (false, Some(table)) => Err(Error::Invalid(format!(
                "table {} has no quarantine",
                shown(&table)
            ))),
            _ => Ok(Outcome::Done),
        };
    };
    let mut transaction = context.storage().begin();
    transaction.drop_quarantine(table.id, &name)?;
    context.commit(transaction).await?;
    Ok(Outcome::Done)
}

/// A table of the database: others have no quarantines.
fn table_of(context: &Context, name: &ObjectName) -> Result<Arc<TableMeta>, Error> {
    context.catalog.resolve(name)?.must_be_writable()?;
    match context.catalog.writable_table(name) {
        Err(Error::ReadOnly { name, reason }) => Err(Error::Invalid(format!(
            "{name} can have no quarantine: {reason}; a quarantine is of a table of the database"
        ))),
        other => other,
    }
}

/// The table as messages call it.
fn shown(table: &TableMeta) -> Name {
    Name {
        schema: table.schema_name.clone(),
        table: table.name.clone(),
    }
}

/// The name of something that is in the schema of a table.
fn beside(
    context: &Context,
    name: &ObjectName,
    table: &TableMeta,
    what: &str,
) -> Result<String, Error> {
    let resolved = match name.0.len() {
        1 => Name::resolve(name, &table.schema_name)?,
        _ => context.catalog.resolve(name)?,
    };
    if resolved.schema != table.schema_name {
        return Err(Error::Invalid(format!(
            "the {what} is in the schema of its table {}: write {}",
            shown(table),
            identifier(&resolved.table)
        )));
    }
    Ok(resolved.table)
}

/// `t_quarantine`, or with a number if that is taken.
fn free_name(snapshot: &Snapshot, table: &TableMeta) -> String {
    let first = format!("{}_{SUFFIX}", table.name);
    let mut name = first.clone();
    let mut number = 1;
    while snapshot.quarantine(&table.schema_name, &name).is_some() {
        number += 1;
        name = format!("{first}_{number}");
    }
    name
}

fn must_be_free(context: &Context, schema: &str, view: &str) -> Result<(), Error> {
    let snapshot = context.catalog.snapshot();
    let kind = if snapshot.table(schema, view).is_some() {
        ObjectKind::Table
    } else if snapshot.view(schema, view).is_some() {
        ObjectKind::View
    } else {
        return Ok(());
    };
    let name = Name {
        schema: schema.to_owned(),
        table: view.to_owned(),
    };
    Err(Error::AlreadyExists {
        kind,
        name: name.to_string(),
    })
}

/// The predicate as the catalog keeps it: a condition that each session understands alike.
fn checked(
    context: &Context,
    create: &CreateQuarantine,
    table: &TableMeta,
) -> Result<String, Error> {
    let written = RowPredicate {
        taker: TAKER,
        expr: &create.predicate,
        source: &create.source,
        at: create.predicate_at,
    };
    let (predicate, columns) = written.columns()?;
    let fields = table.schema.fields().iter();
    let known: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
    for named in columns {
        if let Some(qualifier) = named.table.filter(|qualifier| *qualifier != table.name) {
            let text = format!(
                "{qualifier}.{} is no column of {}; a quarantine is about one table",
                named.column,
                shown(table)
            );
            return Err(written.placed(Error::Invalid(text), named.at));
        }
        if named.column != ROW_ID && !known.contains(&named.column.as_str()) {
            let error = Error::UnknownColumn {
                suggestions: suggest(&named.column, known.iter().copied()),
                name: named.column,
            };
            return Err(written.placed(error, named.at));
        }
    }
    let unqualified = RowPredicate {
        expr: &predicate,
        ..written
    };
    // A quarantine is for all sessions: functions of this one alone do not count.
    let fresh = Session::new(context.session.database().clone(), None);
    let table = Arc::new(table.clone());
    let rows = NativeTable::with_row_ids(&table, context.storage());
    let schema = DFSchema::try_from(rows.schema())?;
    let condition = unqualified.condition(&schema, &fresh.context().state())?;
    let refused = if condition.is_volatile() {
        Some("a function in a quarantine that may return another value each time")
    } else if condition.exists(|node| Ok(matches!(node, Expr::Placeholder(_))))? {
        Some("a parameter in a quarantine; write its value")
    } else {
        None
    };
    match refused {
        Some(what) => {
            let error = Error::Unsupported(what.to_owned());
            Err(written.placed(error, create.predicate_at))
        }
        None => Ok(predicate.to_string()),
    }
}

/// The error for a quarantine that is not there.
fn unknown(snapshot: &Snapshot, name: &Name) -> Error {
    let tables = snapshot.tables(&name.schema);
    let known = tables.iter().flat_map(|table| table.quarantines.keys());
    let known: Vec<&str> = known.map(String::as_str).collect();
    let near = suggest(&name.table, known.iter().copied());
    let hint = match (near.is_empty(), known.is_empty()) {
        (false, _) => format!(": did you mean {}?", near.join(", ")),
        (true, false) => format!("; there are {}", known.join(", ")),
        (true, true) => "; SELECT * FROM sys.quarantines shows the ones that there are".to_owned(),
    };
    Error::Invalid(format!("there is no quarantine {name}{hint}"))
}
