//! The median of the latest of many numbers.

/// Numbers that it is taken over.
const WINDOW: usize = 31;

/// The median of the last [`WINDOW`] numbers.
#[derive(Debug, Default)]
pub(crate) struct RunningMedian {
    /// A ring.
    latest: Vec<f64>,
    next: usize,
    median: f64,
}

impl RunningMedian {
    /// Adds a number.
    pub(crate) fn add(&mut self, number: f64) {
        if self.latest.len() < WINDOW {
            self.latest.push(number);
        } else {
            self.latest[self.next] = number;
            self.next = (self.next + 1) % WINDOW;
        }
        let mut sorted = self.latest.clone();
        let middle = sorted.len() / 2;
        self.median = *sorted.select_nth_unstable_by(middle, f64::total_cmp).1;
    }

    /// The median, of an even number of numbers the greater middle one; 0 without numbers.
    pub(crate) fn get(&self) -> f64 {
        self.median
    }

    /// How many numbers it is the median of.
    pub(crate) fn count(&self) -> usize {
        self.latest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_latest_numbers() {
        let mut median = RunningMedian::default();
        assert_eq!((median.get(), median.count()), (0.0, 0));
        for number in [5.0, 1.0, 3.0] {
            median.add(number);
        }
        assert_eq!((median.get(), median.count()), (3.0, 3));
        for _ in 0..2 * WINDOW {
            median.add(7.0);
        }
        assert_eq!((median.get(), median.count()), (7.0, WINDOW));
    }
}
