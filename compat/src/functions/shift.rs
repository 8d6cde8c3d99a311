//! `lead` and `lag` that look at all rows that they need.
//!
//! DataFusion 55.2 loses track of which rows are not NULL when `lead(v, n) IGNORE NULLS` crosses a gap of NULLs, and
//! lets a LIMIT drop rows that it looks ahead to, as does `lag(v, -n)` (apache/datafusion issue 25471).

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_window::lead_lag::{WindowShift, WindowShiftKind};
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF,
    WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;

/// The window functions `lead(value, offset, default)` and `lag(value, offset, default)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Shift {
    of_datafusion: WindowShift,
}

impl Shift {
    /// `lead`
    pub fn lead() -> Self {
        Self {
            of_datafusion: WindowShift::lead(),
        }
    }

    /// `lag`
    pub fn lag() -> Self {
        Self {
            of_datafusion: WindowShift::lag(),
        }
    }

    /// Whether it is `lead`.
    pub fn is_lead(&self) -> bool {
        *self.of_datafusion.kind() == WindowShiftKind::Lead
    }
}

impl WindowUDFImpl for Shift {
    fn name(&self) -> &str {
        self.of_datafusion.name()
    }

    fn signature(&self) -> &Signature {
        self.of_datafusion.signature()
    }

    fn expressions(&self, args: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        self.of_datafusion.expressions(args)
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let ignores_nulls = args.ignore_nulls();
        let evaluator = self.of_datafusion.partition_evaluator(args)?;
        Ok(match ignores_nulls && !evaluator.is_causal() {
            true => Box::new(WholePartition(evaluator)),
            false => evaluator,
        })
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        self.of_datafusion.field(args)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        let same = match self.is_lead() {
            true => Self::lead(),
            false => Self::lag(),
        };
        ReversedUDWF::Reversed(Arc::new(WindowUDF::from(same)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.of_datafusion.documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        let offset = match args {
            [_] => Some(1),
            [_, offset, ..] => match offset.downcast_ref::<Literal>().map(Literal::value) {
                Some(ScalarValue::Int64(offset)) => *offset,
                _ => None,
            },
            [] => None,
        };
        let ahead = match self.is_lead() {
            true => offset,
            false => offset.and_then(i64::checked_neg),
        };
        match ahead.map(usize::try_from) {
            Some(Ok(0) | Err(_)) => LimitEffect::None,
            Some(Ok(rows)) => LimitEffect::Relative(rows),
            None => LimitEffect::Unknown,
        }
    }
}

/// Looks at a partition when all of its rows are there.
#[derive(Debug)]
struct WholePartition(Box<dyn PartitionEvaluator>);

impl PartitionEvaluator for WholePartition {
    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.0.get_range(row, rows)
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        self.0.evaluate_all(values, rows)
    }

    fn supports_bounded_execution(&self) -> bool {
        false
    }
}
