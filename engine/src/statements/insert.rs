//! INSERT INTO t VALUES … or SELECT ….

use datafusion::logical_expr::{LogicalPlan, WriteOp, dml::InsertOp};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{self, SetExpr, TableObject};

use super::{Context, Outcome};
use crate::error::Error;

/// Appends rows; columns that are not listed get NULL.
pub(crate) async fn execute(context: &mut Context, insert: ast::Insert) -> Result<Outcome, Error> {
    let TableObject::TableName(name) = &insert.table else {
        return Err(Error::Unsupported(
            "INSERT into something other than a table".to_owned(),
        ));
    };
    if insert.returning.is_some() || insert.on.is_some() || insert.overwrite {
        return Err(Error::Unsupported(
            "INSERT with RETURNING, ON CONFLICT or OVERWRITE".to_owned(),
        ));
    }
    let table = context.catalog.writable_table(name)?;
    check_width(&insert, table.schema.fields().len())?;
    let statement = DFStatement::Statement(Box::new(ast::Statement::Insert(insert)));
    let plan = context.catalog.plan(statement).await?;
    let LogicalPlan::Dml(dml) = plan else {
        return Err(Error::Internal(format!(
            "INSERT was planned as {}",
            plan.display()
        )));
    };
    if !matches!(dml.op, WriteOp::Insert(InsertOp::Append)) {
        return Err(Error::Unsupported(format!("{}", dml.op)));
    }
    let stream = context.stream(&dml.input).await?;
    let (segments, rows) = context.write(stream, &table).await?;
    let mut transaction = context.storage().begin();
    transaction.add_segments(table.id, segments)?;
    context.commit(transaction).await?;
    context.session.database_inner().has_grown(table.id);
    Ok(Outcome::Count(rows))
}

/// Says which row has too few or too many values, which DataFusion does not.
fn check_width(insert: &ast::Insert, columns: usize) -> Result<(), Error> {
    let expected = match insert.columns.len() {
        0 => columns,
        listed => listed,
    };
    let Some(SetExpr::Values(values)) = insert.source.as_ref().map(|q| &*q.body) else {
        return Ok(());
    };
    for (number, row) in values.rows.iter().enumerate() {
        let given = row.content.len();
        if given != expected {
            return Err(Error::Invalid(format!(
                "row {} has {given} values for {expected} columns",
                number + 1
            )));
        }
    }
    Ok(())
}
