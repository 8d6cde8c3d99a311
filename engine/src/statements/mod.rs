//! The life of a statement, one file per kind.
//!
//! 1. [`Session::sql`] hands the text to the database's threads: `execute`.
//! 2. `skewer_sql::parse` makes a [`Statement`] of it, or an error with a caret.
//! 3. `Context::begin` takes a snapshot (`catalog::StatementCatalog`), a `query_id` and a recorder
//!    at the session's level.
//! 4. For a query, `StatementCatalog::plan` makes row ids visible where they are named and lets
//!    DataFusion resolve names and types; `Context::stream` optimises the logical plan and hands
//!    it to `planning::plan_query`, which makes operators that record.
//! 5. The operators run while `QueryStream` is read. Statements that write read the stream
//!    themselves, write segments, and publish them in one transaction.
//! 6. At the end, however it comes, `StatementRecord` hands what was recorded to schema `sys`.
//!
//! [`Session::sql`]: crate::Session::sql

pub(crate) mod alter_table;
pub(crate) mod append;
mod context;
pub(crate) mod copy_from;
pub(crate) mod copy_to;
pub(crate) mod create_continuous_query;
pub(crate) mod create_external_table;
pub(crate) mod create_index;
pub(crate) mod create_stream;
pub(crate) mod create_table;
pub(crate) mod create_view;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod drop;
pub(crate) mod explain;
pub(crate) mod explain_profile;
pub(crate) mod export_page;
pub(crate) mod export_profile;
pub(crate) mod export_trace;
pub(crate) mod insert;
pub(crate) mod on_workers;
pub(crate) mod parameters;
pub(crate) mod prepare;
pub(crate) mod quarantine;
pub(crate) mod rebalance;
pub(crate) mod refresh;
pub(crate) mod rewrite;
pub(crate) mod schema;
pub(crate) mod set;
pub(crate) mod show;
pub(crate) mod show_profile;
pub(crate) mod truncate;
pub(crate) mod untraced;
pub(crate) mod update;
pub(crate) mod without;
pub(crate) mod write;

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast;
use futures::FutureExt;
use skewer_profiling::Level;
use skewer_sql::Statement;
use skewer_sql::traits::Recording;

pub(crate) use self::context::{Context, Outcome, Tracing};
use crate::catalog::StatementCatalog;
use crate::error::Error;
use crate::query_stream::QueryStream;
use crate::session::Session;
use crate::settings::ProfileSettings;

/// Runs one statement of a session.
pub(crate) async fn execute(session: &Session, sql: &str) -> Result<QueryStream, Error> {
    let statement = skewer_sql::parse(sql)?;
    execute_parsed(session, sql, statement).await
}

pub(crate) async fn execute_parsed(
    session: &Session,
    sql: &str,
    statement: Statement,
) -> Result<QueryStream, Error> {
    let is_execute = prepare::is_execute(&statement);
    let mut statement = prepare::resolve(session, statement)?;
    let sql = match is_execute {
        true => prepare::with_values(sql, &mut statement),
        false => Cow::Borrowed(sql),
    };
    if !statement.traits().is_read_only {
        session.refuse_if_read_only()?;
    }
    match statement {
        Statement::ExplainProfile(explain) => {
            return explain_profile::execute(session, explain).boxed().await;
        }
        Statement::ShowProfile {
            query_id,
            format,
            as_sql,
        } => {
            let options = skewer_report::Options { format, as_sql };
            return show_profile::execute(session, query_id, options)
                .boxed()
                .await;
        }
        Statement::ExportProfile {
            query_id,
            path,
            format,
        } => {
            let export = export_profile::export(session, query_id, &path, format);
            return export.boxed().await;
        }
        Statement::ImportProfile { path } => {
            return export_profile::import(session, &path).boxed().await;
        }
        _ => {}
    }
    let catalog = session.catalog();
    let tracing = tracing_of(session, &catalog, &statement);
    let context = Context::begin(session, catalog, &sql, tracing);
    let (context, outcome) = run(context, statement).await?;
    Box::pin(context.answer(outcome)).await
}

/// Runs a statement; if it fails it is recorded as failed.
pub(crate) async fn run(
    mut context: Context,
    statement: Statement,
) -> Result<(Context, Outcome), Error> {
    if statement.traits().is_queued {
        context.admit().await;
    }
    // On the heap: the caller's thread, which passes the future on, may have a small stack.
    match Box::pin(dispatch(&mut context, statement)).await {
        Ok(outcome) => Ok((context, outcome)),
        Err(error) => Err(context.fail(error).await),
    }
}

