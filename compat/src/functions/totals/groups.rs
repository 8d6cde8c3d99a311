//! Sums and averages of groups.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int32Array, PrimitiveArray,
    UInt64Array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Int32Type, UInt64Type,
};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::NullState;

use super::accumulators::{carry_of_state, in_range};
use super::average::Averaging;
use super::wide::{Number, Wide};

/// The sums of groups.
#[derive(Debug)]
struct Totals<T: ArrowPrimitiveType> {
    /// The sum of each group, without its carry.
    values: Vec<T::Native>,
    /// The carries of groups that have one: few, if any.
    carries: HashMap<usize, i64>,
    /// Which groups have seen a value.
    seen: NullState,
}

impl<T> Totals<T>
where
    T: ArrowPrimitiveType + Send,
    T::Native: Number,
{
    fn new() -> Self {
        Self {
            values: Vec::new(),
            carries: HashMap::new(),
            seen: NullState::new(),
        }
    }

    fn add(
        &mut self,
        values: &PrimitiveArray<T>,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) {
        let Self {
            values: sums,
            carries,
            seen,
        } = self;
        sums.resize(count, T::Native::default());
        if filter.is_none()
            && values.null_count() == 0
            && let Some(few) = sums_of_few(values.values(), groups, count)
        {
            for (group, value) in few.into_iter().enumerate() {
                let (sum, carry) = sums[group].plus(T::Native::of_narrow(value));
                sums[group] = sum;
                if carry != 0 {
                    *carries.entry(group).or_default() += carry;
                }
            }
            // Only notes which groups have values.
            seen.accumulate(groups, values, None, count, |_, _| {});
            return;
        }
        seen.accumulate(groups, values, filter, count, |group, value| {
            let (sum, carry) = sums[group].plus(value);
            sums[group] = sum;
            if carry != 0 {
                *carries.entry(group).or_default() += carry;
            }
        });
    }

    /// Adds sums that others have made.
    fn merge(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        let [low, carries] = states else {
            return internal_err!("a sum has two states");
        };
        self.add(low.as_primitive::<T>(), groups, None, count);
        let carries = carries.as_primitive::<Int32Type>().values();
        if carries.iter().any(|carry| *carry != 0) {
            for (group, carry) in groups.iter().zip(carries) {
                if *carry != 0 {
                    *self.carries.entry(*group).or_default() += i64::from(*carry);
                }
            }
        }
        Ok(())
    }

    /// The sums of groups, with their carries if any has one.
    fn take(
        &mut self,
        emit_to: EmitTo,
    ) -> (Vec<T::Native>, HashMap<usize, i64>, Option<NullBuffer>) {
        let values = emit_to.take_needed(&mut self.values);
        let mut carries = std::mem::take(&mut self.carries);
        if let EmitTo::First(count) = emit_to {
            let (taken, left) = carries.into_iter().partition(|(group, _)| *group < count);
            carries = taken;
            let left: HashMap<usize, i64> = left;
            self.carries = left
                .into_iter()
                .map(|(group, carry)| (group - count, carry))
                .collect();
        }
        carries.retain(|_, carry| *carry != 0);
        (values, carries, self.seen.build(emit_to))
    }

    /// The states of groups: sums without carries as a `data_type`, and carries.
    fn states(&mut self, emit_to: EmitTo, data_type: &DataType) -> Result<[ArrayRef; 2]> {
        let (values, carries, nulls) = self.take(emit_to);
        let mut beside = vec![0; values.len()];
        for (group, carry) in carries {
            beside[group] = carry_of_state(carry)?;
        }
        let values = PrimitiveArray::<T>::new(values.into(), nulls);
        Ok([
            Arc::new(values.with_data_type(data_type.clone())),
            Arc::new(Int32Array::from(beside)),
        ])
    }

    fn size(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>()
            + self.carries.capacity() * size_of::<(usize, i64)>()
            + self.seen.size()
    }
}

/// Groups that are added up in lanes.
const FEW_GROUPS: usize = 64;

/// So many sums a group do not wait for each other.
const LANES: usize = 4;

