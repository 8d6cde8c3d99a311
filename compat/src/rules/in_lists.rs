//! Lists in conditions, without what is concluded wrongly of NULLs.
//!
//! DataFusion 55.2 makes one list of two: `a IN (3) AND a IN (4)` becomes false, and `a NOT IN (3) OR a NOT IN (4)`
//! true, also where `a` is NULL (apache/datafusion issue 24246). It also takes a NULL in a list for a value like
//! others: `a IN (1, 2) AND a NOT IN (2, NULL)` becomes `a = 1`, though no row is certain. What it would make one
//! list of is put another way, where that might be wrong. Lists of columns are no lists for it any more: it compared
//! them by their names, and `a IN (b, 7) AND a IN (c, 9)` was false.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, and, lit, or,
};

use super::dependencies::Guard;

/// For `SimplifyExpressions`.
pub fn keep_nulls(node: LogicalPlan) -> Result<Guard> {
    let mut has_lists = false;
    node.apply_expressions(|expression| {
        has_lists |= expression.exists(|part| Ok(is_combined(part)))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !has_lists {
        return Ok(Guard::Rewrite(node));
    }
    let mut schema = merge_schema(&node.inputs());
    if let LogicalPlan::TableScan(scan) = &node {
        let qualified =
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema());
        schema = qualified?;
    }
    let names = NamePreserver::new(&node);
    let is_sort = matches!(node, LogicalPlan::Sort(_));
    let node = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let guarded = expression.transform_up(|part| guarded(part, &schema))?;
        Ok(match is_sort {
            true => guarded,
            false => guarded.update_data(|expression| name.restore(expression)),
        })
    })?;
    Ok(Guard::Rewrite(node.data))
}

/// Whether `part` is a list with NULL, or two lists or equalities with AND or OR between them.
fn is_combined(part: &Expr) -> bool {
    match part {
        Expr::InList(list) => list.list.iter().any(is_null),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_logical(*op) => {
            Values::of_condition(left, LONGEST).is_some()
                && Values::of_condition(right, LONGEST).is_some()
        }
        _ => false,
    }
}

fn is_logical(operator: Operator) -> bool {
    matches!(operator, Operator::And | Operator::Or)
}

fn is_null(value: &Expr) -> bool {
    match value {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => is_null(&cast.expr),
        _ => false,
    }
}

/// How many comparisons may be one list: longer ones are looked at no further.
const LONGEST: usize = 64;

/// A condition: an expression is, or is not, one of some values.
struct Values<'a> {
    of: &'a Expr,
    values: Vec<&'a Expr>,
    negated: bool,
}

