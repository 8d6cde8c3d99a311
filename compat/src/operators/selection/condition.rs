//! A condition as parts that AND joins, evaluated one after the other on fewer and fewer rows.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::buffer::{BooleanBuffer, MutableBuffer};
use datafusion::arrow::compute::FilterBuilder;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::arrow::util::bit_util;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};

use super::texts::Texts;

/// A list of more texts is looked up by DataFusion, which hashes it.
const MANY_TEXTS: usize = 16;

/// So many batches are selected before parts are put into another order.
const BATCHES_IN_ORDER: u32 = 16;

/// A condition of which nobody else evaluates parts.
#[derive(Debug)]
pub(super) struct Condition {
    /// Those that cost little, then others that cannot fail, then those that can, in the order of the text.
    parts: Vec<Part>,
    batches: u32,
}

impl Condition {
    /// The condition `predicate` on rows of `schema`.
    pub(super) fn new(predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Self {
        let parts = split_conjunction(predicate).into_iter();
        let mut parts: Vec<_> = parts.map(|part| Part::new(part, schema)).collect();
        // Keeps the order of equal ones.
        parts.sort_by_key(|part| part.class());
        Self { parts, batches: 0 }
    }

    /// The rows of `batch` for which the condition holds.
    ///
    /// # Errors
    /// Those of evaluating parts on rows for which all parts before them hold.
    pub(super) fn select(&mut self, batch: &RecordBatch) -> Result<BooleanBuffer> {
        let rows = batch.num_rows();
        let mut selected: Option<BooleanBuffer> = None;
        let mut left = rows;
        for part in &mut self.parts {
            if left == 0 {
                break;
            }
            let before = (Instant::now(), left);
            let now = part.select(batch, selected.as_ref(), left)?;
            left = now.count_set_bits();
            part.cost.add(before.0, before.1, left);
            selected = Some(now);
        }
        self.batches += 1;
        if self.batches.is_multiple_of(BATCHES_IN_ORDER) {
            self.reorder();
        }
        Ok(selected.unwrap_or_else(|| BooleanBuffer::new_set(rows)))
    }

    /// Puts those parts first that leave out the most rows for the least time. Those that can fail stay behind the
    /// others, and in the order of the text: an earlier one may keep a later one from failing.
    fn reorder(&mut self) {
        let free = self
            .parts
            .iter()
            .filter(|part| part.class() < Class::MayFail);
        let free = free.count();
        let rank = |part: &Part| (part.class(), part.cost.rank());
        self.parts[..free].sort_by(|left, right| {
            let (left, right) = (rank(left), rank(right));
            left.0.cmp(&right.0).then(left.1.total_cmp(&right.1))
        });
    }
}

/// When a part is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// First, and on all rows: it costs less than choosing rows.
    Cheap,
    /// After these, on the rows that are left.
    CannotFail,
    /// In the end, in the order of the text.
    MayFail,
}

#[derive(Debug)]
struct Part {
    test: Test,
    cost: Cost,
}

#[derive(Debug)]
enum Test {
    /// Whether the column has one of the texts.
    Texts {
        column: usize,
        texts: Texts,
        /// The same, where the column is not one of views.
        expression: Arc<dyn PhysicalExpr>,
    },
    /// Compares columns with each other or with values.
    Cheap(Arc<dyn PhysicalExpr>),
    Other {
        expression: Arc<dyn PhysicalExpr>,
        /// The columns that it reads.
        columns: Vec<usize>,
        /// The same expression over only these.
        rebased: Arc<dyn PhysicalExpr>,
        cannot_fail: bool,
    },
}

