//! Runs of equal numbers, found without looking at each by itself.

use std::ops::{BitOr, BitXor, Range};

use multiversion::multiversion;

/// Numbers that are compared without a branch for each.
const BLOCK: usize = 64;

/// Runs after which it shows whether they are long.
const FIRST_RUNS: usize = 8;

/// How many of the numbers, from the first one on, are the same.
#[multiversion(targets("x86_64+avx2"))]
pub fn equal_to_first<T>(numbers: &[T]) -> usize
where
    T: Copy + Default + PartialEq + BitOr<Output = T> + BitXor<Output = T>,
{
    let Some(first) = numbers.first() else {
        return 0;
    };
    let none = T::default();
    let blocks = numbers.chunks_exact(BLOCK).take_while(|block| {
        let differences = block
            .iter()
            .fold(none, |differences, number| differences | (*number ^ *first));
        differences == none
    });
    let equal = BLOCK * blocks.count();
    let rest = numbers[equal..].iter();
    equal + rest.take_while(|number| *number == first).count()
}

/// Appends the numbers of `range` to `numbers`.
#[multiversion(targets("x86_64+avx2"))]
pub fn consecutive_numbers(range: Range<i64>, numbers: &mut Vec<i64>) {
    numbers.extend(range);
}

/// Whether all numbers are the first one.
pub(crate) fn all_equal(numbers: &[i64]) -> bool {
    numbers.first() == numbers.last() && equal_to_first(numbers) == numbers.len()
}

/// Puts runs of (length, number) together that follow each other and have the same number.
pub(crate) fn merge_equal<T: PartialEq>(runs: &mut Vec<(u32, T)>) {
    runs.dedup_by(|next, run| match run.0.checked_add(next.0) {
        Some(length) if run.1 == next.1 => {
            run.0 = length;
            true
        }
        _ => false,
    });
}

/// The runs of the numbers, as (length, number), if they have `mean` numbers in the mean at least.
/// Where the first runs are shorter, the rest is not looked at.
pub(crate) fn long_runs(numbers: &[i64], mean: usize) -> Option<Box<[(u32, i64)]>> {
    let mut runs = Vec::new();
    let mut start = 0;
    while start < numbers.len() {
        let length = equal_to_first(&numbers[start..]);
        runs.push((u32::try_from(length).ok()?, numbers[start]));
        start += length;
        if runs.len() >= FIRST_RUNS && start < mean * runs.len() {
            return None;
        }
    }
    (mean * runs.len() <= numbers.len()).then(|| runs.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_run_ends_where_another_number_begins() {
        for length in [1, 2, 63, 64, 65, 127, 128, 1000] {
            let mut numbers = vec![7; length];
            assert_eq!(equal_to_first(&numbers), length);
            assert!(all_equal(&numbers));
            numbers.extend([8, 7, 7]);
            assert!(!all_equal(&numbers));
            assert_eq!(equal_to_first(&numbers), length);
        }
        assert_eq!(equal_to_first::<i64>(&[]), 0);
        assert_eq!(equal_to_first(&[3_u32, 3, 4, 3]), 2);
    }

    #[test]
    fn numbers_that_change_often_are_given_up() {
        let alternating: Vec<i64> = (0..10_000).map(|i| i % 2).collect();
        assert_eq!(long_runs(&alternating, 4), None);
        assert_eq!(long_runs(&[1, 1, 2], 2), None);
    }

    proptest! {
        #[test]
        fn runs_are_the_numbers(
            runs in prop::collection::vec((1usize..300, 0i64..3), 0..40),
            mean in 1usize..100,
        ) {
            let numbers: Vec<i64> = runs
                .iter()
                .flat_map(|(length, number)| std::iter::repeat_n(*number, *length))
                .collect();
            if let Some(found) = long_runs(&numbers, mean) {
                let again: Vec<i64> = found
                    .iter()
                    .flat_map(|(length, number)| std::iter::repeat_n(*number, *length as usize))
                    .collect();
                prop_assert_eq!(again, numbers);
                prop_assert!(found.windows(2).all(|pair| pair[0].1 != pair[1].1));
            }
        }
    }
}
