//! The median of what was observed last.

/// Observations that a running median is taken over.
const WINDOW: usize = 31;

/// The median of the latest observations.
#[derive(Debug, Default)]
pub(super) struct RunningMedian {
    /// A ring.
    recent: Vec<f64>,
    next: usize,
    /// The same in order.
    sorted: Vec<f64>,
    pub(super) median: f64,
}

impl RunningMedian {
    pub(super) fn observe(&mut self, value: f64) {
        if self.recent.len() < WINDOW {
            self.recent.push(value);
        } else {
            let oldest = std::mem::replace(&mut self.recent[self.next], value);
            self.next = (self.next + 1) % WINDOW;
            let place = self.place(oldest);
            self.sorted.remove(place);
        }
        let place = self.place(value);
        self.sorted.insert(place, value);
        self.median = self.sorted[self.sorted.len() / 2];
    }

    /// How many of the latest there are.
    pub(super) fn len(&self) -> usize {
        self.recent.len()
    }

    /// Before how many of them there is none so great.
    fn place(&self, value: f64) -> usize {
        let less = |known: &f64| known.total_cmp(&value).is_lt();
        self.sorted.partition_point(less)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_that_of_the_latest() {
        let mut median = RunningMedian::default();
        // Some are equal.
        let values: Vec<f64> = (0..200_u32).map(|n| f64::from(n * n % 53)).collect();
        for (count, value) in (1..).zip(&values) {
            median.observe(*value);
            let mut latest = values[count.max(WINDOW) - WINDOW..count].to_vec();
            latest.sort_by(f64::total_cmp);
            assert_eq!(median.median, latest[latest.len() / 2]);
        }
    }
}