impl<'a> Values<'a> {
    /// What `condition` says, as DataFusion reads it, if it has no more than `longest` comparisons.
    fn of_condition(condition: &'a Expr, longest: usize) -> Option<Self> {
        match condition {
            Expr::InList(list) => Some(Self {
                of: &list.expr,
                values: list.list.iter().collect(),
                negated: list.negated,
            }),
            Expr::Not(inner) => Self::of_condition(inner, longest).map(|values| Self {
                negated: !values.negated,
                ..values
            }),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::Eq | Operator::NotEq => {
                    // A column may be in a cast yet, which DataFusion takes away first.
                    let (of, value) = match (left.as_ref(), right.as_ref()) {
                        (Expr::Literal(..), Expr::Literal(..)) => return None,
                        (of, value @ Expr::Literal(..)) | (value @ Expr::Literal(..), of) => {
                            (of, value)
                        }
                        _ => return None,
                    };
                    Some(Self {
                        of,
                        values: vec![value],
                        negated: *op == Operator::NotEq,
                    })
                }
                Operator::And | Operator::Or => {
                    let longest = longest.checked_sub(1)?;
                    let mut both = Self::of_condition(left, longest)?;
                    let other = Self::of_condition(right, longest)?;
                    let is_union = both.negated == (*op == Operator::And);
                    let same = both.of == other.of && both.negated == other.negated;
                    both.values.extend(other.values);
                    (same && is_union).then_some(both)
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// `part` in a form from which nothing wrong is concluded.
fn guarded(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match &part {
        Expr::InList(list) if list.list.iter().any(is_null) => {
            Ok(Transformed::yes(without_null(list)))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_logical(*op) => {
            let replaced = Values::of_condition(left, LONGEST)
                .zip(Values::of_condition(right, LONGEST))
                .and_then(|(left, right)| combined(&left, *op, &right, schema));
            Ok(match replaced {
                Some(replaced) => Transformed::yes(replaced),
                None => Transformed::no(part),
            })
        }
        _ => Ok(Transformed::no(part)),
    }
}

/// `a IN (1, NULL)` as `a IN (1) OR NULL`, and `a NOT IN (1, NULL)` as `a NOT IN (1) AND NULL`.
fn without_null(list: &InList) -> Expr {
    let unknown = lit(ScalarValue::Boolean(None));
    let values = list.list.iter().filter(|value| !is_null(value));
    let values: Vec<Expr> = values.cloned().collect();
    if values.is_empty() {
        return unknown;
    }
    let list = Expr::InList(InList {
        expr: list.expr.clone(),
        list: values,
        negated: list.negated,
    });
    match &list {
        Expr::InList(InList { negated: true, .. }) => and(list, unknown),
        _ => or(list, unknown),
    }
}

/// `left` and `right` with `operator` between them, if DataFusion would conclude too much of that.
fn combined(
    left: &Values<'_>,
    operator: Operator,
    right: &Values<'_>,
    schema: &DFSchema,
) -> Option<Expr> {
    if left.of != right.of || left.of.is_volatile() {
        return None;
    }
    let in_both = |of: &Values<'_>, other: &Values<'_>, both: bool| -> Vec<Expr> {
        let values = of.values.iter();
        let kept = values.filter(|value| other.values.contains(value) == both);
        kept.map(|value| (*value).clone()).collect()
    };
    let (values, negated) = match (operator, left.negated, right.negated) {
        (Operator::And, false, false) => (in_both(left, right, true), false),
        (Operator::And, false, true) => (in_both(left, right, false), false),
        (Operator::And, true, false) => (in_both(right, left, false), false),
        (Operator::Or, true, true) => (in_both(left, right, true), true),
        // Of these it makes one list with the values of both, which says the same.
        _ => return None,
    };
    let of = left.of.clone();
    let unknown = lit(ScalarValue::Boolean(None));
    let mut all = left.values.iter().chain(&right.values);
    if all.clone().any(|value| value.any_column_refs()) {
        return Some(Expr::BinaryExpr(BinaryExpr::new(
            Box::new(one_by_one(left)),
            operator,
            Box::new(one_by_one(right)),
        )));
    }
    if all.clone().any(|value| is_null(value)) {
        return None;
    }
    let is_known = all.all(|value| matches!(value, Expr::Literal(..)));
    if !of.nullable(schema).unwrap_or(true) || is_known && !values.is_empty() {
        return None;
    }
    // False, or of NOT IN true, but NULL where the expression is NULL.
    let of_null = match negated {
        true => or(of.clone().is_not_null(), unknown),
        false => and(of.is_null(), unknown),
    };
    // Lists whose constants have not been evaluated yet are kept beside it.
    Some(match (is_known, negated) {
        (true, _) => of_null,
        (false, true) => and(of_null, list_of(left).or(list_of(right))),
        (false, false) => or(of_null, list_of(left).and(list_of(right))),
    })
}

fn list_of(values: &Values<'_>) -> Expr {
    let list = values.values.iter().map(|value| (*value).clone());
    values.of.clone().in_list(list.collect(), values.negated)
}

/// The same as comparisons, of which no list is made again: whether columns have the same values, nobody knows.
fn one_by_one(values: &Values<'_>) -> Expr {
    let comparisons = values.values.iter().map(|value| {
        let (of, value) = (values.of.clone(), (*value).clone());
        match values.negated {
            true => of.not_eq(value),
            false => of.eq(value),
        }
    });
    let all = comparisons.reduce(|one, other| match values.negated {
        true => one.and(other),
        false => one.or(other),
    });
    all.unwrap_or_else(|| lit(values.negated))
}
