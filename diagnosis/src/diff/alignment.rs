//! Which operators of two plans are the same.

use super::OperatorPair;
use crate::plan::Operator;

/// Whether operators do the same. At lower levels scans do not say which table they read.
fn do_the_same(a: &Operator, b: &Operator) -> bool {
    let tables = a.table.as_ref().zip(b.table.as_ref());
    a.name == b.name && tables.is_none_or(|(a, b)| a == b)
}

/// Whether plans are the same: their operators do the same, and hang together alike.
pub fn are_the_same(before: &[Operator], after: &[Operator]) -> bool {
    let place = |operator: &Operator| (operator.operator_id, operator.parent_operator_id);
    before.len() == after.len()
        && (before.iter().zip(after)).all(|(a, b)| place(a) == place(b) && do_the_same(a, b))
}

/// Pairs the operators of two plans: as many as have the same name and, of scans, table, in the
/// same order (the longest common subsequence); of equal plans all.
pub fn aligned(before: &[Operator], after: &[Operator]) -> Vec<OperatorPair> {
    let mut longest = vec![vec![0_usize; after.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            longest[i][j] = match do_the_same(&before[i], &after[j]) {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let mut pairs = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < before.len() || j < after.len() {
        let (one, other) = (before.get(i), after.get(j));
        let both = one.zip(other).is_some_and(|(a, b)| do_the_same(a, b));
        let only_before =
            other.is_none() || (one.is_some() && longest[i + 1][j] >= longest[i][j + 1]);
        let (take_before, take_after) = match both {
            true => (true, true),
            false => (only_before, !only_before),
        };
        pairs.push(OperatorPair {
            before: one.filter(|_| take_before).cloned(),
            after: other.filter(|_| take_after).cloned(),
        });
        i += usize::from(take_before);
        j += usize::from(take_after);
    }
    pairs
}
