//! CREATE CONTINUOUS QUERY.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Query, visit_relations_mut};
use skewer_sql::quote::identifier;
use skewer_sql::{CreateContinuousQuery, ObjectKind, sql_name};
use skewer_storage::{Progress, TableMeta};

use super::{Context, Outcome, as_statement, insert};
use crate::catalog::StatementCatalog;
use crate::catalog::names::{Name, split_row_ids};
use crate::catalog::planned::shown_columns;
use crate::error::Error;
use crate::streams::definition;
use crate::streams::input::qualified;
use crate::streams::rewrite::{RowRange, Rows, StreamTable, batch_query};
use crate::streams::window::{Closing, Windows};

/// Creates a continuous query, whose first micro-batch begins with the oldest row that its stream has.
pub(crate) async fn execute(
    context: &mut Context,
    mut query: CreateContinuousQuery,
) -> Result<Outcome, Error> {
    let name = context.catalog.resolve(&query.name)?;
    name.must_be_writable()?;
    let snapshot = Arc::clone(context.catalog.snapshot());
    if !snapshot.has_schema(&name.schema) {
        return Err(context.catalog.unknown_table(&name));
    }
    if snapshot
        .continuous_query(&name.schema, &name.table)
        .is_some()
    {
        if query.if_not_exists {
            return Ok(Outcome::Done);
        }
        return Err(Error::AlreadyExists {
            kind: ObjectKind::ContinuousQuery,
            name: name.to_string(),
        });
    }
    definition::level(&query)?;
    definition::remedies(&query)?;
    let stream = stream_of(&context.catalog, &query.query)?;
    let watermark = match snapshot.stream(stream.id) {
        Some(meta) => definition::watermark(&definition::stream(&meta.sql)?),
        None => None,
    };
    let windows = definition::windows(&query.query, watermark.as_ref())?;
    qualify(&context.catalog, &mut query);
    let table = StreamTable {
        name: &qualified(&stream),
        columns: &stream.schema,
        time: watermark.as_ref().map(|(column, _)| column.as_str()),
    };
    let select = batch_query(&query.query, table, first_rows(windows))?;
    let plan = context.catalog.plan(as_statement(select.clone())).await?;
    if let Some(table) = context.catalog.touched().registered.first() {
        return Err(Error::Invalid(format!(
            "continuous query {name} cannot read {table}: the program registered it for this session alone; \
             create a table from it"
        )));
    }
    refuse_incomplete(&plan, windows.is_some(), watermark.as_ref())?;
    match context.catalog.writable_table(&query.target) {
        Ok(target) => {
            insert::of_query(context, select, &target).await?;
        }
        Err(Error::UnknownTable { name, .. }) => return Err(missing_target(&name, &plan)),
        Err(error) => return Err(error),
    }

    query.if_not_exists = false;
    let sql = query.to_string();
    // INSERT may have come further than the snapshot: the query begins with the stream's first row.
    let progress = Progress::default();
    let mut transaction = context.storage().begin();
    transaction.create_continuous_query(&name.schema, &name.table, stream.id, &sql, progress)?;
    context.commit(transaction).await?;
    let database = context.session.database_inner();
    database.streams.reconcile(database);
    Ok(Outcome::Done)
}

/// The stream that a query reads.
fn stream_of(catalog: &Arc<StatementCatalog>, query: &Query) -> Result<Arc<TableMeta>, Error> {
    let found = |name: &ObjectName| {
        let name = catalog.resolve(name).ok()?;
        let table = catalog
            .snapshot()
            .table(&name.schema, split_row_ids(&name.table).0)?;
        catalog.snapshot().stream(table.id).map(|_| table)
    };
    let ctes = definition::cte_names(query);
    let name = definition::stream_name(query, |name| {
        found(name).is_some() && !ctes.contains(&name.to_string())
    });
    let name = match name {
        Ok(name) => name,
        Err(error) => {
            // A name that is not there is the mistake to tell.
            catalog.check(&as_statement(Box::new(query.clone())))?;
            return Err(error);
        }
    };
    found(&name).ok_or_else(|| Error::Internal(format!("{name} is no stream")))
}

