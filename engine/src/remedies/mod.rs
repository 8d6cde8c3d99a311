//! Setting `remedies`: what is done about skew that earlier runs of a statement have shown.
//!
//! Decisions are made by schema `sys`: [`candidates`](candidates::of_query) reads the view `sys.remedy_candidates`.
//! [`RemedyBook`] tries them, one run with and one without, and keeps what saves 5 %. `skewer_optimizer::remedies`
//! changes the plans. Each run that was tried leaves a row in `sys.remedy_runs`.

mod book;
mod candidates;
mod trial;

use std::fmt;

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
}

impl RemedyMode {
    /// All of them.
    pub(crate) const ALL: [RemedyMode; 3] = [Self::Off, Self::Advise, Self::Auto];

    /// Its name as a value of the setting.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Advise => "advise",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for RemedyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
