//! Conditions with subqueries, in forms that joins are right for.

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::SetQuantifier;
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Operator, binary_expr, lit, not, when,
};

use super::compared::{Compared, negated};
use super::existence::{existence, value};
use super::only_row::only_row;
use super::{exists, subquery, subquery_of, with_column_name};
use crate::logical::decorrelate::referring_to;
use crate::rules::pull_up::{Kind, check_pull_up};

/// What is asked of a condition by what it is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Whether it is true; and it is one of the conditions of WHERE or HAVING.
    Conjunct,
    /// Whether it is true.
    IsTrue,
    /// Whether it is not false.
    IsNotFalse,
    /// True, false or unknown.
    Value,
}

impl Wanted {
    /// Of what is negated.
    fn negated(self) -> Self {
        match self {
            Self::Conjunct | Self::IsTrue => Self::IsNotFalse,
            Self::IsNotFalse => Self::IsTrue,
            Self::Value => Self::Value,
        }
    }

    /// Of a side of `operator`, AND or OR.
    fn beside(self, operator: Operator) -> Self {
        match (self, operator) {
            (Self::Conjunct, Operator::Or) => Self::IsTrue,
            _ => self,
        }
    }
}

/// Conditions over the columns of `scope`.
pub(super) struct Rewriter<'a> {
    pub(super) scope: DFSchema,
    pub(super) aliases: &'a AliasGenerator,
}

