//! Naive queries of random parts.

use rand::RngExt;

use super::{Ask, AskList, Fold, Kind, Look, Match, Naive, Pairs, Scalar, Sets, Step, Third};
use crate::cases::Random;
use crate::frames::{ByPlace, Over};

impl Match {
    fn generate(random: &mut Random, left: usize, right: usize) -> Self {
        let mut columns = || (random.random_range(0..left), random.random_range(0..right));
        let (equal, less) = (columns(), columns());
        Self {
            equal: Some(equal).filter(|_| random.random_range(0..5) > 0),
            less: Some(less).filter(|_| random.random_range(0..2) == 0),
        }
    }
}

impl Pairs {
    fn generate(
        random: &mut Random,
        (left, right): (Box<Naive>, Box<Naive>),
        around: usize,
    ) -> Self {
        let mut columns = |l, r| (random.random_range(0..l), random.random_range(0..r));
        let (on, equal, less) = (
            columns(left.width(), right.width()),
            columns(around, right.width()),
            columns(around, left.width()),
        );
        Self {
            left,
            right,
            on,
            equal,
            less: Some(less).filter(|_| random.random_range(0..2) == 0),
        }
    }
}

impl Kind {
    fn generate(random: &mut Random) -> Self {
        match random.random_range(0..5) {
            0 => Self::Left,
            1 => Self::Right,
            2 => Self::Full,
            _ => Self::Inner,
        }
    }
}

impl Fold {
    fn generate(random: &mut Random, width: usize) -> Self {
        let c = random.random_range(0..width);
        match random.random_range(0..4) {
            0 => Self::CountAll,
            1 => Self::Count(c),
            2 => Self::Sum(c),
            _ => Self::Max(c),
        }
    }
}

impl Look {
    fn generate(random: &mut Random, width: usize) -> Self {
        let c = random.random_range(0..width);
        match random.random_range(0..20) {
            0 | 1 => Self::Group(Fold::generate(random, width)),
            2 | 10 => Self::First(c),
            3 => Self::Twice(Fold::generate(random, width)),
            4 | 12 => Self::Second,
            5 => Self::GreatestGroup(c),
            6 | 8 => Self::GreatestPartition(c),
            7 => Self::Equals(c),
            9 | 13 => Self::RolledUp(c),
            11 => Self::FirstTwo(c),
            14 | 15 => Self::RolledUpAround,
            16 | 17 => Self::Walked(c, random.random_range(0..width)),
            _ => Self::All(Fold::generate(random, width)),
        }
    }
}

impl Sets {
    fn generate(random: &mut Random, keys: usize) -> Self {
        match random.random_range(0..3) {
            0 => Self::Rollup,
            1 => Self::Cube,
            _ => {
                let mut sets = Self::Cube.sets_of(keys);
                sets.retain(|_| random.random_range(0..2) == 0);
                // A key that is in no set is none.
                let all = vec![true; keys];
                if !(0..keys).all(|key| sets.iter().any(|set| set[key])) && !sets.contains(&all) {
                    sets.push(all);
                }
                Self::Listed(sets)
            }
        }
    }
}

impl Step {
    fn generate(random: &mut Random) -> Self {
        match random.random_range(0..9) {
            0 => Self::Distinct,
            1 => Self::Grouped,
            2 => Self::Framed,
            3 => Self::Among,
            4 => Self::First,
            5 => Self::Value,
            6 => Self::Met,
            7 => Self::Greatest,
            _ => Self::Pairs,
        }
    }
}