impl Part {
    fn new(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Self {
        Self {
            test: Test::new(expression, schema),
            cost: Cost::default(),
        }
    }

    fn class(&self) -> Class {
        match &self.test {
            Test::Texts { .. } | Test::Cheap(_) => Class::Cheap,
            Test::Other {
                cannot_fail: true, ..
            } => Class::CannotFail,
            Test::Other { .. } => Class::MayFail,
        }
    }

    /// Those of `selected`, which are `left` rows, for which it holds, too; of all rows if that is `None`.
    fn select(
        &self,
        batch: &RecordBatch,
        selected: Option<&BooleanBuffer>,
        left: usize,
    ) -> Result<BooleanBuffer> {
        let among = |holds: BooleanBuffer| match selected {
            Some(selected) => selected & &holds,
            None => holds,
        };
        match &self.test {
            Test::Texts {
                column,
                texts,
                expression,
            } => match texts.find(batch.column(*column)) {
                Some(found) => Ok(among(found)),
                None => Ok(among(holds(expression, batch)?)),
            },
            Test::Cheap(expression) => Ok(among(holds(expression, batch)?)),
            Test::Other {
                expression,
                columns,
                rebased,
                cannot_fail,
            } => {
                let rows = batch.num_rows();
                // Copying most of the rows costs more than a few that are in vain.
                let is_on_all = left == rows || *cannot_fail && 4 * left >= 3 * rows;
                let (Some(selected), false) = (selected, is_on_all) else {
                    return Ok(among(holds(expression, batch)?));
                };
                let chosen = BooleanArray::new(selected.clone(), None);
                let chosen = FilterBuilder::new(&chosen).optimize().build();
                let few = chosen.filter_record_batch(&batch.project(columns)?)?;
                Ok(scattered(selected, &holds(rebased, &few)?))
            }
        }
    }
}

/// The rows of `batch` for which `expression` is true.
fn holds(expression: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<BooleanBuffer> {
    let values = expression.evaluate(batch)?.into_array(batch.num_rows())?;
    let Some(values) = values.as_boolean_opt() else {
        let data_type = values.data_type();
        return exec_err!("the condition {expression} is {data_type}, not BOOLEAN");
    };
    Ok(match values.nulls() {
        Some(nulls) => values.values() & nulls.inner(),
        None => values.values().clone(),
    })
}

/// The rows of `selected` for which `holds` has a bit, one for each of them.
fn scattered(selected: &BooleanBuffer, holds: &BooleanBuffer) -> BooleanBuffer {
    let rows = selected.len();
    let mut bits = MutableBuffer::from_len_zeroed(rows.div_ceil(8));
    let mut places = holds.set_indices().peekable();
    for (place, row) in selected.set_indices().enumerate() {
        match places.peek() {
            None => break,
            Some(next) if *next == place => {
                places.next();
                bit_util::set_bit(bits.as_slice_mut(), row);
            }
            Some(_) => {}
        }
    }
    BooleanBuffer::new(bits.into(), 0, rows)
}

impl Test {
    fn new(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Self {
        let mut texts = Vec::new();
        if let Some(column) = column_of_texts(expression, &mut texts)
            && texts.len() <= MANY_TEXTS
        {
            return Self::Texts {
                column,
                texts: Texts::new(texts),
                expression: Arc::clone(expression),
            };
        }
        if is_cheap(expression, schema) {
            return Self::Cheap(Arc::clone(expression));
        }
        let mut columns: Vec<_> = collect_columns(expression)
            .iter()
            .map(Column::index)
            .collect();
        columns.sort_unstable();
        columns.dedup();
        Self::Other {
            expression: Arc::clone(expression),
            rebased: rebased(expression, &columns),
            columns,
            cannot_fail: cannot_fail(expression),
        }
    }
}

/// `expression` on rows that have only `columns`.
fn rebased(expression: &Arc<dyn PhysicalExpr>, columns: &[usize]) -> Arc<dyn PhysicalExpr> {
    let rebased = Arc::clone(expression).transform_up(|part| {
        let Some(column) = part.downcast_ref::<Column>() else {
            return Ok(Transformed::no(part));
        };
        let place = columns.binary_search(&column.index()).unwrap_or_default();
        Ok(Transformed::yes(
            Arc::new(Column::new(column.name(), place)) as _,
        ))
    });
    // Nothing above fails: the type is that of all such functions.
    rebased.data().unwrap_or_else(|_| Arc::clone(expression))
}

/// The column of which `expression` says that it has one of `texts`, to which these are added.
fn column_of_texts<'a>(
    expression: &'a Arc<dyn PhysicalExpr>,
    texts: &mut Vec<&'a str>,
) -> Option<usize> {
    if let Some(list) = expression.downcast_ref::<InListExpr>() {
        for value in list.list().iter().filter(|_| !list.negated()) {
            texts.push(text(value)?);
        }
        let column = list.expr().downcast_ref::<Column>()?;
        return (!texts.is_empty()).then_some(column.index());
    }
    let binary = expression.downcast_ref::<BinaryExpr>()?;
    match binary.op() {
        Operator::Eq => {
            let (left, right) = (binary.left(), binary.right());
            let (column, value) = match left.downcast_ref::<Column>() {
                Some(column) => (column, right),
                None => (right.downcast_ref::<Column>()?, left),
            };
            texts.push(text(value)?);
            Some(column.index())
        }
        Operator::Or => {
            let left = column_of_texts(binary.left(), texts)?;
            let right = column_of_texts(binary.right(), texts)?;
            (left == right).then_some(left)
        }
        _ => None,
    }
}

/// A text that is compared with a column of views.
fn text(value: &Arc<dyn PhysicalExpr>) -> Option<&str> {
    match value.downcast_ref::<Literal>()?.value() {
        ScalarValue::Utf8View(text) => text.as_deref(),
        _ => None,
    }
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// Whether `expression` compares columns of numbers, times or truth values with each other or with values.
fn is_cheap(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let is_fixed = |column: &Column| {
        let fields = schema.fields().get(column.index());
        fields.is_some_and(|field| {
            let data_type = field.data_type();
            data_type.is_primitive() || *data_type == DataType::Boolean
        })
    };
    let is_column = |expression: &Arc<dyn PhysicalExpr>| {
        expression.downcast_ref::<Column>().is_some_and(is_fixed)
    };
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        let is_operand = |operand| is_column(operand) || operand.is::<Literal>();
        let (left, right) = (binary.left(), binary.right());
        return is_comparison(*binary.op())
            && is_operand(left)
            && is_operand(right)
            && (is_column(left) || is_column(right));
    }
    if let Some(is_null) = expression.downcast_ref::<IsNullExpr>() {
        return is_null.arg().is::<Column>();
    }
    if let Some(is_not_null) = expression.downcast_ref::<IsNotNullExpr>() {
        return is_not_null.arg().is::<Column>();
    }
    is_column(expression)
}

/// Whether `expression` has a value for all rows, the same each time, whatever order it is evaluated in.
fn cannot_fail(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let is_safe = match expression.downcast_ref::<BinaryExpr>() {
        Some(binary) => {
            is_comparison(*binary.op()) || matches!(binary.op(), Operator::And | Operator::Or)
        }
        None => {
            expression.is::<Column>()
                || expression.is::<Literal>()
                || expression.is::<InListExpr>()
                || expression.is::<LikeExpr>()
                || expression.is::<IsNullExpr>()
                || expression.is::<IsNotNullExpr>()
                || expression.is::<NotExpr>()
        }
    };
    is_safe && expression.children().into_iter().all(cannot_fail)
}

/// What a part has cost, and how many rows it has left.
#[derive(Debug, Default)]
struct Cost {
    rows: u64,
    kept: u64,
    nanoseconds: u64,
}

impl Cost {
    fn add(&mut self, started: Instant, rows: usize, kept: usize) {
        let elapsed = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.rows += rows as u64;
        self.kept += kept as u64;
        self.nanoseconds = self.nanoseconds.saturating_add(elapsed);
    }

    /// Nanoseconds for each row that it leaves out, the least first: the best order of independent conditions
    /// (Hellerstein and Stonebraker, *Predicate Migration*, SIGMOD 1993).
    fn rank(&self) -> f64 {
        let left_out = self.rows - self.kept;
        self.nanoseconds as f64 / (left_out as f64).max(0.5)
    }
}
