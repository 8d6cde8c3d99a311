//! TRUNCATE.

use datafusion::sql::sqlparser::ast::ObjectName;

use super::{Context, Outcome};
use crate::error::Error;

/// Empties all of `names` or none.
pub(crate) async fn execute(
    context: &mut Context,
    if_exists: bool,
    names: &[ObjectName],
) -> Result<Outcome, Error> {
    let mut transaction = context.storage().begin();
    for name in names {
        match context.catalog.writable_table(name) {
            Ok(table) => transaction.truncate(table.id)?,
            Err(Error::UnknownTable { .. }) if if_exists => {}
            Err(error) => return Err(error),
        }
    }
    context.commit(transaction).await?;
    Ok(Outcome::Done)
}
