//! DROP TABLE, DROP VIEW, DROP SCHEMA.

use datafusion::sql::sqlparser::ast::ObjectName;
use skewer_compat::suggest::suggest;
use skewer_sql::ObjectKind;
use skewer_storage::Transaction;

use super::schema::schema_name;
use super::{Context, Outcome, refresh};
use crate::catalog::names::read_only;
use crate::catalog::{INFORMATION_SCHEMA, MAIN, SYS};
use crate::error::Error;

/// Drops all of `names` or none.
pub(crate) async fn execute(
    context: &mut Context,
    kind: ObjectKind,
    if_exists: bool,
    names: &[ObjectName],
    cascade: bool,
) -> Result<Outcome, Error> {
    let mut transaction = context.storage().begin();
    for name in names {
        match kind {
            ObjectKind::Schema => drop_schema(context, &mut transaction, name, if_exists, cascade)?,
            ObjectKind::Stream => drop_stream(context, &mut transaction, name, if_exists)?,
            ObjectKind::ContinuousQuery => {
                drop_continuous_query(context, &mut transaction, name, if_exists)?;
            }
            _ => drop_relation(context, &mut transaction, kind, name, if_exists)?,
        }
    }
    context.commit(transaction).await?;
    // Streams and continuous queries that are gone must not run on.
    let database = context.session.database_inner();
    database.streams.reconcile(database);
    Ok(Outcome::Done)
}

fn drop_stream(
    context: &Context,
    transaction: &mut Transaction,
    name: &ObjectName,
    if_exists: bool,
) -> Result<(), Error> {
    match refresh::stream(&context.catalog, name) {
        Ok(stream) => Ok(transaction.drop_table(&stream.schema_name, &stream.name)?),
        Err(Error::UnknownObject { .. }) if if_exists => Ok(()),
        Err(error) => Err(error),
    }
}

fn drop_continuous_query(
    context: &Context,
    transaction: &mut Transaction,
    name: &ObjectName,
    if_exists: bool,
) -> Result<(), Error> {
    match refresh::continuous_query(&context.catalog, name) {
        Ok(query) => Ok(transaction.drop_continuous_query(query.id)?),
        Err(Error::UnknownObject { .. }) if if_exists => Ok(()),
        Err(error) => Err(error),
    }
}

fn drop_relation(
    context: &Context,
    transaction: &mut Transaction,
    kind: ObjectKind,
    name: &ObjectName,
    if_exists: bool,
) -> Result<(), Error> {
    let name = context.catalog.resolve(name)?;
    name.must_be_writable()?;
    let snapshot = context.catalog.snapshot();
    let table = snapshot.table(&name.schema, &name.table);
    let is_table = table.is_some();
    let is_stream = table.is_some_and(|table| snapshot.stream(table.id).is_some());
    let view = snapshot.view(&name.schema, &name.table);
    let is_external = view
        .as_ref()
        .is_some_and(|view| view.sql.starts_with("CREATE EXTERNAL"));
    let wrong = |it_is: &str| {
        Err(Error::Invalid(format!(
            "{name} is a {it_is}: write DROP {}",
            it_is.to_uppercase()
        )))
    };
    if is_stream {
        return wrong("stream");
    }
    match (
        kind,
        is_table || is_external,
        view.is_some() && !is_external,
    ) {
        (ObjectKind::View, true, _) => wrong("table"),
        (ObjectKind::View, _, true) => Ok(transaction.drop_view(&name.schema, &name.table)?),
        (_, _, true) => wrong("view"),
        (_, true, _) if is_external => Ok(transaction.drop_view(&name.schema, &name.table)?),
        (_, true, _) => Ok(transaction.drop_table(&name.schema, &name.table)?),
        _ if if_exists => Ok(()),
        _ => Err(context.catalog.unknown_table(&name)),
    }
}

fn drop_schema(
    context: &Context,
    transaction: &mut Transaction,
    name: &ObjectName,
    if_exists: bool,
    cascade: bool,
) -> Result<(), Error> {
    let name = schema_name(name)?;
    if name == SYS || name == INFORMATION_SCHEMA {
        return Err(read_only(&name));
    }
    if name == MAIN {
        return Err(Error::ReadOnly {
            name,
            reason: "names without a schema are in it".to_owned(),
        });
    }
    if !context.catalog.snapshot().has_schema(&name) {
        if if_exists {
            return Ok(());
        }
        let known = context.catalog.schema_names();
        return Err(Error::UnknownSchema {
            suggestions: suggest(&name, known.iter().map(String::as_str)),
            name,
        });
    }
    if !cascade && !context.catalog.relation_names(&name).is_empty() {
        return Err(Error::Invalid(format!(
            "schema {name} is not empty: write DROP SCHEMA {name} CASCADE"
        )));
    }
    Ok(transaction.drop_schema(&name, cascade)?)
}
