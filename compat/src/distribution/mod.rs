//! Repairs of plans that datafusion-distributed cuts and sends.
//!
//! * [`deep_plan_codec`]: plans that nest deeper than protobuf decodes
//! * [`window_order`]: orderings that encoded window functions lose
//! * [`planning_barrier`]: operators that must not be cut off

pub mod deep_plan_codec;
pub mod planning_barrier;
pub mod window_order;
