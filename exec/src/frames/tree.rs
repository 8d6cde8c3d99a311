//! Frames as few parts that they share.
//!
//! The rows of a partition are numbered. [`FANOUT`] rows in a row, from a multiple of it on, are a
//! part of level 1, as many of these parts one of level 2, and so on. So any range of *n* rows is
//! made of at most `2 · (FANOUT − 1)` rows and parts of each level, of which there are log *n*.
//! A part is made when the first frame needs it, and forgotten when no later one can.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::mem::size_of;
use std::ops::Range;

use datafusion::arrow::array::ArrayRef;
use datafusion::common::{Result, ScalarValue};

/// How many parts, or rows, are a part of the next level.
const FANOUT: usize = 4;

/// Levels of parts. Frames of more than `FANOUT^LEVELS` rows have more parts of the last one.
pub(super) const LEVELS: usize = 9;

/// Makes something of rows and of what it has made of others.
pub(super) trait Summarize: Debug + Send + Sync + 'static {
    /// What it needs of a row.
    type Row: Debug + Send + Sync;

    /// What it makes.
    type Summary: Clone + Debug + Send + Sync;

    /// What it needs of rows with these arguments.
    fn rows(&self, values: &[ArrayRef]) -> Result<Vec<Self::Row>>;

    /// Makes a part of `level`, 0 for a whole frame; `None` if there are no records in it.
    fn summarize(
        &mut self,
        level: usize,
        rows: &[&Self::Row],
        parts: &[Self::Summary],
    ) -> Result<Option<Self::Summary>>;

    /// What the window function returns for a frame.
    fn value(frame: Option<Self::Summary>) -> Result<ScalarValue>;
}

/// The rows that are in a frame, and the parts of frames.
#[derive(Debug)]
pub(super) struct Tree<S: Summarize> {
    summarize: S,
    /// The rows in the frame.
    rows: VecDeque<S::Row>,
    /// The number of the first of them.
    start: usize,
    /// The parts of level 1 and those above that a later frame may have, by their number.
    levels: [BTreeMap<usize, Option<S::Summary>>; LEVELS],
    /// The last frame and what has been made of it: several rows may have the same.
    last: Option<(Range<usize>, Option<S::Summary>)>,
}

/// What a part is made of: the numbers of rows, and other parts.
type MadeOf<S> = (Vec<usize>, Vec<S>);

impl<S: Summarize> Tree<S> {
    pub(super) fn new(summarize: S) -> Self {
        Self {
            summarize,
            rows: VecDeque::new(),
            start: 0,
            levels: Default::default(),
            last: None,
        }
    }

    /// Rows come into the frame, after those that are in it.
    pub(super) fn extend(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.rows.extend(self.summarize.rows(values)?);
        Ok(())
    }

    /// The first rows of the frame leave it.
    pub(super) fn retract(&mut self, rows: usize) {
        self.rows.drain(..rows.min(self.rows.len()));
        self.start += rows;
        let mut first = self.start;
        for parts in &mut self.levels {
            first /= FANOUT;
            while parts.first_key_value().is_some_and(|(n, _)| *n < first) {
                parts.pop_first();
            }
        }
    }

    /// What is made of the rows in the frame.
    pub(super) fn frame(&mut self) -> Result<Option<S::Summary>> {
        let range = self.start..self.start + self.rows.len();
        let (rows, parts) = match &self.last {
            Some((known, frame)) if *known == range => return Ok(frame.clone()),
            Some(_) => self.cover(range.clone())?,
            // It may be the only one, which shares nothing.
            None => (range.clone().collect(), Vec::new()),
        };
        let frame = self.summarized(0, &rows, &parts)?;
        self.last = Some((range, frame.clone()));
        Ok(frame)
    }

    /// What the rows and parts take, roughly.
    pub(super) fn memory(&self) -> usize {
        let parts: usize = self.levels.iter().map(BTreeMap::len).sum();
        self.rows.capacity() * size_of::<S::Row>() + parts * 2 * size_of::<Option<S::Summary>>()
    }

    fn summarized(
        &mut self,
        level: usize,
        rows: &[usize],
        parts: &[S::Summary],
    ) -> Result<Option<S::Summary>> {
        let rows = rows.iter().map(|number| &self.rows[number - self.start]);
        let rows: Vec<_> = rows.collect();
        self.summarize.summarize(level, &rows, parts)
    }

    /// The fewest parts, and rows, that are together the rows of a range.
    fn cover(&mut self, range: Range<usize>) -> Result<MadeOf<S::Summary>> {
        let mut made_of = (Vec::new(), Vec::new());
        let Range { mut start, mut end } = range;
        for level in 0..=LEVELS {
            let inner = start.div_ceil(FANOUT)..end / FANOUT;
            if level == LEVELS || inner.is_empty() {
                self.add(level, start..end, &mut made_of)?;
                break;
            }
            self.add(level, start..inner.start * FANOUT, &mut made_of)?;
            self.add(level, inner.end * FANOUT..end, &mut made_of)?;
            (start, end) = (inner.start, inner.end);
        }
        Ok(made_of)
    }