impl Rewriter<'_> {
    pub(super) fn condition(&self, condition: Expr, wanted: Wanted) -> Result<Transformed<Expr>> {
        match condition {
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: op @ (Operator::And | Operator::Or),
                right,
            }) => {
                let left = self.condition(*left, wanted.beside(op))?;
                let right = self.condition(*right, wanted.beside(op))?;
                let is_new = left.transformed || right.transformed;
                let both = binary_expr(left.data, op, right.data);
                Ok(Transformed::new_transformed(both, is_new))
            }
            Expr::Not(inner) => match negated(*inner) {
                Ok(compared) => self.compared(compared, wanted),
                Err(inner) => {
                    let inner = self.condition(inner, wanted.negated())?;
                    Ok(inner.update_data(not))
                }
            },
            Expr::IsTrue(inner) => {
                let inner = self.condition(*inner, Wanted::IsTrue)?;
                Ok(inner.update_data(Expr::is_true))
            }
            Expr::Exists(exists) => existence(exists),
            Expr::ScalarSubquery(subquery) => value(subquery),
            other => match Compared::try_from(other) {
                Ok(compared) => self.compared(compared, wanted),
                Err(other) => other.map_children(|part| self.condition(part, Wanted::Value)),
            },
        }
    }

    fn compared(&self, mut compared: Compared, wanted: Wanted) -> Result<Transformed<Expr>> {
        compared.value = self.condition(compared.value, Wanted::Value)?.data;
        let is_correlated = !compared.subquery.outer_ref_columns.is_empty();
        // What refers to a query further out cannot be moved into one more.
        let is_bound = compared.value.exists(|part| {
            let subquery = subquery_of(part).map(|subquery| &subquery.outer_ref_columns);
            let is_outer = matches!(part, Expr::OuterReferenceColumn(..));
            Ok(is_outer || subquery.is_some_and(|columns| !columns.is_empty()))
        })?;
        if is_bound || compared.value.is_volatile() {
            return Ok(Transformed::no(compared.into()));
        }
        if is_correlated
            && let Some(row) = only_row(&compared.subquery.subquery, &compared.subquery)?
        {
            return Ok(Transformed::yes(compared.with_row(row)?));
        }
        check_pull_up(&compared.subquery.subquery, Kind::In)?;
        if !self.is_right_as_join(&compared, wanted)? {
            return Ok(Transformed::yes(self.by_existence(&compared, wanted)?));
        }
        if is_correlated || wanted != Wanted::Conjunct {
            let set =
                with_column_name(&compared.subquery.subquery, &self.aliases.next("__member"))?;
            compared.subquery = subquery(set.build()?, &compared.subquery);
        }
        Ok(Transformed::yes(compared.into()))
    }

    /// Whether DataFusion's join for `IN` or `NOT IN` is right.
    fn is_right_as_join(&self, compared: &Compared, wanted: Wanted) -> Result<bool> {
        let is_null = compared.value.nullable(&self.scope)?;
        let has_nulls = compared.has_nulls();
        let is_certain = !is_null && !has_nulls;
        let is_correlated = !compared.subquery.outer_ref_columns.is_empty();
        let is_truth_asked = matches!(wanted, Wanted::Conjunct | Wanted::IsTrue);
        match (compared.operator, compared.quantifier) {
            (Operator::Eq, SetQuantifier::Any) if is_truth_asked => Ok(true),
            // The columns decide whether its anti join knows of NULLs: not the values, and those of
            // further conditions, too, which it then refuses.
            (Operator::NotEq, SetQuantifier::All) if wanted == Wanted::Conjunct => {
                let columns = compared.value.column_refs();
                let mut is_known = has_nulls;
                for column in &columns {
                    is_known |= self.scope.field_from_column(column)?.is_nullable();
                }
                Ok(!is_correlated && !columns.is_empty() && (is_known || !is_null))
            }
            // Simplified, `NOT IN` may become one of the conditions of WHERE.
            (Operator::Eq, SetQuantifier::Any) | (Operator::NotEq, SetQuantifier::All) => {
                Ok(is_certain && !is_correlated)
            }
            _ => Ok(false),
        }
    }

    /// As conditions that are true or false.
    fn by_existence(&self, compared: &Compared, wanted: Wanted) -> Result<Expr> {
        let subquery = &compared.subquery;
        let is_correlated = !subquery.outer_ref_columns.is_empty();
        let name = self.aliases.next("__member");
        let set = with_column_name(&subquery.subquery, &name)?;
        let member = Expr::Column(Column::new_unqualified(name));
        let value = referring_to(compared.value.clone(), &self.scope)?;

        let is_all = compared.quantifier == SetQuantifier::All;
        let operator = compared.operator;
        let deciding = match (is_all, operator.negate()) {
            (false, _) => binary_expr(value.clone(), operator, member.clone()),
            (true, Some(negated)) => binary_expr(value.clone(), negated, member.clone()),
            (true, None) => not(binary_expr(value.clone(), operator, member.clone())),
        };
        let is_decided = exists(set.clone().filter(deciding)?, subquery)?;

        let mut unknown = Vec::new();
        if compared.has_nulls() {
            let nulls = set.clone().filter(member.is_null())?;
            let nulls = match is_correlated {
                true => nulls,
                false => nulls.limit(0, Some(1))?,
            };
            unknown.push(exists(nulls, subquery)?);
        }
        if compared.value.nullable(&self.scope)? {
            let rows = match is_correlated {
                true => set,
                false => set.limit(0, Some(1))?,
            };
            unknown.push(exists(rows.filter(value.is_null())?, subquery)?);
        }

        let is_any_true = |conditions: Vec<Expr>| disjunction(conditions).unwrap_or(lit(false));
        let with_unknown = |is_decided: Expr| {
            let mut conditions = vec![is_decided];
            conditions.extend(unknown.clone());
            conditions
        };
        Ok(match (wanted, is_all) {
            (Wanted::Conjunct | Wanted::IsTrue, false) => is_decided,
            (Wanted::Conjunct | Wanted::IsTrue, true) => {
                let none = with_unknown(is_decided).into_iter().map(not);
                conjunction(none).unwrap_or(lit(true))
            }
            (Wanted::IsNotFalse, false) => is_any_true(with_unknown(is_decided)),
            (Wanted::IsNotFalse, true) => not(is_decided),
            (Wanted::Value, _) if unknown.is_empty() && is_all => not(is_decided),
            (Wanted::Value, _) if unknown.is_empty() => is_decided,
            (Wanted::Value, _) => when(is_decided, lit(!is_all))
                .when(is_any_true(unknown), lit(ScalarValue::Boolean(None)))
                .otherwise(lit(is_all))?,
        })
    }
}
