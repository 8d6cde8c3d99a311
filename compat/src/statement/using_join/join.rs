//! Kinds of joins, and the value of the column that two columns become.

use datafusion::sql::sqlparser::ast::{Expr, JoinConstraint, JoinOperator};

use super::block::Merged;
use crate::statement::function_calls::called;

/// What rows a join has beside those with a match.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Inner,
    Left,
    Right,
    Full,
    /// Semi and anti joins.
    OnlyLeft,
    OnlyRight,
}

impl Kind {
    /// The column that two columns become.
    pub(super) fn merge(self, left: Merged, right: Merged) -> Merged {
        let value = match self {
            Self::Inner if !matches!(left.value, Expr::CompoundIdentifier(_)) => right.value,
            Self::Inner | Self::Left | Self::OnlyLeft => left.value,
            Self::Right | Self::OnlyRight => right.value,
            Self::Full => called("coalesce", vec![left.value, right.value], None),
        };
        let mut tables = left.tables;
        tables.extend(right.tables);
        Merged { value, tables }
    }
}

pub(crate) fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    match operator {
        JoinOperator::Join(c)
        | JoinOperator::Inner(c)
        | JoinOperator::Left(c)
        | JoinOperator::LeftOuter(c)
        | JoinOperator::Right(c)
        | JoinOperator::RightOuter(c)
        | JoinOperator::FullOuter(c)
        | JoinOperator::Semi(c)
        | JoinOperator::LeftSemi(c)
        | JoinOperator::RightSemi(c)
        | JoinOperator::Anti(c)
        | JoinOperator::LeftAnti(c)
        | JoinOperator::RightAnti(c) => Some(c),
        _ => None,
    }
}

/// Kind and constraint of a join, the latter to be changed.
pub(super) fn parts(operator: &mut JoinOperator) -> (Kind, Option<&mut JoinConstraint>) {
    let (kind, constraint) = match operator {
        JoinOperator::Join(c) | JoinOperator::Inner(c) => (Kind::Inner, c),
        JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => (Kind::Left, c),
        JoinOperator::Right(c) | JoinOperator::RightOuter(c) => (Kind::Right, c),
        JoinOperator::FullOuter(c) => (Kind::Full, c),
        JoinOperator::Semi(c)
        | JoinOperator::LeftSemi(c)
        | JoinOperator::Anti(c)
        | JoinOperator::LeftAnti(c) => (Kind::OnlyLeft, c),
        JoinOperator::RightSemi(c) | JoinOperator::RightAnti(c) => (Kind::OnlyRight, c),
        _ => return (Kind::Inner, None),
    };
    (kind, Some(constraint))
}