    /// Adds parts of a level to others; level 0 are rows.
    fn add(
        &mut self,
        level: usize,
        numbers: Range<usize>,
        (rows, parts): &mut MadeOf<S::Summary>,
    ) -> Result<()> {
        if level == 0 {
            rows.extend(numbers);
            return Ok(());
        }
        for number in numbers {
            parts.extend(self.part(level, number)?);
        }
        Ok(())
    }

    /// Part `number` of a level, which is made now if it is the first time.
    fn part(&mut self, level: usize, number: usize) -> Result<Option<S::Summary>> {
        if let Some(known) = self.levels[level - 1].get(&number) {
            return Ok(known.clone());
        }
        let mut made_of = (Vec::new(), Vec::new());
        let below = number * FANOUT..(number + 1) * FANOUT;
        self.add(level - 1, below, &mut made_of)?;
        let part = self.summarized(level, &made_of.0, &made_of.1)?;
        self.levels[level - 1].insert(number, part.clone());
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{AsArray, UInt64Array};
    use datafusion::arrow::datatypes::UInt64Type;

    use super::*;

    /// Remembers which rows each part is made of, and how many rows and parts it took.
    #[derive(Debug, Default)]
    struct Remembered {
        frames: Vec<Vec<u64>>,
        most: usize,
        edges: usize,
    }

    impl Summarize for Remembered {
        type Row = u64;
        type Summary = usize;

        fn rows(&self, values: &[ArrayRef]) -> Result<Vec<u64>> {
            Ok(values[0].as_primitive::<UInt64Type>().values().to_vec())
        }

        fn summarize(
            &mut self,
            level: usize,
            rows: &[&u64],
            parts: &[usize],
        ) -> Result<Option<usize>> {
            let mut all: Vec<u64> = rows.iter().copied().copied().collect();
            for part in parts {
                all.extend_from_slice(&self.frames[*part]);
            }
            all.sort_unstable();
            let made_of = rows.len() + parts.len();
            if level > 0 {
                assert_eq!(made_of, FANOUT);
            } else if !self.frames.is_empty() {
                self.most = self.most.max(made_of);
            }
            self.edges += made_of;
            self.frames.push(all);
            Ok(Some(self.frames.len() - 1))
        }

        fn value(frame: Option<usize>) -> Result<ScalarValue> {
            Ok(ScalarValue::UInt64(frame.map(|frame| frame as u64)))
        }
    }

    /// Gives one frame after the other, as a window does.
    fn assert_frames(frames: impl IntoIterator<Item = (u64, u64)>) -> Tree<Remembered> {
        let mut tree = Tree::new(Remembered::default());
        let mut last = (0, 0);
        for (start, end) in frames {
            let new: ArrayRef = Arc::new(UInt64Array::from_iter_values(last.1..end));
            tree.extend(&[new]).unwrap();
            tree.retract((start - last.0) as usize);
            last = (start, end);
            let frame = tree.frame().unwrap().unwrap();
            let rows = &tree.summarize.frames[frame];
            assert!(
                rows.iter().copied().eq(start..end),
                "{start}..{end}: {rows:?}"
            );
        }
        tree
    }

    #[test]
    fn a_part_has_each_row_of_its_frame_once() {
        const ROWS: u64 = 300;
        for (back, ahead) in [
            (0, 0),
            (1, 1),
            (3, 0),
            (7, 20),
            (0, 90),
            (64, 64),
            (ROWS, 0),
        ] {
            let start = |row: u64| row.saturating_sub(back);
            assert_frames((0..ROWS).map(|row| (start(row), (row + ahead + 1).min(ROWS))));
        }
        // Frames that grow and shrink by many at once, and stay the same.
        let tree = assert_frames([
            (0, 1),
            (3, 90),
            (3, 91),
            (3, 91),
            (17, 91),
            (64, 200),
            (199, 200),
            (250, 251),
        ]);
        let made = tree.summarize.frames.len();
        assert!(made < 90, "{made}");
    }

    #[test]
    fn growing_frames_take_few_edges() {
        const ROWS: u64 = 5_000;
        let tree = assert_frames((0..ROWS).map(|row| (0, row + 1)));
        assert!(tree.summarize.most <= 7 * (FANOUT - 1));
        // All pairs would be 2,500 for each row.
        let edges = tree.summarize.edges as u64;
        assert!(edges < 13 * ROWS, "{edges}");
    }

    #[test]
    fn what_no_later_frame_needs_is_forgotten() {
        let tree = assert_frames((0..2_000).map(|row| (row, row + 100)));
        let known: usize = tree.levels.iter().map(BTreeMap::len).sum();
        assert!(known < 60, "{known}");
        assert_eq!(tree.rows.len(), 100);
    }

    #[test]
    fn one_frame_of_many_rows_has_no_parts() {
        let tree = assert_frames([(0, 1_000), (0, 1_000), (0, 1_000)]);
        assert_eq!(tree.summarize.edges, 1_000);
        assert_eq!(tree.summarize.frames.len(), 1);
    }
}
