//! Functions whose states are a part of the states of another function of the same rows.
//!
//! An average is made of a sum and a count. Where a query asks for these too, as TPC-H Q1 does, they are computed
//! once.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::expressions::Literal;

use super::Function;

/// Where the states of a function are.
#[derive(Debug, PartialEq)]
pub(super) struct Shared {
    /// The place of the other function, which computes them.
    function: usize,
    /// The place of the first of them among its states.
    first: usize,
    /// Their types here.
    types: Vec<DataType>,
}

impl Shared {
    /// Of each function of rows of `input`, where its states are, if another function computes them.
    pub(super) fn of_functions(
        functions: &[Function],
        input: &Schema,
    ) -> Result<Vec<Option<Self>>> {
        let shared = functions.iter().map(|function| {
            for (place, average) in functions.iter().enumerate() {
                let there = state_types(average)?;
                if average.name() != "avg" || !is_of_decimals(&there) {
                    continue;
                }
                let Some(first) = first_state(function, average, input)? else {
                    continue;
                };
                let types = state_types(function)?;
                let matches = types.len() + first <= there.len()
                    && types
                        .iter()
                        .zip(&there[first..])
                        .all(|(here, there)| are_alike(here, there));
                if matches {
                    return Ok(Some(Self {
                        function: place,
                        first,
                        types,
                    }));
                }
            }
            Ok(None)
        });
        shared.collect()
    }

    /// The states of the function, from all functions' `states`.
    pub(super) fn states(&self, states: &[Vec<ArrayRef>]) -> Result<Vec<ArrayRef>> {
        let there = states
            .get(self.function)
            .and_then(|there| there.get(self.first..));
        let there = there.ok_or_else(|| internal_datafusion_err!("a function without states"))?;
        let states = self.types.iter().zip(there).map(|(data_type, state)| {
            match state.data_type() == data_type {
                true => Ok(Arc::clone(state)),
                false => Ok(cast(state, data_type)?),
            }
        });
        states.collect()
    }
}

/// The place of the first state of `function` among those of `average`; `None` if they are not there.
fn first_state(function: &Function, average: &Function, input: &Schema) -> Result<Option<usize>> {
    let same_filter = match (&function.filter, &average.filter) {
        (None, None) => true,
        (Some(one), Some(other)) => one == other,
        _ => false,
    };
    if !same_filter {
        return Ok(None);
    }
    Ok(match function.name() {
        "sum" if function.arguments == average.arguments => Some(1),
        "count" if counts_as(function, average, input)? => Some(0),
        _ => None,
    })
}

/// Whether `count` counts the rows that `average` counts.
fn counts_as(count: &Function, average: &Function, input: &Schema) -> Result<bool> {
    if count.arguments == average.arguments {
        return Ok(true);
    }
    let [counted] = &count.arguments[..] else {
        return Ok(false);
    };
    let counts_all = counted
        .downcast_ref::<Literal>()
        .is_some_and(|literal| !literal.value().is_null());
    let [averaged] = &average.arguments[..] else {
        return Ok(false);
    };
    Ok(counts_all && !averaged.nullable(input)?)
}

/// Whether these are the states of an average of decimals: count, sum, and the carry of the sum. As the count of a
/// group without values, averages of doubles have NULL.
fn is_of_decimals(states: &[DataType]) -> bool {
    matches!(
        states,
        [DataType::UInt64, DataType::Decimal128(..), DataType::Int32]
    )
}

fn state_types(function: &Function) -> Result<Vec<DataType>> {
    let fields = function.expression.state_fields()?;
    Ok(fields
        .iter()
        .map(|field| field.data_type().clone())
        .collect())
}

/// Whether every state of the type `there` that a group has is one of the type `here`.
fn are_alike(here: &DataType, there: &DataType) -> bool {
    match (here, there) {
        (DataType::Decimal128(_, scale), DataType::Decimal128(_, other)) => scale == other,
        (DataType::Int64, DataType::UInt64) => true,
        (here, there) => here == there,
    }
}
