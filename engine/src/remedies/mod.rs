//! Setting `remedies`: what is done about skew that earlier runs of a statement have shown.
//!
//! Decisions are made by schema `sys`: [`candidates`](candidates::of_query) reads the view `sys.remedy_candidates`.
//! [`RemedyBook`] tries them, one run with and one without, and keeps what saves 5 %. `skewer_optimizer::remedies`
//! changes the plans. Each run that was tried leaves a row in `sys.remedy_runs`.

mod book;
mod candidates;
mod trial;

use std::fmt;
use std::time::Duration;

pub(crate) use self::book::{RemedyBook, Run};
pub(crate) use self::candidates::lines_about;
pub(crate) use self::trial::Trial;

/// What is done about skew that earlier runs of a statement have shown: setting `remedies`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RemedyMode {
    /// Nothing.
    Off,
    /// Reports and EXPLAIN say what would help.
    #[default]
    Advise,
    /// Later runs of the statement do what helps.
    Auto,
    /// The same, if no run is to take longer than this.
    AutoWithin(Duration),
    /// Later runs do anything that does not change the result, another thing for each number: for tests.
    Random(u64),
}

/// What the seed of random remedies follows.
const RANDOM: &str = "random ";

impl RemedyMode {
    /// The mode that a value of the setting names.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        match text.as_str() {
            "off" => Some(Self::Off),
            "advise" => Some(Self::Advise),
            "auto" => Some(Self::Auto),
            _ => {
                let seed = text.strip_prefix(RANDOM)?.trim();
                seed.parse().ok().map(Self::Random)
            }
        }
    }

    /// Whether plans may have remedies.
    pub(crate) fn changes_plans(self) -> bool {
        matches!(self, Self::Auto | Self::AutoWithin(_) | Self::Random(_))
    }

    /// The mode for a statement whose runs are to take no longer than this.
    pub(crate) fn within(self, deadline: Option<Duration>) -> Self {
        match (self, deadline) {
            (Self::Auto, Some(deadline)) => Self::AutoWithin(deadline),
            _ => self,
        }
    }

    fn deadline(self) -> Option<Duration> {
        match self {
            Self::AutoWithin(deadline) => Some(deadline),
            _ => None,
        }
    }
}

impl fmt::Display for RemedyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Advise => f.write_str("advise"),
            Self::Auto | Self::AutoWithin(_) => f.write_str("auto"),
            Self::Random(seed) => write!(f, "{RANDOM}{seed}"),
        }
    }
}
