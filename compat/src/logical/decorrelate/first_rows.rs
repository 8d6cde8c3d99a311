//! LIMIT and DISTINCT ON in a subquery that is pushed down: the first rows of each value of the domain.

use std::sync::Arc;

use datafusion::common::{Column, Result, not_impl_err};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::logical_plan::{
    Distinct, DistinctOn, Limit, Projection, SubqueryAlias,
};
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, FetchType, LogicalPlan, LogicalPlanBuilder, SkipType, SortExpr,
    WindowFrame, lit,
};

use super::push_down::PushDown;

impl PushDown<'_> {
    /// The first rows of each value, in the order of the input.
    pub(super) fn limit(&self, limit: &Limit) -> Result<LogicalPlan> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return not_impl_err!(
                "a correlated subquery with LIMIT or OFFSET that is no number; write it as a join"
            );
        };
        // What rows there are is known below.
        if is_ordered(&limit.input) {
            let below = |input: &Arc<LogicalPlan>| {
                let input = Arc::clone(input);
                Arc::new(LogicalPlan::Limit(Limit {
                    input,
                    ..limit.clone()
                }))
            };
            match limit.input.as_ref() {
                LogicalPlan::Projection(projection) => {
                    let input = below(&projection.input);
                    let columns = projection.expr.clone();
                    let projection = Projection::try_new(columns, input)?;
                    return self.push_into(LogicalPlan::Projection(projection));
                }
                LogicalPlan::SubqueryAlias(alias) => {
                    let input = self.input(below(&alias.input))?;
                    let alias = SubqueryAlias::try_new(input, alias.alias.clone())?;
                    return Ok(LogicalPlan::SubqueryAlias(alias));
                }
                LogicalPlan::Distinct(Distinct::On(distinct)) => {
                    let input = Arc::new(self.in_order(distinct)?);
                    let limit = Limit {
                        input,
                        ..limit.clone()
                    };
                    return self.limit(&limit);
                }
                _ => {}
            }
        }
        let (order, input) = match limit.input.as_ref() {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => (sort.expr.clone(), &sort.input),
            _ => (Vec::new(), &limit.input),
        };
        let input = self.for_inputs_of(&limit.input)?.input(Arc::clone(input))?;
        let mut columns = self.own(input.schema());
        let place = self.aliases.next("__place");
        // Of rows that tie the same ones, should they be read again for a subquery of theirs.
        let mut order = self.order(order, input.schema())?;
        order.extend(columns.iter().map(|column| column.clone().sort(true, true)));
        columns.extend(self.columns(input.schema())?);
        let number = row_number()
            .partition_by(self.keys(input.schema())?)
            .order_by(order)
            .window_frame(WindowFrame::new(Some(true)))
            .build()?
            .alias(&place);
        let place = Expr::Column(Column::new_unqualified(place));
        let mut is_kept = place.clone().gt(lit(skip as u64));
        if let Some(fetch) = fetch {
            let last = skip.saturating_add(fetch);
            is_kept = is_kept.and(place.lt_eq(lit(last as u64)));
        }
        LogicalPlanBuilder::from(Arc::unwrap_or_clone(input))
            .window([number])?
            .filter(is_kept)?
            .project(columns)?
            .build()
    }

    /// DISTINCT ON with ORDER BY as a projection of sorted rows: they are in the order of their keys, which
    /// it begins with.
    fn in_order(&self, distinct: &DistinctOn) -> Result<LogicalPlan> {
        let own = distinct.schema.columns();
        let (on, mut selected) = (distinct.on_expr.clone(), distinct.select_expr.clone());
        let mut order = Vec::new();
        for (key, sorted) in on.iter().zip(distinct.sort_expr.iter().flatten()) {
            let name = self.aliases.next("__key");
            selected.push(key.clone().alias(&name));
            let column = Expr::Column(Column::new_unqualified(name));
            order.push(column.sort(sorted.asc, sorted.nulls_first));
        }
        let input = Arc::clone(&distinct.input);
        let distinct = DistinctOn::try_new(on, selected, distinct.sort_expr.clone(), input)?;
        let distinct = Distinct::On(distinct);
        LogicalPlanBuilder::from(LogicalPlan::Distinct(distinct))
            .sort(order)?
            .project(own.into_iter().map(Expr::Column))?
            .build()
    }

    pub(super) fn distinct_on(&self, distinct: DistinctOn, below: &Self) -> Result<LogicalPlan> {
        let input = below.input(distinct.input)?;
        let inputs = Arc::clone(input.schema());
        let domain = self.keys(&inputs)?;
        let own = |expressions| -> Result<Vec<Expr>> {
            let mut all = domain.clone();
            all.extend(self.all_within(expressions, &inputs)?);
            Ok(all)
        };
        let sorted = match distinct.sort_expr {
            None => None,
            Some(order) => {
                let first = domain.iter().map(|column| column.clone().sort(true, true));
                let mut sorted: Vec<SortExpr> = first.collect();
                sorted.extend(self.order(order, &inputs)?);
                Some(sorted)
            }
        };
        let mut on = domain.clone();
        for key in distinct.on_expr {
            on.push(self.within(key, &inputs)?);
        }
        let selected = own(distinct.select_expr)?;
        let distinct = Distinct::On(DistinctOn::try_new(on, selected, sorted, input)?);
        self.with_wanted(LogicalPlan::Distinct(distinct))
    }
}

/// Whether the rows of `plan`, or of what it makes its own of one by one, are sorted.
fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => is_ordered(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_ordered(&alias.input),
        LogicalPlan::Distinct(Distinct::On(distinct)) => distinct.sort_expr.is_some(),
        _ => false,
    }
}
