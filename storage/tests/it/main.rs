//! Storage: behaviour, faults of the disk, corruption, and segments on several nodes.

mod behaviour;
mod corruption;
mod faults;
mod model;
mod nodes;
mod quarantines;
mod support;
