//! Joins in the rewrite.

use std::sync::Arc;

use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::logical_plan::{Filter, Join, Projection};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::{LineageRewrite, TrackedPlan, split_at_costly};

impl LineageRewrite {
    pub(super) fn join(&mut self, join: &Join) -> Result<TrackedPlan> {
        let left = self.rewrite(&join.left)?;
        let right = self.rewrite(&join.right)?;
        let (left_keys, right_keys) = join.on.iter().cloned().unzip();
        let (left, left_keys) = self.hoist(left, left_keys)?;
        let (right, right_keys) = self.hoist(right, right_keys)?;
        // Without keys there is one group, also of no rows, which nothing may be joined with.
        let by_keys = join.filter.is_none() && !join.on.is_empty();
        match join.join_type {
            JoinType::LeftSemi if by_keys && !right.records.is_empty() => {
                return self.semi_join((left, left_keys), (right, right_keys), join);
            }
            JoinType::RightSemi if by_keys && !left.records.is_empty() => {
                return self.semi_join((right, right_keys), (left, left_keys), join);
            }
            _ => {}
        }
        let (mut left_records, mut right_records) = (left.records, right.records);
        // An anti or mark join returns rows of one side: the other side's are no inputs. A semi join
        // on more than equal keys would have to look at every pair to say which.
        match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => right_records.clear(),
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => left_records.clear(),
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {}
        }
        left_records.append(&mut right_records);
        // A costly condition of an inner join is a filter on top of it, where it can be timed.
        let mut above = None;
        let mut filter = join.filter.clone();
        if join.join_type == JoinType::Inner && !left_records.is_empty() {
            let both = left.plan.schema().join(right.plan.schema())?;
            let (first, rest) = split_at_costly(filter, &both)?;
            (filter, above) = (conjunction(first), conjunction(rest));
        }
        let joined = LogicalPlan::Join(Join::try_new(
            Arc::new(left.plan),
            Arc::new(right.plan),
            left_keys.into_iter().zip(right_keys).collect(),
            filter,
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?);
        let mut joined = TrackedPlan {
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

    /// A semi join that knows what its rows were compared with: the rows of `tested` with the same
    /// keys are a group each, which the one row of `kept` or several are joined with.
    fn semi_join(
        &mut self,
        (kept, kept_keys): (TrackedPlan, Vec<Expr>),
        (tested, tested_keys): (TrackedPlan, Vec<Expr>),
        join: &Join,
    ) -> Result<TrackedPlan> {
        let mut columns: Vec<Expr> = kept
            .plan
            .schema()
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        let names: Vec<String> = tested_keys.iter().map(|_| self.name("key")).collect();
        let keys = tested_keys.into_iter().zip(&names);
        let keys = keys.map(|(key, name)| key.alias(name)).collect();
        let tested = self.captured(tested, keys, Vec::new())?;
        let keys = names
            .into_iter()
            .map(|name| Expr::Column(Column::new_unqualified(name)));
        columns.extend(tested.hidden_columns()?);
        let joined = LogicalPlan::Join(Join::try_new(
            Arc::new(kept.plan),
            Arc::new(tested.plan),
            kept_keys.into_iter().zip(keys).collect(),
            None,
            JoinType::Inner,
            join.join_constraint,
            join.null_equality,
            false,
        )?);
        let mut records = kept.records;
        records.extend(tested.records);
        Ok(TrackedPlan {
            plan: LogicalPlan::Projection(Projection::try_new(columns, Arc::new(joined))?),
            records,
        })
    }
}
