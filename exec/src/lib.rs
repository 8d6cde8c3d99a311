//! Skewer's own operators: what runs, next to DataFusion's.
//!
//! Dependencies go down only: this crate knows [`skewer_profiling`], nothing above it.
//!
//! * [`identity`]: tables whose rows have ids
pub mod identity;

pub use identity::{IdentifiedTable, ROW_ID};
