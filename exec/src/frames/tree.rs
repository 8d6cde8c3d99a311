//! Frames as few parts that they share.
//!
//! The rows of a partition are numbered. [`FANOUT`] rows in a row, from a multiple of it on, are a
//! part of level 1, as many of these parts one of level 2, and so on. So any range of *n* rows is
//! made of at most `2 · (FANOUT − 1)` rows and parts of each level, of which there are log *n*.
//! A part is made when the first frame needs it, and forgotten when no later one can.
//!
//! Frames that begin at the first row share more: all rows before a part are something of their own,
//! made of the parts before it that are in the same part of the next level, and of all rows before
//! that one. A frame is made of all rows before the last part, and the rows since.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::mem::size_of;
use std::ops::Range;

use datafusion::arrow::array::ArrayRef;
use datafusion::common::{Result, ScalarValue, internal_err};

/// How many parts, or rows, are a part of the next level.
const FANOUT: usize = 4;

/// Levels of parts. Frames of more than `FANOUT^LEVELS` rows have more parts of the last one.
const LEVELS: usize = 9;

/// Levels of parts before which all rows are put together. Of the last one there are so few that
/// nothing is gained by sharing what is before them.
const LEVELS_BEFORE: usize = 4;

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    Frame,
    /// A part of this level, from 1 on.
    Part(usize),
    /// All rows before a part of this level.
    Before(usize),
}

impl Made {
    /// How many there are, each with a number.
    pub(super) const COUNT: usize = 1 + LEVELS + LEVELS_BEFORE;

    pub(super) fn number(self) -> usize {
        match self {
            Made::Frame => 0,
            Made::Part(level) => level,
            Made::Before(level) => LEVELS + level,
        }
    }
}

/// Makes something of rows and of what it has made of others.
pub(super) trait Summarize: Debug + Send + Sync + 'static {
    /// What it needs of a row.
    type Row: Debug + Send + Sync;

    /// What it makes.
    type Summary: Clone + Debug + Send + Sync;

    /// What it needs of rows with these arguments.
    fn rows(&self, values: &[ArrayRef]) -> Result<Vec<Self::Row>>;

    /// Makes it; `None` if there are no records in it.
    fn summarize(
        &mut self,
        made: Made,
        rows: &[&Self::Row],
        parts: &[Self::Summary],
    ) -> Result<Option<Self::Summary>>;

    /// What the window function returns for a frame.
    fn value(frame: Option<Self::Summary>) -> Result<ScalarValue>;

    /// Nothing more will be made.
    fn finish(&mut self) {}
}

/// Where the frames of a window begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// All of them at the first row of the partition.
    FirstRow,
    /// At any row, but never before the one where an earlier frame began.
    AnyRow,
}

/// The rows that are in a frame, and the parts of frames.
#[derive(Debug)]
pub(super) struct Tree<S: Summarize> {
    summarize: S,
    begin: Begin,
    /// The rows of the frame that may be needed by themselves.
    rows: VecDeque<S::Row>,
    /// The number of the first of them.
    kept: usize,
    /// The number of the frame's first row.
    start: usize,
    /// The parts of level 1 and those above that a later frame may have, by their number.
    levels: [BTreeMap<usize, Option<S::Summary>>; LEVELS],
    /// The last part of level 1 and those above that all rows before it were put together for.
    before: [Option<(usize, Option<S::Summary>)>; LEVELS_BEFORE],
    /// The last frame and what has been made of it: several rows may have the same.
    last: Option<(Range<usize>, Option<S::Summary>)>,
}

/// What something is made of: the numbers of rows, and parts.
type MadeOf<S> = (Vec<usize>, Vec<S>);

impl<S: Summarize> Tree<S> {
    pub(super) fn new(summarize: S, begin: Begin) -> Self {
        Self {
            summarize,
            begin,
            rows: VecDeque::new(),
            kept: 0,
            start: 0,
            levels: Default::default(),
            before: Default::default(),
            last: None,
        }
    }

    /// Rows come into the frame, after those that are in it.
    pub(super) fn extend(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.rows.extend(self.summarize.rows(values)?);
        Ok(())
    }

    /// The first rows of the frame leave it.
    pub(super) fn retract(&mut self, rows: usize) -> Result<()> {
        if self.begin == Begin::FirstRow {
            return internal_err!("frame_capture: rows leave a frame that keeps its first row");
        }
        self.start += rows;
        self.forget_rows(self.start);
        let mut first = self.start;
        for parts in &mut self.levels {
            first /= FANOUT;
            forget_parts(parts, first);
        }
        Ok(())
    }

