//! Joins in a subquery that is pushed down.

use std::sync::Arc;

use datafusion::common::{Column, JoinType, NullEquality, Result, not_impl_err};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::logical_plan::{Join, JoinConstraint};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use super::push_down::PushDown;
use super::references::{lateral, references, within_lateral};

impl PushDown<'_> {
    pub(super) fn join(&self, join: Join, below: &Self) -> Result<LogicalPlan> {
        let is_lateral = lateral(&join.right).is_some();
        let in_left = self.is_dependent(&join.left)?;
        let of_right = references(&join.right)?;
        let in_right = !is_lateral && self.is_dependent(&join.right)?;
        // That of LATERAL is not told from a query further out where a subquery in it says it.
        let beside = join.left.schema();
        if in_right && of_right.iter().any(|column| beside.has_column(column)) {
            return not_impl_err!("a correlated subquery with LATERAL in it; write it as a join");
        }
        // Rows that a join adds or leaves out are added or left out for each value.
        let (left, right) = match join.join_type {
            JoinType::Inner => (in_left || !in_right, in_right),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                (true, in_right)
            }
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                (in_left, true)
            }
            JoinType::Full => (true, true),
        };
        let is_of_right = matches!(
            join.join_type,
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
        );
        let pushed = |side: Arc<LogicalPlan>, is_pushed: bool, is_renamed: bool| {
            let side = Arc::unwrap_or_clone(side);
            match (is_pushed, is_renamed) {
                (false, _) => Ok((side, Vec::new())),
                (true, false) => {
                    let side = below.push_into(side)?;
                    let keys = self.keys(side.schema())?;
                    Ok((side, keys))
                }
                (true, true) => self.renamed(self.of_keys().push_into(side)?),
            }
        };
        let both = left && right;
        let own: Vec<Column> = join.schema.columns();
        let (left, left_domain) = pushed(join.left, left, both && is_of_right)?;
        let (mut right, right_domain) = pushed(join.right, right, both && !is_of_right)?;
        if is_lateral {
            let scope = Arc::clone(left.schema());
            right = within_lateral(right, &scope, &|column| self.renamed_in(column, &scope))?;
        }

        let inputs = Arc::new(merge_schema(&[&left, &right]));
        let mut on = Vec::new();
        for (l, r) in join.on {
            on.push((self.within(l, &inputs)?, self.within(r, &inputs)?));
        }
        let filter = join.filter.map(|filter| self.within(filter, &inputs));
        let mut filters: Vec<Expr> = filter.transpose()?.into_iter().collect();
        if both {
            let are_keys =
                self.domain.are_keys() || join.null_equality == NullEquality::NullEqualsNull;
            match are_keys {
                true => on.extend(left_domain.iter().cloned().zip(right_domain.clone())),
                false => filters.extend(self.are_same(&left_domain, &right_domain)),
            }
        }
        let joined = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            filters.into_iter().reduce(Expr::and),
            join.join_type,
            JoinConstraint::On,
            join.null_equality,
            join.null_aware,
        )?;
        let joined = LogicalPlan::Join(joined);
        if join.join_type != JoinType::Full {
            return Ok(joined);
        }
        let sides = left_domain.into_iter().zip(right_domain);
        let sides = sides.zip(self.domain.keys());
        let domain = sides.map(|((l, r), (_, name))| coalesce(vec![l, r]).alias(name));
        let columns = own.into_iter().map(Expr::Column).chain(domain);
        let joined = LogicalPlanBuilder::from(joined).project(columns)?.build()?;
        self.with_wanted(joined)
    }
}