/// The sums of one batch's values by group, if there are few groups and no sum can leave the range of `i64`.
fn sums_of_few<N: Number>(values: &[N], groups: &[usize], count: usize) -> Option<Vec<i64>> {
    if count > FEW_GROUPS {
        return None;
    }
    let bits_of_count = usize::BITS - values.len().leading_zeros();
    if N::bits(values) + bits_of_count > i64::BITS - 1 || values.len() != groups.len() {
        return None;
    }
    in_lanes(groups, count, |row| values[row].narrow())
}

/// Adds up the values of rows by group; `None` if there are too many groups.
///
/// A sum in memory can be added to only when what was added to it before is written. With few groups that is soon, so
/// each group has several sums, and rows take turns.
fn in_lanes(groups: &[usize], count: usize, value: impl Fn(usize) -> i64) -> Option<Vec<i64>> {
    if count > FEW_GROUPS || groups.len() < LANES * FEW_GROUPS {
        return None;
    }
    let mut lanes = [0_i64; LANES * FEW_GROUPS];
    for (row, group) in groups.iter().enumerate() {
        // No group is beyond: the remainder only tells the compiler so.
        lanes[(group * LANES + row % LANES) % (LANES * FEW_GROUPS)] += value(row);
    }
    let sums = lanes.chunks(LANES).take(count);
    Some(sums.map(|lanes| lanes.iter().sum()).collect())
}

/// `values` as states of groups that have one row each, of which those have none that `filter` leaves out.
fn as_states<T: ArrowPrimitiveType>(
    values: &ArrayRef,
    filter: Option<&BooleanArray>,
    data_type: &DataType,
) -> [ArrayRef; 2] {
    let values = values.as_primitive::<T>();
    let kept = filter.map(|filter| {
        let (kept, nulls) = (filter.values(), filter.nulls());
        NullBuffer::new(match nulls {
            Some(nulls) => kept & nulls.inner(),
            None => kept.clone(),
        })
    });
    let nulls = NullBuffer::union(values.nulls(), kept.as_ref());
    let low = PrimitiveArray::<T>::new(values.values().clone(), nulls);
    [
        Arc::new(low.with_data_type(data_type.clone())),
        Arc::new(Int32Array::from(vec![0; values.len()])),
    ]
}

/// `sum` of groups.
#[derive(Debug)]
pub struct GroupSums<T: ArrowPrimitiveType> {
    totals: Totals<T>,
    data_type: DataType,
}

impl<T> GroupSums<T>
where
    T: ArrowPrimitiveType + Send,
    T::Native: Number,
{
    /// Sums as a `data_type`, which is one of `T`.
    pub fn new(data_type: DataType) -> Self {
        Self {
            totals: Totals::new(),
            data_type,
        }
    }
}

impl<T> GroupsAccumulator for GroupSums<T>
where
    T: ArrowPrimitiveType + Debug + Send,
    T::Native: Number,
{
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        let [values] = values else {
            return internal_err!("sum takes one value");
        };
        self.totals
            .add(values.as_primitive::<T>(), groups, filter, count);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (values, carries, nulls) = self.totals.take(emit_to);
        let sums = PrimitiveArray::<T>::new(values.into(), nulls);
        if !carries.is_empty() {
            return Err(super::sum::sum_out_of_range(&self.data_type));
        }
        if matches!(self.data_type, DataType::Decimal128(..)) {
            for sum in sums.iter().flatten() {
                in_range(sum, &self.data_type)?;
            }
        }
        Ok(Arc::new(sums.with_data_type(self.data_type.clone())))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(self.totals.states(emit_to, &self.data_type)?.into())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.totals.merge(states, groups, count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let [values] = values else {
            return internal_err!("sum takes one value");
        };
        Ok(as_states::<T>(values, filter, &self.data_type).into())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.totals.size()
    }
}

/// `avg` of decimals in groups.
#[derive(Debug)]
pub struct GroupAverages {
    totals: Totals<Decimal128Type>,
    counts: Vec<u64>,
    averaging: Averaging,
}

impl GroupAverages {
    /// Averages as `averaging` says.
    pub fn new(averaging: Averaging) -> Self {
        Self {
            totals: Totals::new(),
            counts: Vec::new(),
            averaging,
        }
    }
}

