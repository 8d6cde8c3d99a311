//! The parameters of an EXECUTE put into a prepared statement.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use thiserror::Error;

use crate::statement::Statement;

/// Parameters that do not fit their statement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParameterError {
    /// `$n` has no value.
    #[error("parameter {name} has no value: {given} given")]
    Missing {
        /// `$n`, as written.
        name: String,
        /// How many values there are.
        given: usize,
    },
    /// More values than parameters.
    #[error("the statement takes {taken} parameters, {given} given")]
    TooMany {
        /// How many parameters the statement has.
        taken: usize,
        /// How many values there are.
        given: usize,
    },
    /// A `?` or a named parameter.
    #[error("parameter {0} is not numbered: write $1, $2, …")]
    NotNumbered(String),
}

/// Puts `values` where the statement says `$1`, `$2`, …; those with a declared type are cast to it.
pub fn bind(
    statement: &mut Statement,
    values: &[Expr],
    types: &[DataType],
) -> Result<(), ParameterError> {
    let mut binder = Binder {
        values,
        types,
        taken: 0,
    };
    let flow = match statement {
        Statement::Query(query) => query.visit(&mut binder),
        Statement::Insert(insert) => insert.visit(&mut binder),
        Statement::Update(update) => update.visit(&mut binder),
        Statement::Delete(delete) => delete.visit(&mut binder),
        Statement::ExplainProfile(explain) => {
            return bind(&mut explain.statement, values, types);
        }
        _ => ControlFlow::Continue(()),
    };
    if let ControlFlow::Break(error) = flow {
        return Err(error);
    }
    if binder.taken < values.len() {
        return Err(ParameterError::TooMany {
            taken: binder.taken,
            given: values.len(),
        });
    }
    Ok(())
}

struct Binder<'a> {
    values: &'a [Expr],
    types: &'a [DataType],
    /// The highest number seen.
    taken: usize,
}

impl VisitorMut for Binder<'_> {
    type Break = ParameterError;

    // Post-order, so that a value which is put in is not visited itself.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Value(ValueWithSpan {
            value: Value::Placeholder(name),
            ..
        }) = expr
        else {
            return ControlFlow::Continue(());
        };
        let Some(number) = name.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()) else {
            return ControlFlow::Break(ParameterError::NotNumbered(name.clone()));
        };
        self.taken = self.taken.max(number);
        let Some(value) = number.checked_sub(1).and_then(|n| self.values.get(n)) else {
            return ControlFlow::Break(ParameterError::Missing {
                name: name.clone(),
                given: self.values.len(),
            });
        };
        *expr = match self.types.get(number - 1) {
            Some(data_type) => Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(value.clone()),
                data_type: data_type.clone(),
                array: false,
                format: None,
            },
            None => Expr::Nested(Box::new(value.clone())),
        };
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn bound(sql: &str, execute: &str) -> Result<String, ParameterError> {
        let Ok(Statement::Prepare {
            types,
            mut statement,
            ..
        }) = parse(sql)
        else {
            panic!("{sql}")
        };
        let Ok(Statement::Execute { parameters, .. }) = parse(execute) else {
            panic!("{execute}")
        };
        bind(&mut statement, &parameters, &types)?;
        match *statement {
            Statement::Query(query) => Ok(query.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_take_the_places_of_their_numbers() {
        let sql = bound("PREPARE p(INT) AS SELECT $2, $1, $2", "EXECUTE p(7, 'x')").unwrap();
        assert_eq!(sql, "SELECT ('x'), CAST(7 AS INT), ('x')");
    }

    #[test]
    fn missing_and_superfluous_values_are_errors() {
        assert!(matches!(
            bound("PREPARE p AS SELECT $2", "EXECUTE p(7)"),
            Err(ParameterError::Missing { .. })
        ));
        assert!(matches!(
            bound("PREPARE p AS SELECT $1", "EXECUTE p(7, 8)"),
            Err(ParameterError::TooMany { taken: 1, given: 2 })
        ));
    }
}