impl Naive {
    pub fn generate(random: &mut Random, depth: usize) -> Self {
        if depth == 0 {
            return match random.random_range(0..8) {
                0 => Self::View,
                table => Self::Scan(["t", "u"][table % 2]),
            };
        }
        let input = Box::new(Self::generate(random, depth - 1));
        let width = input.width();
        let column = |random: &mut Random| random.random_range(0..width);
        let scalar = |random: &mut Random| {
            let c = random.random_range(0..width);
            match random.random_range(0..6) {
                5 => Scalar::Constant(1),
                0 => Scalar::Plus(c, 1),
                1 => Scalar::Coalesce(c, 2),
                2 => Scalar::Same(c),
                _ => Scalar::Column(c),
            }
        };
        let other = |random: &mut Random| {
            let below = random.random_range(0..depth);
            Box::new(Self::generate(random, below))
        };
        match random.random_range(0..46) {
            0 => Self::Filter(input, scalar(random), random.random_range(0..3)),
            25 => Self::Equal(
                input,
                Scalar::Column(column(random)),
                random.random_range(0..3),
            ),
            1 | 26 => {
                let width = random.random_range(1..=3);
                Self::Project(input, (0..width).map(|_| scalar(random)).collect())
            }
            2 | 3 | 27 | 28 => {
                let other = other(random);
                let (l, r) = (column(random), random.random_range(0..other.width()));
                let kind = Kind::generate(random);
                if random.random_range(0..3) == 0 {
                    let least = random.random_range(0..3);
                    Self::Using(input, other, kind, (l, r), least)
                } else {
                    Self::Join(input, other, kind, l, r)
                }
            }
            4..=7 => {
                let mut keys: Vec<_> = (0..random.random_range(0..=2))
                    .map(|_| column(random))
                    .collect();
                keys.dedup();
                let folds = (0..random.random_range(1..=2)).map(|_| Fold::generate(random, width));
                let folds = folds.collect();
                if keys.is_empty() || random.random_range(0..2) == 0 {
                    Self::Aggregate(input, keys, folds)
                } else {
                    let sets = Sets::generate(random, keys.len());
                    Self::GroupingSets(input, keys, sets, folds)
                }
            }
            8..=10 => {
                let other = other(random);
                let matching = Match::generate(random, width, other.width());
                let has = random.random_range(0..2) == 0;
                if random.random_range(0..2) == 0 {
                    Self::Tested(input, other, has, matching)
                } else {
                    let number = random.random_range(0..3);
                    Self::TestedOr(input, other, has, matching, column(random), number)
                }
            }
            20 | 21 => {
                let other = other(random);
                let width = 1 + random.random_range(0..2);
                let columns = (0..width)
                    .map(|_| (column(random), random.random_range(0..other.width())))
                    .collect();
                Self::In(input, other, random.random_range(0..2) == 0, columns)
            }
            22 => {
                let other = other(random);
                let kind = Kind::generate(random);
                let matching = Match::generate(random, width, other.width());
                Self::JoinOn(input, other, kind, matching)
            }
            37..=39 => {
                let (right, rows) = (other(random), other(random));
                let kind = Kind::generate(random);
                let matching = Match::generate(random, width, right.width());
                let third = Third {
                    has: random.random_range(0..3) > 0,
                    equal: (column(random), random.random_range(0..rows.width())),
                    least: (
                        random.random_range(0..right.width()),
                        random.random_range(0..rows.width()),
                    ),
                    rows,
                };
                Self::JoinIf(input, right, kind, matching, third)
            }
            40..=42 => {
                let (left, right) = (other(random), other(random));
                let widths = (left.width(), right.width());
                let pairs = Pairs::generate(random, (left, right), width);
                let ask = match random.random_range(0..6) {
                    0 => Ask::Exists(true),
                    1 => Ask::Exists(false),
                    2 => Ask::Marked(random.random_range(0..2) == 0),
                    3 => Ask::Greatest(random.random_range(0..widths.1)),
                    which => Ask::In(which == 4, column(random), random.random_range(0..widths.1)),
                };
                Self::Asked(input, pairs, ask)
            }
            23 => Self::Twice(input, column(random), column(random)),
            24 | 31 | 33 | 34 => {
                let other = other(random);
                let look = Look::generate(random, other.width());
                let equal = (column(random), random.random_range(0..other.width()));
                let mut matching = Match::generate(random, width, other.width());
                if matches!(look, Look::Group(_)) {
                    matching.less = None;
                }
                if matching.less.is_none() {
                    matching.equal = Some(equal);
                }
                let is_random = random.random_range(0..6) == 0;
                Self::Looked(input, other, look, matching, is_random)
            }
            32 | 36 => {
                let other = other(random);
                let matching = Match::generate(random, width, other.width());
                Self::Marked(input, other, random.random_range(0..2) == 0, matching)
            }
            11 => {
                let other = other(random);
                let (l, r) = (column(random), random.random_range(0..other.width()));
                Self::GreaterThanAll(input, other, l, r)
            }
            12 => Self::DistinctOn(input, column(random)),
            13 => {
                let sums = (0..random.random_range(1..=2))
                    .map(|_| (column(random), Over::generate(random, width)));
                Self::Window(input, sums.collect())
            }
            18 => {
                let functions =
                    (0..random.random_range(1..=2)).map(|_| ByPlace::generate(random, width));
                Self::ByPlace(input, functions.collect())
            }
            14 => {
                let two = [column(random), column(random)];
                Self::Unnest(input, column(random), two, random.random_range(0..2) == 0)
            }
            43..=45 => {
                let ask = match random.random_range(0..6) {
                    0 => AskList::Greatest,
                    1 => AskList::Place(column(random)),
                    which @ 2..=3 => AskList::In(which == 2, column(random)),
                    which => AskList::Exists(which == 4, random.random_range(0..3)),
                };
                let two = [column(random), column(random)];
                Self::Listed(input, two, random.random_range(0..2) == 0, ask)
            }
            15 => {
                let rows = random.random_range(1..5);
                match random.random_range(0..2) {
                    0 => Self::Limit(input, rows),
                    _ => Self::FirstWithTies(input, column(random), rows),
                }
            }
            16 => {
                let other = other(random);
                let width = width.min(other.width()).min(2);
                let columns: Vec<_> = (0..width).map(Scalar::Column).collect();
                Self::InOther(
                    Box::new(Self::Project(input, columns.clone())),
                    Box::new(Self::Project(other, columns)),
                    random.random_range(0..2) == 0,
                )
            }
            19 | 30 | 35 => {
                let other = other(random);
                let width = other.width();
                let along = (random.random_range(0..width), random.random_range(0..width));
                Self::Reached(
                    input,
                    other,
                    column(random),
                    along,
                    random.random_range(1..=2),
                    Step::generate(random),
                )
            }
            17 => {
                let other = other(random);
                let width = width.min(other.width()).min(2);
                let columns: Vec<_> = (0..width).map(Scalar::Column).collect();
                let left = Box::new(Self::Project(input, columns.clone()));
                let right = Box::new(Self::Project(other, columns));
                match random.random_range(0..2) {
                    0 => Self::Union(left, right),
                    _ => Self::UnionAll(left, right),
                }
            }
            _ => Self::Distinct(Box::new(Self::Project(input, vec![scalar(random)]))),
        }
    }
}