    /// What is made of the rows in the frame.
    pub(super) fn frame(&mut self) -> Result<Option<S::Summary>> {
        let range = self.start..self.kept + self.rows.len();
        let (rows, parts) = match &self.last {
            Some((known, frame)) if *known == range => return Ok(frame.clone()),
            Some(_) if self.begin == Begin::FirstRow => self.since_the_first_row(range.end)?,
            Some(_) => self.cover(0, range.clone())?,
            // It may be the only one, which shares nothing.
            None => (range.clone().collect(), Vec::new()),
        };
        let frame = self.summarized(Made::Frame, &rows, &parts)?;
        self.last = Some((range, frame.clone()));
        Ok(frame)
    }

    /// There are no more frames.
    pub(super) fn finish(&mut self) {
        self.summarize.finish();
    }

    /// What the rows and parts take, roughly.
    pub(super) fn memory(&self) -> usize {
        let parts: usize = self.levels.iter().map(BTreeMap::len).sum();
        self.rows.capacity() * size_of::<S::Row>() + parts * 2 * size_of::<Option<S::Summary>>()
    }

    fn summarized(
        &mut self,
        made: Made,
        rows: &[usize],
        parts: &[S::Summary],
    ) -> Result<Option<S::Summary>> {
        let rows = rows.iter().map(|number| &self.rows[number - self.kept]);
        let rows: Vec<_> = rows.collect();
        self.summarize.summarize(made, &rows, parts)
    }

    /// The rows since the last part, and all before it. Forgets what no later frame needs, which has
    /// the same rows and more.
    fn since_the_first_row(&mut self, end: usize) -> Result<MadeOf<S::Summary>> {
        let mut number = end.saturating_sub(1) / FANOUT;
        let rows = number * FANOUT..end;
        let before = self.before(1, number)?;
        self.forget_rows(rows.start);
        // What is in a part of the next level that has all its rows is in that part now.
        for parts in &mut self.levels[..LEVELS - 1] {
            number /= FANOUT;
            forget_parts(parts, number * FANOUT);
        }
        Ok((rows.collect(), before.into_iter().collect()))
    }

    /// All rows before a part of a level, from 1 on.
    fn before(&mut self, level: usize, number: usize) -> Result<Option<S::Summary>> {
        if number == 0 {
            return Ok(None);
        }
        if number.is_multiple_of(FANOUT) && level < LEVELS_BEFORE {
            return self.before(level + 1, number / FANOUT);
        }
        if let Some((known, before)) = &self.before[level - 1]
            && *known == number
        {
            return Ok(before.clone());
        }
        let parts = if level == LEVELS_BEFORE {
            self.cover(level, 0..number)?.1
        } else {
            let next = number / FANOUT;
            let mut made_of = (Vec::new(), Vec::new());
            made_of.1.extend(self.before(level + 1, next)?);
            self.add(level, next * FANOUT..number, &mut made_of)?;
            made_of.1
        };
        let before = match &parts[..] {
            [only] => Some(only.clone()),
            parts => self.summarized(Made::Before(level), &[], parts)?,
        };
        self.before[level - 1] = Some((number, before.clone()));
        Ok(before)
    }

