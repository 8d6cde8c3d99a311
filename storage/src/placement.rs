//! Where segments are: who owns them, and how rows were divided among them.

use datafusion::object_store::path::Path as Location;
use serde::{Deserialize, Serialize};

use crate::snapshot::TableId;

/// The node that has the catalog. A database without workers owns all of its segments itself.
pub const MASTER: u32 = 0;

/// How the rows of a table are divided among its owners.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Partitioning {
    /// Whoever is next.
    #[default]
    RoundRobin,
    /// By a hash of these columns, in this order: rows that agree in them have the same owner.
    Hash(Vec<String>),
}

/// Rows whose hash leaves the remainder `index` when divided by `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shard {
    /// Which.
    pub index: u32,
    /// Of how many.
    pub of: u32,
}

/// A segment as its place in the object store says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentName {
    /// The node that has the file; [`MASTER`] for the catalog's own.
    pub owner: u32,
    /// The table it belongs to.
    pub table: TableId,
    /// Its number.
    pub id: u64,
}

impl SegmentName {
    /// Its place in the object store, the same on every node.
    pub fn location(&self) -> Location {
        let Self { owner, table, id } = self;
        Location::from(match *owner {
            MASTER => format!("segments/{table}/{id}.parquet"),
            owner => format!("node-{owner}/segments/{table}/{id}.parquet"),
        })
    }

    /// The segment at a place; `None` if it is no segment's.
    pub fn parse(location: &Location) -> Option<Self> {
        let text = location.as_ref();
        let (owner, rest) = match text.strip_prefix("node-") {
            Some(rest) => {
                let (owner, rest) = rest.split_once('/')?;
                (owner.parse().ok().filter(|owner| *owner != MASTER)?, rest)
            }
            None => (MASTER, text),
        };
        let (table, file) = rest.strip_prefix("segments/")?.split_once('/')?;
        let name = Self {
            owner,
            table: TableId(table.parse().ok()?),
            id: file.strip_suffix(".parquet")?.parse().ok()?,
        };
        // Numbers can be written in several ways; files are named in one.
        (name.location().as_ref() == text).then_some(name)
    }

    /// Its place in its owner's own directory.
    pub(crate) fn at_home(&self) -> Location {
        let owner = MASTER;
        Self { owner, ..*self }.location()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_s_location_says_whose_it_is() {
        for owner in [MASTER, 7] {
            let name = SegmentName {
                owner,
                table: TableId(12),
                id: 345,
            };
            assert_eq!(SegmentName::parse(&name.location()), Some(name));
        }
        for other in [
            "node-0/segments/1/2.parquet",
            "node-7/segments/1/02.parquet",
            "node-7/segments/1/2.parquet/x",
            "node-x/segments/1/2.parquet",
            "segments/1/2.csv",
            "catalog.redb",
        ] {
            assert_eq!(SegmentName::parse(&Location::from(other)), None, "{other}");
        }
    }
}
