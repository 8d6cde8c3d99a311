//! The groups of grouping sets, merged from those of the largest set.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion::physical_plan::aggregates::{PhysicalGroupBy, evaluate_group_by};

/// Groups by some columns.
pub(super) struct Groups {
    /// The columns that rows are grouped by; those that are not in the set are NULL.
    pub(super) by: Vec<ArrayRef>,
    /// Of each function, its states.
    pub(super) states: Vec<Vec<ArrayRef>>,
}

impl Groups {
    fn rows(&self) -> usize {
        self.by.first().map_or(0, |column| column.len())
    }
}

/// Grouping sets.
pub(super) struct Sets {
    /// The columns that all sets choose from.
    columns: SchemaRef,
    /// Of each set, by which of the columns it does *not* group, and its number if it has one. The largest set, which
    /// groups by all columns, comes first.
    sets: Vec<(Vec<bool>, Option<ScalarValue>)>,
}

impl Sets {
    /// Whether one set groups by all columns, and none is there twice.
    pub(super) fn can_be_merged(by: &PhysicalGroupBy) -> bool {
        let sets = by.groups();
        let has_all = sets.iter().any(|set| set.iter().all(|is_null| !is_null));
        let is_once = |(place, set): (usize, &Vec<bool>)| !sets[..place].contains(set);
        has_all && sets.iter().enumerate().all(is_once)
    }

    /// The sets of an aggregate of rows of `input`.
    pub(super) fn try_new(by: &PhysicalGroupBy, input: &Schema) -> Result<Self> {
        let columns = columns_of(by, input)?;
        if by.is_single() {
            let all = vec![false; by.expr().len()];
            return Ok(Self {
                columns,
                sets: vec![(all, None)],
            });
        }
        // The numbers of sets are the last column of each set's groups of one row.
        let one_row = input.fields().iter();
        let one_row = one_row.map(|field| new_null_array(field.data_type(), 1));
        let nullable = input.fields().iter();
        let nullable = nullable.map(|field| field.as_ref().clone().with_nullable(true));
        let nullable = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let one_row = RecordBatch::try_new_with_options(nullable, one_row.collect(), &options)?;
        let numbered = PhysicalGroupBy::new(
            // Their values do not matter, and may be errors.
            by.null_expr().to_vec(),
            by.null_expr().to_vec(),
            by.groups().to_vec(),
            true,
        );
        let numbers = evaluate_group_by(&numbered, &one_row)?.into_iter();
        let numbers = numbers.map(|columns| match columns.last() {
            Some(number) => ScalarValue::try_from_array(number, 0),
            None => internal_err!("a grouping set without a number"),
        });
        let sets = by.groups().iter().cloned().zip(numbers);
        let sets = sets.map(|(set, number)| Ok((set, Some(number?))));
        let mut sets = sets.collect::<Result<Vec<_>>>()?;
        sets.sort_by_key(|(set, _)| set.iter().filter(|is_null| **is_null).count());
        Ok(Self { columns, sets })
    }

    /// The rows of all sets: columns, the set's number, and states. `all` are the groups of the largest set.
    pub(super) fn merged(
        &self,
        all: Groups,
        new_accumulators: impl Fn() -> Result<Vec<Box<dyn GroupsAccumulator>>>,
    ) -> Result<Vec<Vec<ArrayRef>>> {
        let mut done: Vec<(&Vec<bool>, Groups)> = Vec::with_capacity(self.sets.len());
        let mut largest = Some(all);
        for (set, _) in &self.sets {
            let groups = match largest.take() {
                Some(all) => all,
                None => {
                    // Of the sets that group by these columns, and others, the one with the fewest groups.
                    let has_all = |other: &[bool]| {
                        set.iter()
                            .zip(other)
                            .all(|(is_null, of_other)| *is_null || !of_other)
                    };
                    let finer = done.iter().filter(|(other, _)| has_all(other));
                    let Some((_, finer)) = finer.min_by_key(|(_, groups)| groups.rows()) else {
                        return internal_err!("no grouping set has all columns of another one");
                    };
                    self.coarser(finer, set, new_accumulators()?)?
                }
            };
            done.push((set, groups));
        }
        let numbers = self.sets.iter().map(|(_, number)| number);
        let rows = done.into_iter().zip(numbers).map(|((_, groups), number)| {
            let count = groups.rows();
            let mut columns = groups.by;
            if let Some(number) = number {
                columns.push(number.to_array_of_size(count)?);
            }
            columns.extend(groups.states.into_iter().flatten());
            Ok(columns)
        });
        rows.collect()
    }

    /// The rows of the sets without columns, where nothing is grouped; `states` are those of no rows.
    pub(super) fn of_no_rows(&self, states: Vec<Vec<ArrayRef>>) -> Result<Vec<Vec<ArrayRef>>> {
        let sets = self.sets.iter();
        let empty = sets.filter(|(set, _)| set.iter().all(|is_null| *is_null));
        let rows = empty.map(|(_, number)| {
            let fields = self.columns.fields().iter();
            let by = fields.map(|field| new_null_array(field.data_type(), 1));
            let mut columns: Vec<ArrayRef> = by.collect();
            if let Some(number) = number {
                columns.push(number.to_array()?);
            }
            columns.extend(states.iter().flatten().cloned());
            Ok(columns)
        });
        rows.collect()
    }

    /// The groups of `set`, merged from `finer` ones.
    fn coarser(
        &self,
        finer: &Groups,
        set: &[bool],
        mut accumulators: Vec<Box<dyn GroupsAccumulator>>,
    ) -> Result<Groups> {
        let chosen: Vec<usize> = (0..set.len()).filter(|column| !set[*column]).collect();
        let mut groups = Vec::new();
        let (kept, count) = match chosen.is_empty() {
            true => {
                groups.resize(finer.rows(), 0);
                (Vec::new(), 1)
            }
            false => {
                let columns = chosen.iter().map(|column| Arc::clone(&finer.by[*column]));
                let columns: Vec<_> = columns.collect();
                let schema = Arc::new(self.columns.project(&chosen)?);
                let mut values = new_group_values(schema, &GroupOrdering::None)?;
                values.intern(&columns, &mut groups)?;
                let count = values.len();
                (values.emit(EmitTo::All)?, count)
            }
        };
        for (accumulator, states) in accumulators.iter_mut().zip(&finer.states) {
            accumulator.merge_batch(states, &groups, count)?;
        }
        let states = accumulators.iter_mut();
        let states = states.map(|accumulator| accumulator.state(EmitTo::All));
        let mut kept = kept.into_iter();
        let fields = self.columns.fields().iter().zip(set);
        let by = fields.map(|(field, is_null)| match is_null {
            true => new_null_array(field.data_type(), count),
            false => kept
                .next()
                .unwrap_or_else(|| new_null_array(field.data_type(), count)),
        });
        Ok(Groups {
            by: by.collect(),
            states: states.collect::<Result<_>>()?,
        })
    }
}

/// The columns that an aggregate of rows of `input` groups by.
pub(super) fn columns_of(by: &PhysicalGroupBy, input: &Schema) -> Result<SchemaRef> {
    let all = PhysicalGroupBy::new_single(by.expr().to_vec());
    let schema = all.group_schema(input)?;
    // Sets leave columns out.
    let fields = schema.fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}
