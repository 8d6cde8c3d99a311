//! CREATE TABLE, also AS a query.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    self, ColumnDef, ColumnOption, FunctionArg, FunctionArgExpr, FunctionArguments, TableConstraint,
};
use skewer_cluster::write::has_hash;
use skewer_compat::statement::duplicate_column_names::shown;
use skewer_compat::suggest::suggest;
use skewer_sql::ObjectKind;
use skewer_storage::Partitioning;

use super::{Context, Outcome, as_statement};
use crate::catalog::names::fold;
use crate::catalog::planned::refuse_repeated;
use crate::catalog::{StatementCatalog, types};
use crate::error::Error;

/// Creates a table; AS a query fills it in the same transaction.
pub(crate) async fn execute(
    context: &mut Context,
    mut table: ast::CreateTable,
) -> Result<Outcome, Error> {
    refuse_unsupported(&table)?;
    let keys = match table.partition_by.take() {
        Some(partition_by) => hash_keys(&partition_by)?,
        None => Vec::new(),
    };
    let name = context.catalog.resolve(&table.name)?;
    name.must_be_writable()?;
    let snapshot = Arc::clone(context.catalog.snapshot());
    if !snapshot.has_schema(&name.schema) {
        return Err(context.catalog.unknown_table(&name));
    }
    if snapshot.view(&name.schema, &name.table).is_some() {
        return Err(Error::AlreadyExists {
            kind: ObjectKind::View,
            name: name.to_string(),
        });
    }
    if snapshot.table(&name.schema, &name.table).is_some() && !table.or_replace {
        if table.if_not_exists {
            return Ok(match table.query {
                Some(_) => Outcome::Count(0),
                None => Outcome::Done,
            });
        }
        return Err(Error::AlreadyExists {
            kind: ObjectKind::Table,
            name: name.to_string(),
        });
    }
    let old = snapshot.table(&name.schema, &name.table);
    if old.is_some_and(|old| snapshot.stream(old.id).is_some()) {
        return Err(Error::AlreadyExists {
            kind: ObjectKind::Stream,
            name: name.to_string(),
        });
    }
    let or_replace = table.or_replace;
    let Some(query) = table.query.clone() else {
        let schema = columns_schema(&context.catalog, &table.columns).await?;
        let divided = partitioning(&schema, keys)?;
        let mut transaction = context.storage().begin();
        transaction.create_partitioned_table(
            &name.schema,
            &name.table,
            schema,
            divided,
            or_replace,
        )?;
        context.commit(transaction).await?;
        return Ok(Outcome::Done);
    };

    let input = if table.columns.is_empty() {
        Arc::new(context.catalog.plan(as_statement(query)).await?)
    } else {
        // DataFusion names and casts the query's columns as the list says.
        context.catalog.check(&as_statement(query))?;
        planned_input(&context.catalog, table.clone()).await?
    };
    refuse_repeated(input.schema().inner())?;
    let declared_not_null = |name: &str| {
        table
            .columns
            .iter()
            .any(|column| fold(&column.name) == name && is_not_null(column))
    };
    let fields = input
        .schema()
        .fields()
        .iter()
        .map(|field| {
            let field = field.as_ref().clone();
            let name = shown(field.name()).to_owned();
            types::storable(&field.with_name(&name), !declared_not_null(&name))
        })
        .collect::<Result<Vec<Field>, Error>>()?;
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let divided = partitioning(&schema, keys)?;
    let mut transaction = context.storage().begin();
    let created = transaction.create_partitioned_table(
        &name.schema,
        &name.table,
        schema,
        divided,
        or_replace,
    )?;
    let (segments, rows) = context.write_query(&input, &created).await?;
    transaction.add_segments(created.id, segments)?;
    context.commit(transaction).await?;
    context.session.database_inner().has_grown(created.id);
    Ok(Outcome::Count(rows))
}

/// The columns of `HASH (a, b)`.
fn hash_keys(partition_by: &ast::Expr) -> Result<Vec<String>, Error> {
    let unsupported = || {
        Error::Unsupported(format!(
            "PARTITION BY {partition_by}; it is PARTITION BY HASH (column, …)"
        ))
    };
    let ast::Expr::Function(function) = partition_by else {
        return Err(unsupported());
    };
    let FunctionArguments::List(list) = &function.args else {
        return Err(unsupported());
    };
    if !function.name.to_string().eq_ignore_ascii_case("hash") || list.args.is_empty() {
        return Err(unsupported());
    }
    let column = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(ast::Expr::Identifier(column))) => {
            Ok(fold(column))
        }
        _ => Err(unsupported()),
    };
    list.args.iter().map(column).collect()
}