    /// The fewest parts of a level and above that are together a range of parts of this level; level 0
    /// are rows.
    fn cover(&mut self, level: usize, range: Range<usize>) -> Result<MadeOf<S::Summary>> {
        let mut made_of = (Vec::new(), Vec::new());
        let Range { mut start, mut end } = range;
        for level in level..=LEVELS {
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
        let part = self.summarized(Made::Part(level), &made_of.0, &made_of.1)?;
        self.levels[level - 1].insert(number, part.clone());
        Ok(part)
    }

    /// Forgets the rows before row `first`.
    fn forget_rows(&mut self, first: usize) {
        let rows = first.saturating_sub(self.kept).min(self.rows.len());
        self.rows.drain(..rows);
        self.kept = first;
    }
}

/// Forgets the parts before part `first`.
fn forget_parts<S>(parts: &mut BTreeMap<usize, S>, first: usize) {
    while parts.first_key_value().is_some_and(|(n, _)| *n < first) {
        parts.pop_first();
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
        made: Vec<(Made, Vec<u64>)>,
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
            made: Made,
            rows: &[&u64],
            parts: &[usize],
        ) -> Result<Option<usize>> {
            let mut all: Vec<u64> = rows.iter().copied().copied().collect();
            for part in parts {
                all.extend_from_slice(&self.made[*part].1);
                // Edges from one operator to itself could not be followed level by level.
                assert_ne!(self.made[*part].0, made);
            }
            all.sort_unstable();
            let made_of = rows.len() + parts.len();
            match made {
                Made::Part(_) => assert_eq!(made_of, FANOUT),
                Made::Before(_) => assert!(made_of > 1),
                Made::Frame if self.made.is_empty() => {}
                Made::Frame => self.most = self.most.max(made_of),
            }
            self.edges += made_of;
            self.made.push((made, all));
            Ok(Some(self.made.len() - 1))
        }

        fn value(frame: Option<usize>) -> Result<ScalarValue> {
            Ok(ScalarValue::UInt64(frame.map(|frame| frame as u64)))
        }
    }

    /// Gives one frame after the other, as a window does.
    fn assert_frames(
        begin: Begin,
        frames: impl IntoIterator<Item = (u64, u64)>,
    ) -> Tree<Remembered> {
        let mut tree = Tree::new(Remembered::default(), begin);
        let mut last = (0, 0);
        for (start, end) in frames {
            let new: ArrayRef = Arc::new(UInt64Array::from_iter_values(last.1..end));
            tree.extend(&[new]).unwrap();
            if begin == Begin::AnyRow {
                tree.retract((start - last.0) as usize).unwrap();
            }
            last = (start, end);
            let frame = tree.frame().unwrap().unwrap();
            let (made, rows) = &tree.summarize.made[frame];
            assert_eq!(*made, Made::Frame);
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
            let frames = (0..ROWS).map(|row| (start(row), (row + ahead + 1).min(ROWS)));
            assert_frames(Begin::AnyRow, frames);
        }
        // Frames that grow and shrink by many at once, and stay the same.
        let frames = [
            (0, 1),
            (3, 90),
            (3, 91),
            (3, 91),
            (17, 91),
            (64, 200),
            (199, 200),
            (250, 251),
        ];
        let tree = assert_frames(Begin::AnyRow, frames);
        let made = tree.summarize.made.len();
        assert!(made < 90, "{made}");
    }

    #[test]
    fn frames_from_the_first_row_on_have_each_of_their_rows_once() {
        assert_frames(Begin::FirstRow, (0..1_100).map(|row| (0, row + 1)));
        // Rows that come many at a time: peers, or those ahead.
        for step in [2, 3, 4, 5, 16, 17, 63, 64, 100, 255, 256, 257, 1_000, 1_025] {
            assert_frames(Begin::FirstRow, (1..20).map(|frame| (0, frame * step)));
            assert_frames(
                Begin::FirstRow,
                (1..8).map(|frame| (0, 1 + frame * frame * step)),
            );
        }
    }

    #[test]
    fn growing_frames_take_few_edges_and_little_memory() {
        const ROWS: u64 = 5_000;
        let tree = assert_frames(Begin::FirstRow, (0..ROWS).map(|row| (0, row + 1)));
        assert!(tree.summarize.most <= 1 + FANOUT);
        // All pairs would be 2,500 for each row.
        let edges = tree.summarize.edges as u64;
        assert!(edges < 6 * ROWS, "{edges}");
        let known: usize = tree.levels.iter().map(BTreeMap::len).sum();
        assert!(known < LEVELS * FANOUT, "{known}");
        assert!(tree.rows.len() <= FANOUT);
    }

    #[test]
    fn what_no_later_frame_needs_is_forgotten() {
        let tree = assert_frames(Begin::AnyRow, (0..2_000).map(|row| (row, row + 100)));
        let known: usize = tree.levels.iter().map(BTreeMap::len).sum();
        assert!(known < 60, "{known}");
        assert_eq!(tree.rows.len(), 100);
    }

    #[test]
    fn one_frame_of_many_rows_has_no_parts() {
        for begin in [Begin::FirstRow, Begin::AnyRow] {
            let tree = assert_frames(begin, [(0, 1_000), (0, 1_000), (0, 1_000)]);
            assert_eq!(tree.summarize.edges, 1_000);
            assert_eq!(tree.summarize.made.len(), 1);
        }
    }
}
