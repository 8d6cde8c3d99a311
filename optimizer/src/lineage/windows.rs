//! Window functions in the rewrite: rows are made of those in their frames, too.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::logical_plan::Window;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, WindowFunctionDefinition};
use skewer_exec::{AggregateOrigin, CapturedFrames, FrameCapture, RecordOrigin};

use super::{
    AnnotatedPlan, AnnotatedRecord, Arguments, LineageRewrite, columns_read, hidden_column,
    unaliased,
};

impl LineageRewrite {
    /// Rows get, besides their own records, those that `lag` and `lead` look at, and one that stands
    /// for the rows of the frame; one for each frame that functions look at.
    pub(super) fn window(&mut self, window: &Window) -> Result<AnnotatedPlan> {
        let input = self.rewrite(&window.input)?;
        let (mut input, hoisted) = self.hoist_of_windows(input, window)?;
        let mut exprs = hoisted.clone();
        // What belongs to columns that these functions do not read is none of their business.
        let read = columns_read(window.window_expr.iter())?;
        let mut records = input.records.clone();
        let is_theirs = |record: &AnnotatedRecord| !record.of_same_select || record.is_read(&read);
        input.records.retain(is_theirs);
        if !input.records.is_empty() {
            let columns = window.window_expr.iter().map(Expr::schema_name);
            let columns = columns.map(|name| name.to_string());
            let functions = hoisted.iter().zip(columns);
            let functions =
                functions.filter_map(|(expr, name)| Some((window_function(expr)?, name)));
            for (function, columns) in looking_at_other_rows(functions) {
                let looked_at = match looks_at_frame(function) {
                    true => vec![self.frame(&input, &function.params, &mut exprs)?],
                    false => self.other_row(&input, function, &mut exprs)?,
                };
                records.extend(looked_at.into_iter().map(|record| AnnotatedRecord {
                    of_columns: Some(columns.clone()),
                    of_same_select: true,
                    ..record
                }));
            }
        }
        let rewritten = Window::try_new(exprs, Arc::new(input.plan))?;
        Ok(AnnotatedPlan {
            plan: LogicalPlan::Window(rewritten),
            records,
        })
    }

