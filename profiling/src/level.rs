//! How much of a query is recorded: `SET profile.level = …`.

use std::fmt;
use std::str::FromStr;

/// How much of a query is recorded. Each level records what the levels below it record, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// Only the row of `sys.queries`.
    Off,
    /// Totals per operator and partition, tuples and bytes per exchange, worker metrics.
    #[default]
    Counters,
    /// Also every call of an operator and every batch that crosses an exchange.
    Calls,
    /// Also lineage and latency of every (sampled) record.
    Records,
}

impl Level {
    /// All levels, from the least to the most.
    pub const ALL: [Level; 4] = [Level::Off, Level::Counters, Level::Calls, Level::Records];

    /// The level's name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Level::Off => "off",
            Level::Counters => "counters",
            Level::Calls => "calls",
            Level::Records => "records",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A text that names no level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown profile level '{given}': valid values are 'off', 'counters', 'calls' and 'records'"
)]
pub struct LevelError {
    /// The text as given.
    pub given: String,
}

impl FromStr for Level {
    type Err = LevelError;

    /// Reads a level's name, in any case.
    fn from_str(text: &str) -> Result<Self, LevelError> {
        let wanted = text.trim();
        Level::ALL
            .into_iter()
            .find(|level| level.name().eq_ignore_ascii_case(wanted))
            .ok_or_else(|| LevelError {
                given: text.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_read_back_from_its_name() {
        for level in Level::ALL {
            assert_eq!(level.to_string().parse::<Level>(), Ok(level));
            assert_eq!(level.name().to_uppercase().parse::<Level>(), Ok(level));
        }
    }

    #[test]
    fn an_unknown_level_is_refused_with_the_valid_values() {
        let error = "verbose".parse::<Level>().unwrap_err().to_string();
        for level in Level::ALL {
            assert!(error.contains(&format!("'{level}'")), "{error}");
        }
        assert!(error.contains("'verbose'"));
    }

    #[test]
    fn levels_are_ordered_by_how_much_they_record() {
        assert!(Level::Off < Level::Counters);
        assert!(Level::Counters < Level::Calls);
        assert!(Level::Calls < Level::Records);
    }
}
