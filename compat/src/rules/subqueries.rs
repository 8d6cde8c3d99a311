//! `IN`, `ANY`, `ALL` and `EXISTS`, in forms of which DataFusion makes the right joins.
//!
//! DataFusion 55.2 makes semi, anti and mark joins of the subqueries in conditions. What they lose:
//!
//! * NULLs. Only of an uncorrelated `NOT IN` with columns on its left it makes a join that knows of them;
//!   a mark is false where `x IN (…)` is unknown (apache/datafusion issues 25336, 25340, 25347, 25474 and
//!   25480). So the three things that decide between true, unknown and false become an `EXISTS` each: a
//!   row that is equal, a row that is NULL and, where x is NULL, any row. Each is true or false, and has
//!   the keys that joins want.
//! * The row that an aggregate without GROUP BY has of no rows, too (issue 24960). So `EXISTS` of it asks
//!   for HAVING alone, and `x IN` of it compares x with its one value: scalar subqueries have that row.
//! * Subqueries that are values: see [`marks`](super::marks).
//! * What conditions are pulled out of: see [`pull_up`](super::pull_up).

use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Distinct, Projection, SubqueryAlias};
use datafusion::logical_expr::utils::{conjunction, disjunction, merge_schema};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, FetchType, LogicalPlan, LogicalPlanBuilder, Operator,
    SkipType, Subquery, binary_expr, lit, not, when,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::marks::marked;
use super::pull_up::{Kind, check_lateral, check_pull_up, is_correlated};
use crate::logical::decorrelate::referring_to;

/// See the [module](self).
#[derive(Debug)]
pub struct GuardedSubqueries;

impl OptimizerRule for GuardedSubqueries {
    fn name(&self) -> &'static str {
        "sound_subqueries"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| {
            guarded(node, config.alias_generator())?.transform_data(|node| marked(node, config))
        })
    }
}

fn guarded(node: LogicalPlan, aliases: &AliasGenerator) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Join(join) = &node {
        check_lateral(join)?;
    }
    // The columns of MERGE are not those of its input alone.
    if matches!(node, LogicalPlan::Dml(_)) || !has_subqueries(&node)? {
        return Ok(Transformed::no(node));
    }
    let scope = merge_schema(&node.inputs());
    let rewriter = Rewriter { scope, aliases };
    let wanted = match node {
        LogicalPlan::Filter(_) => Wanted::Conjunct,
        _ => Wanted::Value,
    };
    let names = NamePreserver::new(&node);
    node.map_expressions(|expression| {
        let name = names.save(&expression);
        let rewritten = rewriter.condition(expression, wanted)?;
        Ok(rewritten.update_data(|expression| name.restore(expression)))
    })
}

/// Whether there are subqueries in the expressions of `node` itself.
///
/// # Errors
/// None of its own; those of walking expressions.
pub fn has_subqueries(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expression| {
        found = found || has_subquery(expression)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Whether there is a subquery in `expression`.
///
/// # Errors
/// None of its own; those of walking an expression.
pub fn has_subquery(expression: &Expr) -> Result<bool> {
    expression.exists(|part| Ok(subquery_of(part).is_some()))
}

/// The subquery that `expression` itself is, if it is one.
pub fn subquery_of(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::Exists(exists) => Some(&exists.subquery),
        Expr::InSubquery(membership) => Some(&membership.subquery),
        Expr::SetComparison(comparison) => Some(&comparison.subquery),
        Expr::ScalarSubquery(subquery) => Some(subquery),
        _ => None,
    }
}

/// What is asked of a condition by what it is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
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
struct Rewriter<'a> {
    scope: DFSchema,
    aliases: &'a AliasGenerator,
}