/// How the rows of a table with these columns are divided by the hash of `keys`, if there are any.
fn partitioning(schema: &SchemaRef, keys: Vec<String>) -> Result<Partitioning, Error> {
    if keys.is_empty() {
        return Ok(Partitioning::RoundRobin);
    }
    for (place, key) in keys.iter().enumerate() {
        let Ok(field) = schema.field_with_name(key) else {
            let known = schema.fields().iter().map(|field| field.name().as_str());
            return Err(Error::UnknownColumn {
                suggestions: suggest(key, known),
                name: key.clone(),
            });
        };
        if keys[..place].contains(key) {
            return Err(Error::Invalid(format!("column {key} is listed twice")));
        }
        if !has_hash(field.data_type()) {
            let is = skewer_sql::sql_name(field.data_type());
            return Err(Error::Unsupported(format!(
                "PARTITION BY HASH of column {key}, which is {is}"
            )));
        }
    }
    Ok(Partitioning::Hash(keys))
}

fn is_not_null(column: &ColumnDef) -> bool {
    column
        .options
        .iter()
        .any(|o| matches!(o.option, ColumnOption::NotNull))
}

/// The columns that a list of definitions declares.
pub(crate) async fn columns_schema(
    catalog: &Arc<StatementCatalog>,
    columns: &[ColumnDef],
) -> Result<SchemaRef, Error> {
    for column in columns {
        refuse_options(column)?;
    }
    let skewer_sql::Statement::CreateTable(mut table) =
        skewer_sql::parse("CREATE TABLE t (a INT)")?
    else {
        return Err(Error::Internal(
            "CREATE TABLE is not CREATE TABLE".to_owned(),
        ));
    };
    table.columns = columns.to_vec();
    let plan = planned_input(catalog, *table).await?;
    let fields = plan
        .schema()
        .fields()
        .iter()
        .map(|field| types::storable(field, field.is_nullable()))
        .collect::<Result<Vec<Field>, Error>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

/// The rows that CREATE TABLE would put into the table, as DataFusion plans them.
async fn planned_input(
    catalog: &Arc<StatementCatalog>,
    table: ast::CreateTable,
) -> Result<Arc<LogicalPlan>, Error> {
    let statement = DFStatement::Statement(Box::new(ast::Statement::CreateTable(table)));
    match catalog.plan_unchecked(statement).await? {
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(plan)) => Ok(plan.input),
        other => Err(Error::Internal(format!(
            "CREATE TABLE was planned as {}",
            other.display()
        ))),
    }
}

/// What CREATE TABLE can say and Skewer does not do is refused: a constraint that is not enforced
/// would be a promise that is not kept.
fn refuse_unsupported(table: &ast::CreateTable) -> Result<(), Error> {
    let refused = |what: &str| {
        Err(Error::Unsupported(format!(
            "{what}; Skewer does not enforce it"
        )))
    };
    match table.constraints.first() {
        None => {}
        Some(TableConstraint::PrimaryKey(_)) => return refused("PRIMARY KEY"),
        Some(TableConstraint::Unique(_)) => return refused("UNIQUE"),
        Some(TableConstraint::ForeignKey(_)) => return refused("FOREIGN KEY"),
        Some(TableConstraint::Check(_)) => return refused("CHECK"),
        Some(other) => return Err(Error::Unsupported(other.to_string())),
    }
    for column in &table.columns {
        refuse_options(column)?;
    }
    if table.temporary {
        return Err(Error::Unsupported("temporary tables".to_owned()));
    }
    if table.like.is_some() || table.clone.is_some() {
        return Err(Error::Unsupported(
            "CREATE TABLE … LIKE; write CREATE TABLE … AS SELECT * FROM … LIMIT 0".to_owned(),
        ));
    }
    if table.inherits.is_some() {
        return Err(Error::Unsupported("inheriting tables".to_owned()));
    }
    if table.columns.is_empty() && table.query.is_none() {
        return Err(Error::Invalid(
            "a table needs at least one column".to_owned(),
        ));
    }
    Ok(())
}

fn refuse_options(column: &ColumnDef) -> Result<(), Error> {
    for option in &column.options {
        let what = match &option.option {
            ColumnOption::Null | ColumnOption::NotNull | ColumnOption::Comment(_) => continue,
            ColumnOption::PrimaryKey(_) => "PRIMARY KEY; Skewer does not enforce it".to_owned(),
            ColumnOption::Unique(_) => "UNIQUE; Skewer does not enforce it".to_owned(),
            ColumnOption::ForeignKey(_) => "FOREIGN KEY; Skewer does not enforce it".to_owned(),
            ColumnOption::Check(_) => "CHECK; Skewer does not enforce it".to_owned(),
            ColumnOption::Default(_) => {
                "DEFAULT; columns that INSERT does not list get NULL".to_owned()
            }
            other => other.to_string(),
        };
        return Err(Error::Unsupported(format!(
            "column {}: {what}",
            column.name
        )));
    }
    Ok(())
}