impl GroupsAccumulator for GroupAverages {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        let [values] = values else {
            return internal_err!("avg takes one value");
        };
        let values = values.as_primitive::<Decimal128Type>();
        self.totals.add(values, groups, filter, count);
        self.counts.resize(count, 0);
        if filter.is_none() && values.null_count() == 0 {
            match in_lanes(groups, count, |_| 1) {
                Some(few) => {
                    for (counted, rows) in self.counts.iter_mut().zip(few) {
                        *counted += rows as u64;
                    }
                }
                None => groups.iter().for_each(|group| self.counts[*group] += 1),
            }
            return Ok(());
        }
        for (row, group) in groups.iter().enumerate() {
            let is_kept = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            self.counts[*group] += u64::from(is_kept && values.is_valid(row));
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (values, carries, nulls) = self.totals.take(emit_to);
        let counts = emit_to.take_needed(&mut self.counts);
        let averages = values.into_iter().zip(counts).enumerate();
        let averages = averages.map(|(group, (low, count))| {
            let carry = carries.get(&group).copied().unwrap_or_default();
            let average = self.averaging.average(Wide { low, carry }, count)?;
            Ok(average.unwrap_or_default())
        });
        let averages = averages.collect::<Result<Vec<_>, DataFusionError>>()?;
        let averages = Decimal128Array::new(averages.into(), nulls);
        Ok(Arc::new(
            averages.with_data_type(self.averaging.result.clone()),
        ))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let [low, carries] = self.totals.states(emit_to, &self.averaging.sum)?;
        let counts = emit_to.take_needed(&mut self.counts);
        Ok(vec![Arc::new(UInt64Array::from(counts)), low, carries])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        let [counts, sums @ ..] = states else {
            return internal_err!("an average has three states");
        };
        self.totals.merge(sums, groups, count)?;
        self.counts.resize(count, 0);
        let counts = counts.as_primitive::<UInt64Type>();
        for (group, rows) in groups.iter().zip(counts.values()) {
            self.counts[*group] += rows;
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let [values] = values else {
            return internal_err!("avg takes one value");
        };
        let [low, carries] = as_states::<Decimal128Type>(values, filter, &self.averaging.sum);
        let counts: UInt64Array = (0..low.len())
            .map(|row| Some(u64::from(low.is_valid(row))))
            .collect();
        Ok(vec![Arc::new(counts), low, carries])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.totals.size() + self.counts.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What sums of single values, one after the other, are.
    fn one_by_one(values: &[i128], groups: &[usize], count: usize) -> Vec<i128> {
        let mut sums = vec![0; count];
        for (value, group) in values.iter().zip(groups) {
            sums[*group] += value;
        }
        sums
    }

    fn sums(batches: &[(Vec<i128>, Vec<usize>)], count: usize) -> Vec<i128> {
        let mut totals = Totals::<Decimal128Type>::new();
        for (values, groups) in batches {
            totals.add(&Decimal128Array::from(values.clone()), groups, None, count);
        }
        let (sums, carries, nulls) = totals.take(EmitTo::All);
        assert!(carries.is_empty());
        assert!(nulls.is_none_or(|nulls| nulls.null_count() == 0));
        sums
    }

    #[test]
    fn sums_of_few_groups_are_those_of_many() {
        for count in [1, 4, 64, 65] {
            // The second batch has numbers that do not fit into 64 bits, the third too few rows for lanes.
            let batches: Vec<_> = [(8192, 1), (1000, 1 << 80), (100, -1)]
                .into_iter()
                .map(|(rows, factor): (usize, i128)| {
                    let values = (0..rows).map(|row| (row as i128 * 7919 % 1009 - 500) * factor);
                    let groups = (0..rows).map(|row| row * 31 % count);
                    (values.collect::<Vec<_>>(), groups.collect::<Vec<_>>())
                })
                .collect();
            let mut expected = vec![0; count];
            for (values, groups) in &batches {
                let of_batch = one_by_one(values, groups, count);
                expected
                    .iter_mut()
                    .zip(of_batch)
                    .for_each(|(sum, more)| *sum += more);
            }
            assert_eq!(sums(&batches, count), expected, "{count} groups");
        }
    }

    #[test]
    fn the_largest_numbers_are_added_up_where_there_is_room() {
        let largest = i64::MAX >> 14;
        let values = vec![largest; 8192];
        let groups = vec![0; 8192];
        let few = sums_of_few(&values, &groups, 1).unwrap();
        assert_eq!(few, [largest * 8192]);
        assert!(sums_of_few(&vec![i64::MAX >> 12; 8192], &groups, 1).is_none());
    }
}
