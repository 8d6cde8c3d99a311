//! DELETE FROM t [USING …] [WHERE …].

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::sql::sqlparser::ast::{self, FromTable, ObjectName, SetExpr, TableFactor};
use skewer_cluster::write::Changes;
use skewer_sql::Statement;
use skewer_sql::row_ids::ROW_ID;

use super::{Context, Outcome, as_statement};
use crate::error::Error;

/// The table that DELETE or UPDATE changes, and what the statement calls it.
pub(crate) struct Target {
    pub(crate) name: ObjectName,
    pub(crate) alias: ast::Ident,
}

impl Target {
    /// Reads it from FROM or from what follows UPDATE.
    pub(crate) fn from_table(table: &ast::TableWithJoins) -> Result<Self, Error> {
        let TableFactor::Table { name, alias, .. } = &table.relation else {
            return Err(Error::Unsupported(
                "changing something other than a table".to_owned(),
            ));
        };
        if !table.joins.is_empty() {
            return Err(Error::Unsupported(
                "changing a join; name one table, and the others after FROM or USING".to_owned(),
            ));
        }
        let last = name.0.last().and_then(|part| part.as_ident());
        let alias = match (alias, last) {
            (Some(alias), _) => alias.name.clone(),
            (None, Some(last)) => last.clone(),
            (None, None) => return Err(Error::Invalid(format!("{name} is not a table"))),
        };
        Ok(Self {
            name: name.clone(),
            alias,
        })
    }

    /// `SELECT alias._row_id FROM name AS alias, others WHERE selection`.
    pub(crate) fn matching_rows(
        &self,
        others: Vec<ast::TableWithJoins>,
        selection: Option<ast::Expr>,
    ) -> Result<Box<ast::Query>, Error> {
        let sql = format!("SELECT {0}.{ROW_ID} FROM {1} AS {0}", self.alias, self.name);
        let Statement::Query(mut query) = skewer_sql::parse(&sql)? else {
            return Err(Error::Internal(sql));
        };
        if let SetExpr::Select(select) = &mut *query.body {
            select.from.extend(others);
            select.selection = selection;
        }
        Ok(query)
    }
}

/// Deletes the rows for which the condition is true.
pub(crate) async fn execute(context: &mut Context, delete: ast::Delete) -> Result<Outcome, Error> {
    if delete.returning.is_some() || delete.limit.is_some() || !delete.order_by.is_empty() {
        return Err(Error::Unsupported(
            "DELETE with RETURNING, ORDER BY or LIMIT".to_owned(),
        ));
    }
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    let [from] = from.as_slice() else {
        return Err(Error::Unsupported("DELETE from several tables".to_owned()));
    };
    let target = Target::from_table(from)?;
    let locked = context.lock(&target.name).await?;
    let others = delete.using.unwrap_or_default();
    if delete.selection.is_none() && others.is_empty() {
        let segments: Vec<_> = locked.table.segments.iter().map(|s| s.id).collect();
        let mut transaction = context.storage().begin();
        transaction.replace_segments(locked.table.id, &segments, Vec::new())?;
        context.record.planned();
        context.commit(transaction).await?;
        return Ok(Outcome::Count(locked.table.rows()));
    }
    let query = target.matching_rows(others, delete.selection)?;
    let plan = context.catalog.plan(as_statement(query)).await?;
    let stream = context.stream(&plan).await?;
    let (rows, _memory) = context.collect_by_id(stream).await?;
    let ids = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    context.rewrite(&locked.table, Changes::Delete(ids)).await
}