impl Rewriter<'_> {
    fn condition(&self, condition: Expr, wanted: Wanted) -> Result<Transformed<Expr>> {
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

/// `value operator quantifier (subquery)`: `IN` is `= ANY`, `NOT IN` is `<> ALL`.
struct Compared {
    value: Expr,
    operator: Operator,
    quantifier: SetQuantifier,
    subquery: Subquery,
}

impl Compared {
    /// Whether what it is compared with may be NULL.
    fn has_nulls(&self) -> bool {
        self.subquery.subquery.schema().field(0).is_nullable()
    }

    /// Compared with the one row of the subquery, if there is one.
    fn with_row(self, row: OnlyRow) -> Result<Expr> {
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
fn negated(expression: Expr) -> Result<Compared, Expr> {
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

/// `plan` with this name for its column. It may have that of another of the query around it, or of one
/// that a join needs beside it.
fn with_column_name(plan: &LogicalPlan, name: &str) -> Result<LogicalPlanBuilder> {
    if let LogicalPlan::Projection(Projection { expr, input, .. }) = plan
        && let [expression] = expr.as_slice()
    {
        let expression = expression.clone().unalias_nested().data.alias(name);
        return LogicalPlanBuilder::from(input.as_ref().clone()).project([expression]);
    }
    let column = Column::from(plan.schema().qualified_field(0));
    LogicalPlanBuilder::from(plan.clone()).project([Expr::Column(column).alias(name)])
}

/// `EXISTS` over `rows`, made of `original`.
fn exists(rows: LogicalPlanBuilder, original: &Subquery) -> Result<Expr> {
    let subquery = subquery(rows.build()?, original);
    Ok(Expr::Exists(Exists::new(subquery, false)))
}

/// `plan` in the place of `original`.
fn subquery(plan: LogicalPlan, original: &Subquery) -> Subquery {
    Subquery {
        outer_ref_columns: plan.all_out_ref_exprs(),
        subquery: Arc::new(plan),
        spans: original.spans.clone(),
    }
}

/// One value. Of HAVING, DataFusion does not always know that what it leaves out is NULL then.
fn value(original: Subquery) -> Result<Transformed<Expr>> {
    let is_correlated = !original.outer_ref_columns.is_empty();
    if is_correlated
        && let Some(row) = only_row(&original.subquery, &original)?
        && let Some(exists) = row.exists
    {
        let value = Expr::ScalarSubquery(subquery(row.plan, &original));
        return Ok(Transformed::yes(when(exists, value).end()?));
    }
    check_pull_up(&original.subquery, Kind::Scalar)?;
    Ok(Transformed::no(Expr::ScalarSubquery(original)))
}

fn existence(exists: Exists) -> Result<Transformed<Expr>> {
    let Exists {
        subquery: original,
        negated,
    } = exists;
    if original.outer_ref_columns.is_empty() {
        if is_constant(&original.subquery) {
            return Ok(Transformed::no(Expr::Exists(Exists::new(
                original, negated,
            ))));
        }
        // A mark is named after a column of its rows. Of others none may be left when a join is left out.
        let rows = LogicalPlanBuilder::from(original.subquery.as_ref().clone());
        let one = subquery(rows.project([lit(1)])?.build()?, &original);
        return Ok(Transformed::yes(Expr::Exists(Exists::new(one, negated))));
    }
    let plan = any_row(&original.subquery)?;
    if let Some(row) = only_row(plan, &original)? {
        let exists = row.exists.unwrap_or(lit(true));
        return Ok(Transformed::yes(match negated {
            false => exists,
            true => not(exists),
        }));
    }
    check_pull_up(plan, Kind::Exists)?;
    let subquery = subquery(plan.clone(), &original);
    Ok(Transformed::yes(Expr::Exists(Exists::new(
        subquery, negated,
    ))))
}

fn is_constant(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            matches!(projection.expr.as_slice(), [Expr::Literal(..)])
        }
        _ => false,
    }
}

/// The plan below `plan` that has rows if it has: their values, number and order do not matter.
fn any_row(plan: &LogicalPlan) -> Result<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(projection) => any_row(&projection.input),
        LogicalPlan::Distinct(Distinct::All(input)) => any_row(input),
        LogicalPlan::Sort(sort) if sort.fetch != Some(0) => any_row(&sort.input),
        LogicalPlan::Limit(limit) => {
            let skips = !matches!(limit.get_skip_type()?, SkipType::Literal(0));
            let may_be_none = match limit.get_fetch_type()? {
                FetchType::Literal(fetch) => fetch == Some(0),
                FetchType::UnsupportedExpr => true,
            };
            match skips || may_be_none {
                true => Ok(plan),
                false => any_row(&limit.input),
            }
        }
        _ => Ok(plan),
    }
}

/// A plan that has one row, and under what condition the original has it, too.
struct OnlyRow {
    plan: LogicalPlan,
    exists: Option<Expr>,
}

/// The row of an aggregate without GROUP BY, and its HAVING.
fn only_row(plan: &LogicalPlan, original: &Subquery) -> Result<Option<OnlyRow>> {
    let input = match plan {
        // It has its row for all rows of the query around it if its own are the same for all.
        LogicalPlan::Aggregate(aggregate)
            if aggregate.group_expr.is_empty() && is_correlated(plan) =>
        {
            return Ok(Some(OnlyRow {
                plan: plan.clone(),
                exists: None,
            }));
        }
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. })
        | LogicalPlan::Distinct(Distinct::All(input)) => input,
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => &sort.input,
        LogicalPlan::Filter(filter) if !has_subqueries(plan)? => &filter.input,
        _ => return Ok(None),
    };
    let Some(row) = only_row(input, original)? else {
        return Ok(None);
    };
    let OnlyRow {
        plan: input,
        exists,
    } = row;
    if let LogicalPlan::Filter(filter) = plan {
        let holds = LogicalPlanBuilder::from(input.clone())
            .project([filter.predicate.clone()])?
            .build()?;
        let holds = Expr::ScalarSubquery(subquery(holds, original)).is_true();
        return Ok(Some(OnlyRow {
            plan: input,
            exists: conjunction(exists.into_iter().chain([holds])),
        }));
    }
    let plan = plan.with_new_exprs(plan.expressions(), vec![input])?;
    Ok(Some(OnlyRow { plan, exists }))
}
