//! What was found out about the rows of a batch, as it is logged.

use datafusion::arrow::array::{Array, AsArray, UInt64Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::Result;
use skewer_profiling::{Ids, Latencies, Method, is_range};

use crate::chunked_timing::Run;
use crate::record_column::Records;

/// The records whose latency was found by `method`, leaving out absent ones; their latencies and
/// by how much these may be off. A record with several rows one after the other (the elements of an
/// array, say) has what they took together.
pub(super) fn rows_found_by(
    method: Method,
    records: Records<'_>,
    runs: &[Run],
) -> Result<(Ids, Latencies, Latencies)> {
    if runs.iter().all(|run| run.method != method) {
        let none = || Latencies::encode(&[]);
        return Ok((Ids::encode(&[]), none(), none()));
    }
    let ids = match records {
        Records::Ids(ids) if !has_equal_neighbours(ids.values()) => ids,
        Records::Ids(_) | Records::Dictionary(_) => {
            let found = records_found_by(method, records, runs);
            return Ok((
                Ids::encode(&found.ids),
                Latencies::encode(&found.latencies),
                Latencies::encode(&found.errors),
            ));
        }
    };
    let all = runs.iter().all(|run| run.method == method);
    if all && ids.null_count() == 0 {
        let latencies = runs.iter().map(|run| (run.rows, run.ps));
        let errors = runs.iter().map(|run| (run.rows, run.error_ps));
        return Ok((
            Ids::encode(ids.values()),
            encoded(latencies, runs.len(), ids.len()),
            encoded(errors, runs.len(), ids.len()),
        ));
    }
    let (mut rows, mut latency, mut error, mut row) = (vec![], vec![], vec![], 0);
    for run in runs {
        let found = row..row + run.rows;
        row = found.end;
        if run.method == method {
            for row in found.filter(|row| ids.is_valid(*row)) {
                rows.push(row as u64);
                latency.push(run.ps as i64);
                error.push(run.error_ps as i64);
            }
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

/// Whether two rows one after the other have the same id. Of rows of a table it is soon told.
fn has_equal_neighbours(ids: &[i64]) -> bool {
    !is_range(ids) && ids.windows(2).any(|pair| pair[0] == pair[1])
}

/// Records, and what was found out about each; in picoseconds.
#[derive(Debug, Default, PartialEq)]
struct Found {
    ids: Vec<i64>,
    latencies: Vec<i64>,
    errors: Vec<i64>,
}

/// As [`rows_found_by`], with one entry for all rows of a record that follow each other.
///
/// What a chunk took may have gone into any of its records: of one that has several of its rows, the
/// error is what the others were given.
fn records_found_by(method: Method, records: Records<'_>, runs: &[Run]) -> Found {
    let mut found = Found::default();
    // The record of the latest entry, if its rows may go on.
    let mut latest = None;
    let (mut row, mut end) = (0, 0);
    for run in runs {
        end += run.rows;
        if run.method != method {
            (latest, row) = (None, end);
            continue;
        }
        while row < end {
            let (first, length) = (row, records.run(row, end));
            row += length;
            let Some(id) = records.id(first) else {
                latest = None;
                continue;
            };
            let rows = length as u64;
            let latency = run.ps.saturating_mul(rows);
            let error = match method {
                Method::Apportioned => (run.error_ps + run.ps).saturating_sub(latency),
                _ => run.error_ps.saturating_mul(rows),
            };
            let (latency, error) = (clamped(latency), clamped(error));
            match (found.latencies.last_mut(), found.errors.last_mut()) {
                (Some(before), Some(error_before)) if latest == Some(id) => {
                    *before = before.saturating_add(latency);
                    *error_before = error_before.saturating_add(error);
                }
                _ => {
                    found.ids.push(id);
                    found.latencies.push(latency);
                    found.errors.push(error);
                    latest = Some(id);
                }
            }
        }
    }
    found
}

fn clamped(ps: u64) -> i64 {
    i64::try_from(ps).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;

    #[test]
    fn what_a_chunk_took_is_in_doubt_between_its_records_and_not_within_one() {
        let run = |rows, ps, error_ps, method| Run {
            rows,
            ps,
            error_ps,
            method,
        };
        // 1,000 ps that two records may have taken, with 3 rows and 1; then all of them one's, which has
        // a row of the next; then rows of a table, and one that was timed by itself.
        let runs = [
            run(4, 250, 750, Method::Apportioned),
            run(4, 250, 750, Method::Apportioned),
            run(4, 250, 750, Method::Apportioned),
            run(1, 9_000, 40, Method::Replayed),
            // Two of the rows of a chunk that the one before was found in.
            run(2, 250, 750, Method::Apportioned),
        ];
        let ids = Int64Array::from(vec![5, 5, 5, 6, 7, 7, 7, 7, 7, 9, 10, 11, 3, 2, 2]);
        let apportioned = Found {
            ids: vec![5, 6, 7, 9, 10, 11, 2],
            latencies: vec![750, 250, 1250, 250, 250, 250, 500],
            errors: vec![250, 750, 750, 750, 750, 750, 500],
        };
        assert_eq!(
            records_found_by(Method::Apportioned, Records::Ids(&ids), &runs),
            apportioned
        );
        let replayed = Found {
            ids: vec![3],
            latencies: vec![9_000],
            errors: vec![40],
        };
        assert_eq!(
            records_found_by(Method::Replayed, Records::Ids(&ids), &runs),
            replayed
        );
        let (ids, latencies, errors) =
            rows_found_by(Method::Apportioned, Records::Ids(&ids), &runs).unwrap();
        assert_eq!((ids.len(), latencies.len(), errors.len()), (7, 7, 7));
        // As far apart as three rows of a table.
        let ids = Int64Array::from(vec![5, 5, 7]);
        let run = [run(3, 250, 500, Method::Apportioned)];
        let (ids, ..) = rows_found_by(Method::Apportioned, Records::Ids(&ids), &run).unwrap();
        assert_eq!(ids, Ids::encode(&[5, 7]));
    }

    #[test]
    fn rows_without_a_record_are_left_out() {
        let run = Run {
            rows: 5,
            ps: 10,
            error_ps: 40,
            method: Method::Apportioned,
        };
        let ids = Int64Array::from(vec![Some(4), Some(4), None, Some(4), Some(8)]);
        let found = Found {
            ids: vec![4, 4, 8],
            latencies: vec![20, 10, 10],
            errors: vec![30, 40, 40],
        };
        assert_eq!(
            records_found_by(Method::Apportioned, Records::Ids(&ids), &[run]),
            found
        );
    }
}
