//! No code: this crate's manifest gives the dependencies that the workspace's crates share one
//! set of features, whichever of the crates is built.