/// Writes names with their schemas: the session that runs micro-batches has another default schema.
fn qualify(catalog: &Arc<StatementCatalog>, query: &mut CreateContinuousQuery) {
    let ctes: BTreeSet<String> = definition::cte_names(&query.query).into_iter().collect();
    let with_schema = |name: &mut ObjectName| {
        let Ok(resolved) = catalog.resolve(name) else {
            return;
        };
        let Name { schema, table } = &resolved;
        let is_cte = name.0.len() == 1 && ctes.contains(table);
        if !is_cte && catalog.snapshot().has_schema(schema) && catalog.exists(&resolved)
            || *name == query.target
        {
            *name = object_name(schema, table);
        }
    };
    let mut select = query.query.clone();
    let _: ControlFlow<()> = visit_relations_mut(&mut *select, |name| {
        with_schema(name);
        ControlFlow::Continue(())
    });
    let mut target = query.target.clone();
    with_schema(&mut target);
    query.query = select;
    query.target = target;
    if let Ok(Name { schema, table }) = catalog.resolve(&query.name) {
        query.name = object_name(&schema, &table);
    }
}

fn object_name(schema: &str, table: &str) -> ObjectName {
    let ident = |name: &str| match identifier(name).starts_with('"') {
        true => Ident::with_quote('"', name),
        false => Ident::new(name),
    };
    ObjectName::from(vec![ident(schema), ident(table)])
}

/// No rows at all, to plan the query with.
fn first_rows(windows: Option<Windows>) -> Rows {
    let range = RowRange { from: 0, to: 0 };
    match windows {
        None => Rows::Each(range),
        Some(windows) => {
            let closing = Closing {
                after: Some(0),
                last: windows.slide,
            };
            Rows::Windows(range, windows, closing)
        }
    }
}

/// Refuses what needs rows of several micro-batches, where the stream's rows pass through it.
fn refuse_incomplete(
    plan: &LogicalPlan,
    is_windowed: bool,
    watermark: Option<&(String, i64)>,
) -> Result<(), Error> {
    // The stream's rows are in the first input of each node; SELECT has at most one aggregate there.
    let mut wrong = None;
    plan.apply(|node| {
        let refused = match node {
            LogicalPlan::Window(_) => "a window function, as OVER (…),",
            LogicalPlan::Distinct(_) => "DISTINCT",
            LogicalPlan::Aggregate(_) if !is_windowed => {
                wrong = Some(definition::without_window(watermark));
                return Ok(TreeNodeRecursion::Stop);
            }
            // What is below the query itself is of other tables.
            LogicalPlan::Join(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_) => {
                return Ok(TreeNodeRecursion::Jump);
            }
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        wrong = Some(Error::Unsupported(format!(
            "{refused} in a continuous query: a micro-batch has only a part of the rows. Compute it when you read \
             the target table"
        )));
        Ok(TreeNodeRecursion::Stop)
    })?;
    wrong.map_or(Ok(()), Err)
}

/// The error for a target that is not there, which says how to create it.
fn missing_target(name: &str, plan: &LogicalPlan) -> Error {
    let schema = shown_columns(plan.schema().inner());
    let columns: Vec<String> = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(place, field)| {
            let is_plain = identifier(field.name()) == *field.name();
            let column = match is_plain {
                true => field.name().clone(),
                false => format!("column{}", place + 1),
            };
            format!("{column} {}", sql_name(field.data_type()))
        })
        .collect();
    Error::Invalid(format!(
        "table {name}, the target of the continuous query, does not exist: write CREATE TABLE {name} ({}) first",
        columns.join(", ")
    ))
}
