//! What was found out about the rows of a batch, as it is logged.

use datafusion::arrow::array::{Array, AsArray, Int64Array, UInt64Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::Result;
use skewer_profiling::{Ids, Latencies, Method};

use crate::pacing::Run;

/// The records whose latency was found by `method`, leaving out absent ones; their latencies and
/// by how much these may be off.
pub(super) fn rows_found_by(
    method: Method,
    ids: &Int64Array,
    runs: &[Run],
) -> Result<(Ids, Latencies, Latencies)> {
    if runs.iter().all(|run| run.method != method) {
        let none = || Latencies::encode(&[]);
        return Ok((Ids::encode(&[]), none(), none()));
    }
    let errors = errors(ids, runs);
    let all = runs.iter().all(|run| run.method == method);
    if all && ids.null_count() == 0 {
        let latencies = runs.iter().map(|run| (run.rows, run.ps));
        let latencies = encoded(latencies, runs.len(), ids.len());
        let errors = encoded(errors.iter().copied(), errors.len(), ids.len());
        return Ok((Ids::encode(ids.values()), latencies, errors));
    }
    let (mut rows, mut latency, mut error, mut row) = (vec![], vec![], vec![], 0);
    let errors = errors.iter();
    let mut errors = errors.flat_map(|(rows, ps)| std::iter::repeat_n(*ps as i64, *rows));
    for run in runs {
        let found = row..row + run.rows;
        row = found.end;
        let errors = errors.by_ref().take(run.rows);
        if run.method == method {
            for (row, ps) in found.zip(errors).filter(|(row, _)| ids.is_valid(*row)) {
                rows.push(row as u64);
                latency.push(run.ps as i64);
                error.push(ps);
            }
        } else {
            errors.for_each(drop);
        }
    }
    let ids = take(ids, &UInt64Array::from(rows), None)?;
    Ok((
        Ids::encode(ids.as_primitive::<Int64Type>().values()),
        Latencies::encode(&latency),
        Latencies::encode(&error),
    ))
}

/// Packs so many runs of so many rows in all.
fn encoded(runs: impl Iterator<Item = (usize, u64)>, count: usize, rows: usize) -> Latencies {
    if count * 4 > rows {
        let each: Vec<i64> = runs
            .flat_map(|(rows, ps)| std::iter::repeat_n(ps as i64, rows))
            .collect();
        Latencies::encode(&each)
    } else {
        Latencies::runs(runs.map(|(rows, ps)| (rows as u32, ps)).collect())
    }
}

/// By how much the latency of each row may be off, as runs of rows.
///
/// What a chunk took may have gone into any of its records. Of one that has several of its rows (an
/// array's elements, say) the errors of all of them add up to what the others were given.
fn errors(ids: &Int64Array, runs: &[Run]) -> Vec<(usize, u64)> {
    let mut errors: Vec<(usize, u64)> = Vec::with_capacity(runs.len());
    let mut start = 0;
    for run in runs {
        let of_run = &ids.values()[start..start + run.rows];
        start += run.rows;
        let [first, .., last] = of_run else {
            errors.push((run.rows, run.error_ps));
            continue;
        };
        // Rows of a table, one after the other.
        let are_consecutive = last.wrapping_sub(*first) == run.rows as i64 - 1;
        if run.method != Method::Apportioned || are_consecutive {
            errors.push((run.rows, run.error_ps));
            continue;
        }
        let total = run.error_ps + run.ps;
        // Without a branch for each row, since there may be thousands.
        if of_run.iter().fold(true, |same, id| same & (id == first)) {
            let own = run.ps.saturating_mul(run.rows as u64);
            errors.push((run.rows, total.saturating_sub(own) / run.rows as u64));
            continue;
        }
        for record in of_run.chunk_by(|one, next| one == next) {
            let rows = record.len();
            let own = run.ps.saturating_mul(rows as u64);
            let error = total.saturating_sub(own) / rows as u64;
            match errors.last_mut() {
                Some((before, same)) if *same == error => *before += rows,
                _ => errors.push((rows, error)),
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_chunk_took_is_in_doubt_between_its_records_and_not_within_one() {
        let run = |rows, ps, error_ps, method| Run {
            rows,
            ps,
            error_ps,
            method,
        };
        // 1,000 ps that two records may have taken, with 3 rows and 1; then all of them one's; then
        // rows of a table, and one that was timed by itself.
        let runs = [
            run(4, 250, 750, Method::Apportioned),
            run(4, 250, 750, Method::Apportioned),
            run(4, 250, 750, Method::Apportioned),
            run(1, 9_000, 40, Method::Replayed),
            // Two of the rows of a chunk that the one before was found in.
            run(2, 250, 750, Method::Apportioned),
        ];
        let ids = Int64Array::from(vec![5, 5, 5, 6, 7, 7, 7, 7, 8, 9, 10, 11, 3, 2, 2]);
        let errors = errors(&ids, &runs);
        let expected = [(3, 83), (1, 750), (4, 0), (4, 750), (1, 40), (2, 250)];
        assert_eq!(errors, expected);
        let (ids, latencies, errors) = rows_found_by(Method::Apportioned, &ids, &runs).unwrap();
        assert_eq!((ids.len(), latencies.len(), errors.len()), (14, 14, 14));
        let sum: i64 = errors.decode_ns().values().iter().sum();
        assert_eq!(sum, (3 * 83 + 750 + 4 * 750 + 2 * 250 + 500) / 1000);
    }
}