    /// Hoists costly arguments of window functions, and what is costly in their order; the columns of
    /// the window keep their names.
    fn hoist_of_windows(
        &mut self,
        input: AnnotatedPlan,
        window: &Window,
    ) -> Result<(AnnotatedPlan, Vec<Expr>)> {
        let mut parts: Vec<Expr> = Vec::new();
        let mut keys: Vec<usize> = Vec::new();
        let mut places: Vec<usize> = Vec::new();
        for function in &window.window_expr {
            let are_keys = window_function(function).map_or(0..0, |function| {
                let over = &function.params;
                let first = over.args.len();
                first..first + over.partition_by.len() + over.order_by.len()
            });
            let mut number = 0;
            unaliased(function).apply_children(|part| {
                // Rows are sorted once for all functions, volatile as their keys may be.
                let is_key = are_keys.contains(&number);
                number += 1;
                let known = keys.iter().find(|key| is_key && parts[**key] == *part);
                places.push(known.copied().unwrap_or(parts.len()));
                if known.is_none() {
                    if is_key {
                        keys.push(parts.len());
                    }
                    parts.push(part.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let (input, parts) = self.hoist(input, parts)?;
        let mut places = places.into_iter();
        let functions = window.window_expr.iter().map(|function| {
            let new = unaliased(function).clone().map_children(|part| {
                let new = places.next().map_or(&part, |place| &parts[place]).clone();
                Ok(Transformed::new_transformed(new.clone(), new != part))
            })?;
            Ok(match new.transformed {
                true => new.data.alias(function.schema_name().to_string()),
                false => function.clone(),
            })
        });
        let functions = functions.collect::<Result<_>>()?;
        Ok((input, functions))
    }

    /// Adds a function to `exprs` that makes a record of the rows of each row's frame.
    fn frame(
        &mut self,
        input: &AnnotatedPlan,
        over: &WindowFunctionParams,
        exprs: &mut Vec<Expr>,
    ) -> Result<AnnotatedRecord> {
        let (function, arguments, source) = match self.merged(input)? {
            Some((function, arguments)) => (function, arguments, None),
            None => self.frame_capture(input)?,
        };
        let id = self.name("id");
        exprs.push(call(Arc::new(function), arguments, over).alias(&id));
        Ok(AnnotatedRecord {
            of_before: input.is_of_before(),
            ..AnnotatedRecord::new(source, id)
        })
    }

    /// The function that logs the records of the frame's rows, or carries their latencies on; its
    /// arguments; and where the records come from that it makes.
    fn frame_capture(
        &mut self,
        input: &AnnotatedPlan,
    ) -> Result<(AggregateUDF, Vec<Expr>, Option<RecordOrigin>)> {
        let Arguments {
            exprs,
            captured,
            carried,
        } = input.arguments()?;
        let (source, frames) = match &self.sources {
            Some(_) => (None, CapturedFrames::Carried(carried)),
            None => {
                let frames = Arc::new(AggregateOrigin::default());
                let source = RecordOrigin::Aggregate(Arc::clone(&frames));
                (Some(source), CapturedFrames::Logged(captured, frames))
            }
        };
        let name = self.name("frame");
        let function = FrameCapture::new(name, Arc::clone(&self.recorder), frames);
        Ok((AggregateUDF::from(function), exprs, source))
    }

    /// Adds functions to `exprs` that bring the records of the row that `function` looks at.
    fn other_row(
        &mut self,
        input: &AnnotatedPlan,
        function: &WindowFunction,
        exprs: &mut Vec<Expr>,
    ) -> Result<Vec<AnnotatedRecord>> {
        let WindowFunctionDefinition::WindowUDF(look) = &function.fun else {
            return Ok(Vec::new());
        };
        let offset = function.params.args.get(1).cloned();
        let mut brought: Vec<(&str, String)> = Vec::new();
        for record in &input.records {
            for column in std::iter::once(&record.id).chain(&record.latencies) {
                if brought.iter().any(|(known, _)| known == column) {
                    continue;
                }
                let mut arguments = vec![hidden_column(input.plan.schema(), column)?];
                arguments.extend(offset.clone());
                let name = self.name("other");
                exprs.push(call(Arc::clone(look), arguments, &function.params).alias(&name));
                brought.push((column, name));
            }
        }
        let name = |column: &String| {
            let known = brought.iter().find(|(known, _)| known == column);
            known.map(|(_, name)| name.clone())
        };
        let records = input.records.iter().filter_map(|record| {
            Some(AnnotatedRecord {
                latencies: record.latencies.iter().filter_map(name).collect(),
                of_before: record.of_before,
                ..AnnotatedRecord::new(record.source.clone(), name(&record.id)?)
            })
        });
        Ok(records.collect())
    }
}

/// `function(arguments)` over the rows that `over` says.
fn call(
    function: impl Into<WindowFunctionDefinition>,
    args: Vec<Expr>,
    over: &WindowFunctionParams,
) -> Expr {
    Expr::from(WindowFunction {
        fun: function.into(),
        params: WindowFunctionParams {
            args,
            partition_by: over.partition_by.clone(),
            order_by: over.order_by.clone(),
            window_frame: over.window_frame.clone(),
            filter: None,
            null_treatment: None,
            distinct: false,
        },
    })
}

fn window_function(expr: &Expr) -> Option<&WindowFunction> {
    match unaliased(expr) {
        Expr::WindowFunction(function) => Some(function),
        _ => None,
    }
}

/// Whether the function's value depends on the rows of the frame, as those of ranks do not.
fn looks_at_frame(function: &WindowFunction) -> bool {
    match &function.fun {
        WindowFunctionDefinition::AggregateUDF(_) => true,
        WindowFunctionDefinition::WindowUDF(function) => {
            matches!(function.name(), "first_value" | "last_value" | "nth_value")
        }
    }
}

/// Whether the function's value is that of one other row, so many rows away.
fn looks_at_another_row(function: &WindowFunction) -> bool {
    let WindowFunctionDefinition::WindowUDF(look) = &function.fun else {
        return false;
    };
    matches!(look.name(), "lag" | "lead")
        && function.params.null_treatment != Some(NullTreatment::IgnoreNulls)
}

/// The functions that look at other rows, one of each that look at the same, with the columns of all
/// of these.
fn looking_at_other_rows<'a>(
    functions: impl Iterator<Item = (&'a WindowFunction, String)>,
) -> Vec<(&'a WindowFunction, Vec<String>)> {
    let mut looking: Vec<(&WindowFunction, Vec<String>)> = Vec::new();
    for (function, column) in functions {
        let same = looking
            .iter_mut()
            .find(|(other, _)| looks_at_same(other, function));
        match same {
            Some((_, columns)) => columns.push(column),
            None if looks_at_frame(function) || looks_at_another_row(function) => {
                looking.push((function, vec![column]));
            }
            None => {}
        }
    }
    looking
}

/// Whether both functions look at the same rows.
fn looks_at_same(one: &WindowFunction, other: &WindowFunction) -> bool {
    let (over, others) = (&one.params, &other.params);
    let same_order = over.partition_by == others.partition_by && over.order_by == others.order_by;
    let same_frame =
        looks_at_frame(one) && looks_at_frame(other) && over.window_frame == others.window_frame;
    let same_row = looks_at_another_row(one)
        && looks_at_another_row(other)
        && one.fun == other.fun
        && over.args.get(1) == others.args.get(1);
    same_order && (same_frame || same_row)
}
