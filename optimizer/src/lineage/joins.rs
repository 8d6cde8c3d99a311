//! Joins in the rewrite.

use std::sync::Arc;

use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::logical_plan::{Filter, Join};
use datafusion::logical_expr::utils::conjunction;

use super::semi_joins::can_be_told;
use super::{AnnotatedPlan, LineageRewrite, split_at_costly};

impl LineageRewrite {
    pub(super) fn join(&mut self, join: &Join) -> Result<AnnotatedPlan> {
        let left = self.rewrite(&join.left)?;
        let right = self.rewrite(&join.right)?;
        let (left_keys, right_keys) = join.on.iter().cloned().unzip();
        let (left, left_keys) = self.hoist(left, left_keys)?;
        let (right, right_keys) = self.hoist(right, right_keys)?;
        let join_type = join.join_type;
        let tested_side = match join_type {
            JoinType::LeftSemi | JoinType::LeftMark => Some(&right),
            JoinType::RightSemi => Some(&left),
            _ => None,
        };
        if tested_side.is_some_and(|tested| can_be_told(join, tested)) {
            let (left, right) = ((left, left_keys), (right, right_keys));
            return match join_type {
                JoinType::RightSemi => self.tested(join, right, left),
                _ => self.tested(join, left, right),
            };
        }
        let (mut left_records, mut right_records) = (left.records, right.records);
        // An anti join returns rows that nothing was found for. What a semi or mark join found is not
        // known if it is not told above.
        match join_type {
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => right_records.clear(),
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => left_records.clear(),
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {}
        }
        left_records.append(&mut right_records);
        // A costly condition of an inner join is a filter on top of it, where it can be timed.
        let mut above = None;
        let mut filter = join.filter.clone();
        if join_type == JoinType::Inner && !left_records.is_empty() {
            let both = left.plan.schema().join(right.plan.schema())?;
            let (first, rest) = split_at_costly(filter, &both)?;
            (filter, above) = (conjunction(first), conjunction(rest));
        }
        let joined = LogicalPlan::Join(Join::try_new(
            Arc::new(left.plan),
            Arc::new(right.plan),
            left_keys.into_iter().zip(right_keys).collect(),
            filter,
            join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?);
        let mut joined = AnnotatedPlan {
            plan: joined,
            records: left_records,
        };
        if let Some(condition) = above {
            let (hoisted, mut column) = self.hoist(joined, vec![condition])?;
            joined = hoisted;
            if let Some(column) = column.pop() {
                joined.plan = LogicalPlan::Filter(Filter::try_new(column, Arc::new(joined.plan))?);
            }
        }
        Ok(joined)
    }
}
