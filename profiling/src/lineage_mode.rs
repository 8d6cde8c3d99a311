//! How level `records` keeps what it learns: `SET profile.lineage = …`.

use std::fmt;
use std::str::FromStr;

/// How level `records` keeps what it learns of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LineageMode {
    /// Every edge of lineage and every latency is a row of schema `sys`.
    #[default]
    Log,
    /// Each record carries what [`Carried`](crate::Carried) says of it in its row, and only what
    /// the result rows say in the end is kept.
    Piggyback,
}

impl LineageMode {
    /// All modes.
    pub const ALL: [LineageMode; 2] = [LineageMode::Log, LineageMode::Piggyback];

    /// The mode's name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            LineageMode::Log => "log",
            LineageMode::Piggyback => "piggyback",
        }
    }
}

impl fmt::Display for LineageMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A text that names no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown lineage mode '{given}': valid values are 'log' and 'piggyback'")]
pub struct LineageModeError {
    /// The text as given.
    pub given: String,
}

impl FromStr for LineageMode {
    type Err = LineageModeError;

    /// Reads a mode's name, in any case.
    fn from_str(text: &str) -> Result<Self, LineageModeError> {
        let wanted = text.trim();
        LineageMode::ALL
            .into_iter()
            .find(|mode| mode.name().eq_ignore_ascii_case(wanted))
            .ok_or_else(|| LineageModeError {
                given: text.to_owned(),
            })
    }
}
