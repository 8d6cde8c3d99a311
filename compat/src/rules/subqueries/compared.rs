//! Comparisons with the rows of a subquery.

use datafusion::common::Result;
use datafusion::logical_expr::expr::{InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{Expr, Operator, Subquery, binary_expr, lit, when};

use super::only_row::OnlyRow;
use super::subquery;

/// `value operator quantifier (subquery)`: `IN` is `= ANY`, `NOT IN` is `<> ALL`.
pub(super) struct Compared {
    pub(super) value: Expr,
    pub(super) operator: Operator,
    pub(super) quantifier: SetQuantifier,
    pub(super) subquery: Subquery,
}

impl Compared {
    /// Whether what it is compared with may be NULL.
    pub(super) fn has_nulls(&self) -> bool {
        self.subquery.subquery.schema().field(0).is_nullable()
    }

    /// Compared with the one row of the subquery, if there is one.
    pub(super) fn with_row(self, row: OnlyRow) -> Result<Expr> {
        let other = Expr::ScalarSubquery(subquery(row.plan, &self.subquery));
        let compared = binary_expr(self.value, self.operator, other);
        match row.exists {
            None => Ok(compared),
            Some(exists) => {
                let without = self.quantifier == SetQuantifier::All;
                when(exists, compared).otherwise(lit(without))
            }
        }
    }
}

/// `NOT` of `expression`, if that compares: also of what is unknown it is the opposite.
pub(super) fn negated(expression: Expr) -> Result<Compared, Expr> {
    let compared = Compared::try_from(expression)?;
    let Some(operator) = compared.operator.negate() else {
        return Err(compared.into());
    };
    let quantifier = match compared.quantifier {
        SetQuantifier::Any => SetQuantifier::All,
        SetQuantifier::All => SetQuantifier::Any,
    };
    Ok(Compared {
        operator,
        quantifier,
        ..compared
    })
}

impl TryFrom<Expr> for Compared {
    type Error = Expr;

    fn try_from(expression: Expr) -> Result<Self, Expr> {
        match expression {
            Expr::InSubquery(InSubquery {
                expr,
                subquery,
                negated,
            }) => {
                let (operator, quantifier) = match negated {
                    false => (Operator::Eq, SetQuantifier::Any),
                    true => (Operator::NotEq, SetQuantifier::All),
                };
                Ok(Self {
                    value: *expr,
                    operator,
                    quantifier,
                    subquery,
                })
            }
            Expr::SetComparison(comparison) => Ok(Self {
                value: *comparison.expr,
                operator: comparison.op,
                quantifier: comparison.quantifier,
                subquery: comparison.subquery,
            }),
            other => Err(other),
        }
    }
}

impl From<Compared> for Expr {
    fn from(compared: Compared) -> Self {
        let Compared {
            value,
            operator,
            quantifier,
            subquery,
        } = compared;
        let value = Box::new(value);
        match (operator, quantifier) {
            (Operator::Eq, SetQuantifier::Any) => {
                Self::InSubquery(InSubquery::new(value, subquery, false))
            }
            (Operator::NotEq, SetQuantifier::All) => {
                Self::InSubquery(InSubquery::new(value, subquery, true))
            }
            _ => Self::SetComparison(SetComparison::new(value, subquery, operator, quantifier)),
        }
    }
}
