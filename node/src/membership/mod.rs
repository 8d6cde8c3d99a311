//! Who takes part in a cluster: a state machine without I/O. It opens no socket, spawns no task and reads no clock
//! of its own; whoever drives it passes [`Clocks`] and says what has happened.
//!
//! ```text
//!   master                                          worker
//!   what has happened ─▶ Members                    MemberView ─▶ Change: a node is here, has
//!     register, lose,     │ delta_since(version)     ▲            restarted, or is gone
//!     leave, heard        └──── MembershipDelta ─────┘
//! ```
//!
//! A simulation drives thousands of workers with it in one thread. In a cluster the master drives [`Members`]
//! (`failure_detector`, `watched_members`) and each worker its [`MemberView`] (`registration`).
//!
//! * `members`: who takes part, as the master sees it; who is to be asked for the time, who has been silent for long
//! * `deltas`: what workers are told of each other
//! * `member_view`: who takes part, as a worker has been told
//! * `clock_offset`: how far a worker's clock is off
//! * `clocks`: clocks that can be simulated

mod clock_offset;
mod clocks;
mod deltas;
mod member_view;
mod members;

pub use clock_offset::ClockEstimate;
pub use clocks::{Clocks, Now, SimulatedClocks};
pub use deltas::{Answer, MembershipDelta, PresentMember};
pub use member_view::{Change, MemberView};
pub use members::{Arrival, Beat, Member, MemberState, Members, Present, RunningQueries};

#[cfg(test)]
pub(crate) use members::ABSENT;

#[cfg(test)]
pub(crate) mod tests {
    use std::net::SocketAddr;

    use skewer_net::identity::{ClusterId, NodeId, PeerIdentity};

    use super::Arrival;

    pub(crate) fn arrival(number: u32, incarnation: u64) -> Arrival {
        Arrival {
            peer: PeerIdentity {
                cluster: ClusterId::random(),
                node: NodeId(number),
                name: format!("host-{number}"),
                serial: "aa".to_owned(),
            },
            address: SocketAddr::from(([127, 0, 0, 1], 7000)),
            incarnation,
            version: "1".to_owned(),
        }
    }

    #[test]
    fn membership_spawns_no_tasks_and_reads_no_clock_of_its_own() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/membership");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for word in ["tokio", "async ", "Instant::now", "SystemTime::now"] {
                assert!(!code.contains(word), "{}: {word}", path.display());
            }
        }
    }
}