async fn dispatch(context: &mut Context, statement: Statement) -> Result<Outcome, Error> {
    match statement {
        Statement::Query(query) => context.query(as_statement(query)).await,
        Statement::Explain(explain) => explain::execute(context, *explain).await,
        Statement::CreateTable(table) => create_table::execute(context, *table).await,
        Statement::CreateExternalTable(table) => {
            create_external_table::execute(context, *table).await
        }
        Statement::CreateView(view) => create_view::execute(context, *view).await,
        Statement::CreateSchema {
            name,
            if_not_exists,
        } => schema::create(context, &name, if_not_exists).await,
        Statement::Drop {
            kind,
            if_exists,
            names,
            cascade,
        } => drop::execute(context, kind, if_exists, &names, cascade).await,
        Statement::CreateIndex(index) => create_index::execute(context, &index).await,
        // There is none.
        Statement::DropIndex => Ok(Outcome::Done),
        Statement::CreateQuarantine(create) => quarantine::create(context, *create).await,
        Statement::DropQuarantine {
            if_exists,
            name,
            table,
        } => quarantine::drop(context, if_exists, name.as_ref(), table.as_ref()).await,
        Statement::AlterTable(alter) => alter_table::execute(context, *alter).await,
        Statement::Truncate { if_exists, names } => {
            truncate::execute(context, if_exists, &names).await
        }
        Statement::Rebalance { names } => rebalance::execute(context, names).await,
        Statement::CreateStream(stream) => create_stream::execute(context, *stream).await,
        Statement::CreateContinuousQuery(query) => {
            create_continuous_query::execute(context, *query).await
        }
        Statement::Refresh { kind, name } => refresh::execute(context, kind, &name).await,
        Statement::Insert(insert) => insert::execute(context, *insert).await,
        Statement::Delete(delete) => delete::execute(context, *delete).await,
        Statement::Update(update) => update::execute(context, *update).await,
        Statement::CopyFrom(copy) => copy_from::execute(context, copy).await,
        Statement::CopyTo(copy) => copy_to::execute(context, copy).await,
        Statement::Set { name, value } => set::set(&context.session, &name, &value).await,
        Statement::Reset { name } => set::reset(&context.session, name.as_deref()).await,
        Statement::Show { name } => show::setting(&context.session, name.as_deref()),
        Statement::ShowTables { schema, like } => show::tables(context, schema, like).await,
        Statement::ShowSchemas => show::schemas(context),
        Statement::ShowCreate { kind, name } => show::create(context, kind, &name).await,
        Statement::Describe(name) => describe::table(context, &name).await,
        Statement::DescribeQuery(query) => describe::query(context, query).await,
        Statement::Prepare {
            name,
            types,
            statement,
        } => prepare::prepare(&context.session, name, types, *statement),
        Statement::Deallocate { name } => prepare::deallocate(&context.session, name),
        Statement::Other(statement) => other(context, *statement).await,
        Statement::ExplainProfile(_) => Err(Error::Unsupported(
            "EXPLAIN PROFILE within another statement".to_owned(),
        )),
        Statement::Recorded { .. } => Err(Error::Unsupported(
            "QUERY n without EXPLAIN PROFILE".to_owned(),
        )),
        Statement::Diff { .. } => Err(Error::Unsupported(
            "DIFF a, b without EXPLAIN PROFILE".to_owned(),
        )),
        Statement::ShowProfile { .. } => Err(Error::Unsupported(
            "SHOW PROFILE within another statement".to_owned(),
        )),
        Statement::ExportProfile { .. } | Statement::ImportProfile { .. } => Err(
            Error::Unsupported("EXPORT PROFILE and IMPORT PROFILE".to_owned()),
        ),
        Statement::Execute { .. } => Err(Error::Unsupported(
            "EXECUTE within another statement".to_owned(),
        )),
    }
}

/// What sqlparser knows and we have nothing of our own for.
async fn other(context: &mut Context, statement: DFStatement) -> Result<Outcome, Error> {
    let DFStatement::Statement(inner) = &statement else {
        return Err(Error::Unsupported(statement.to_string()));
    };
    match &**inner {
        ast::Statement::ShowFunctions { .. } => context.query(statement).await,
        ast::Statement::StartTransaction { .. }
        | ast::Statement::Commit { .. }
        | ast::Statement::Rollback { .. } => Err(Error::Unsupported(
            "transactions of several statements; each statement is a transaction of its own"
                .to_owned(),
        )),
        other => {
            let text = other.to_string();
            let words: Vec<_> = text.split_whitespace().take(2).collect();
            Err(Error::Unsupported(format!("{} …", words.join(" "))))
        }
    }
}

/// How a statement is recorded. Queries that read only schema `sys` leave no trace, so that looking at the last
/// query does not replace it.
fn tracing_of(session: &Session, catalog: &StatementCatalog, statement: &Statement) -> Tracing {
    if session.inner().read_only.is_some() {
        return Tracing::None;
    }
    let settings = *session.inner().profile.lock();
    match statement.traits().recording {
        Recording::Never => Tracing::None,
        Recording::Uncounted => Tracing::At(ProfileSettings {
            level: Level::Off,
            ..settings
        }),
        Recording::Query => match statement {
            Statement::Query(query) if catalog.reads_only_system(&as_statement(query.clone())) => {
                Tracing::None
            }
            _ => match settings.budget {
                Some(budget) if settings.level > Level::Off => Tracing::Within(budget, settings),
                _ => Tracing::At(settings),
            },
        },
        // What it runs has been resolved; the rest is refused, and recorded as failed.
        Recording::Always | Recording::Inner => Tracing::At(settings),
    }
}

/// A query as DataFusion's planner takes it.
pub(crate) fn as_statement(query: Box<ast::Query>) -> DFStatement {
    DFStatement::Statement(Box::new(ast::Statement::Query(query)))
}

/// One row that says how many rows were changed.
pub(crate) fn count_batch(count: u64) -> Result<RecordBatch, Error> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![count]));
    let schema = Schema::new(vec![Field::new("count", DataType::Int64, false)]);
    Ok(RecordBatch::try_new(Arc::new(schema), vec![column])?)
}

/// A result of text columns.
pub(crate) fn text_batch(
    columns: &[&str],
    rows: Vec<Vec<Option<String>>>,
) -> Result<RecordBatch, Error> {
    use datafusion::arrow::array::StringArray;
    let fields: Vec<_> = columns
        .iter()
        .map(|name| Field::new(*name, DataType::Utf8, true))
        .collect();
    let arrays = (0..columns.len())
        .map(|n| {
            let values = rows.iter().map(|row| row.get(n).and_then(|v| v.as_deref()));
            Arc::new(StringArray::from_iter(values)) as ArrayRef
        })
        .collect();
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    Ok(RecordBatch::try_new(schema, arrays)?)
}
