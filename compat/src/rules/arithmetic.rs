//! Arithmetic operators as functions that tell when a result does not fit, and casts as functions that are not looked
//! through: see [`Arithmetic`] and [`Conversion`].

use std::sync::Arc;

use crate::functions::arithmetic::{Arithmetic, Operation, decimals, operand_types};
use crate::functions::conversion::Conversion;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::expr::{Case, Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// Plans the operators whose results have another type than DataFusion's: quotients of decimals, products of theirs
/// with very many digits, and differences of numbers without sign.
#[derive(Debug)]
pub struct ArithmeticPlanner;

impl ExprPlanner for ArithmeticPlanner {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let operator = match expr.op {
            BinaryOperator::Divide => Operator::Divide,
            BinaryOperator::Multiply => Operator::Multiply,
            BinaryOperator::Minus => Operator::Minus,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        Ok(match operation_of_other_type(operator, &left, &right) {
            Some(operation) => PlannerResult::Planned(call(operation, vec![expr.left, expr.right])),
            None => PlannerResult::Original(expr),
        })
    }
}

/// The operation that an operator is, if it has another type than DataFusion's.
fn operation_of_other_type(
    operator: Operator,
    left: &DataType,
    right: &DataType,
) -> Option<Operation> {
    let is_concerned =
        |operand: &DataType| decimals::is_decimal(operand) || *operand == DataType::UInt64;
    if !is_concerned(left) && !is_concerned(right) {
        return None;
    }
    let (left, right) = operand_types(operator, left, right).ok()?;
    match Operation::of_operands(operator, &left, &right)? {
        Operation::Divide => Some(Operation::Divide),
        Operation::Subtract if left == DataType::UInt64 => Some(Operation::Difference),
        Operation::Multiply if decimals::is_decimal(&left) => {
            let product = decimals::product_type(&left, &right).ok()?;
            let other = BinaryTypeCoercer::new(&left, &operator, &right).get_result_type();
            (other.ok() != Some(product)).then_some(Operation::Multiply)
        }
        _ => None,
    }
}

/// Makes functions of all arithmetic operators, after types have been made equal.
#[derive(Debug)]
pub struct CheckArithmetic;

impl AnalyzerRule for CheckArithmetic {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(checked).data()
    }

    fn name(&self) -> &'static str {
        "check_arithmetic"
    }
}

fn checked(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&node.inputs());
    if let LogicalPlan::TableScan(scan) = &node {
        schema =
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
    }
    let names = NamePreserver::new(&node);
    let is_sort = matches!(node, LogicalPlan::Sort(_));
    node.map_expressions(|expression| {
        let name = names.save(&expression);
        let checked = expression.transform_up(|part| Ok(function(part, &schema)))?;
        Ok(match is_sort {
            true => checked,
            false => checked.update_data(|expression| name.restore(expression)),
        })
    })
}

/// The function that `part` is, if it is such an operator.
fn function(part: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let known = |operand: &Expr| type_of(operand, schema);
    let called = match &part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_arithmetic(*op) => {
            let types = known(left).zip(known(right));
            let operation =
                types.and_then(|(left, right)| Operation::of_operands(*op, &left, &right));
            operation.map(Arithmetic::new).map(ScalarUDF::from)
        }
        Expr::Negative(operand) => {
            let operation = known(operand).and_then(|operand| Operation::negation_of(&operand));
            operation.map(Arithmetic::new).map(ScalarUDF::from)
        }
        Expr::Cast(Cast { expr, field }) => conversion(known(expr), field.data_type(), false),
        Expr::TryCast(TryCast { expr, field }) => conversion(known(expr), field.data_type(), true),
        _ => None,
    };
    let Some(called) = called.map(Arc::new) else {
        return match part {
            Expr::Case(case) if is_short_circuit(&case, schema) => {
                Transformed::yes(Expr::Case(step_by_step(case)))
            }
            other => Transformed::no(other),
        };
    };
    let operands = match part {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
        Expr::Negative(operand) => vec![*operand],
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => vec![*expr],
        other => return Transformed::no(other),
    };
    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(
        called, operands,
    )))
}

/// The type of an operand. DataFusion would make the names of all parts of a function to tell.
fn type_of(operand: &Expr, schema: &DFSchema) -> Option<DataType> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = operand else {
        return operand.get_type(schema).ok();
    };
    let inner = func.inner();
    if let Some(conversion) = inner.downcast_ref::<Conversion>() {
        return Some(conversion.to().clone());
    }
    if !inner.is::<Arithmetic>() {
        return operand.get_type(schema).ok();
    }
    // Whole numbers have the same type on both sides. In a long chain the right one is short.
    let last = type_of(args.last()?, schema)?;
    let is_difference = func.name() == "difference";
    if last.is_integer() && !is_difference {
        return Some(last);
    }
    let types = args.iter().map(|operand| type_of(operand, schema));
    func.return_type(&types.collect::<Option<Vec<_>>>()?).ok()
}

fn conversion(from: Option<DataType>, to: &DataType, tries: bool) -> Option<ScalarUDF> {
    let loses = Conversion::loses(&from?, to);
    loses.then(|| ScalarUDF::from(Conversion::new(to.clone(), tries)))
}

/// Whether a CASE without a value keeps conditions from being evaluated that may fail. DataFusion 55.2 makes AND and
/// OR of its branches, all of which may be evaluated: `CASE WHEN b <> 0 THEN 10 / b > 1 ELSE false END` divided by
/// zero (found here).
fn is_short_circuit(case: &Case, schema: &DFSchema) -> bool {
    let Some((_, first)) = case.when_then_expr.first().filter(|_| case.expr.is_none()) else {
        return false;
    };
    let is_condition = first.get_type(schema).is_ok_and(|t| t == DataType::Boolean);
    let branches = case.when_then_expr.iter();
    let branches = branches.flat_map(|(when, then)| [when, then]);
    is_condition
        && branches
            .chain(&case.else_expr)
            .any(|branch| may_fail(branch))
}

/// The same CASE, of the value TRUE, which stays as it is.
fn step_by_step(case: Case) -> Case {
    Case {
        expr: Some(Box::new(lit(true))),
        ..case
    }
}

fn may_fail(expression: &Expr) -> bool {
    let fails = |part: &Expr| {
        matches!(
            part,
            Expr::Cast(_)
                | Expr::ScalarFunction(_)
                | Expr::BinaryExpr(BinaryExpr {
                    op: Operator::Divide
                        | Operator::Modulo
                        | Operator::Plus
                        | Operator::Minus
                        | Operator::Multiply,
                    ..
                })
        )
    };
    expression.exists(|part| Ok(fails(part))).unwrap_or(true)
}

/// Saves asking for the types of comparisons.
fn is_arithmetic(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Plus
            | Operator::Minus
            | Operator::Multiply
            | Operator::Divide
            | Operator::Modulo
            | Operator::BitwiseXor
    )
}

fn call(operation: Operation, operands: Vec<Expr>) -> Expr {
    let function = Arc::new(ScalarUDF::from(Arithmetic::new(operation)));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, operands))
}
