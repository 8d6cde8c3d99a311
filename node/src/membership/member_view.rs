//! Who the others are, as a worker has been told.

use std::collections::HashMap;

use super::deltas::{MembershipDelta, PresentMember};

/// What a worker has to do since it was told something.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A node is there.
    Here(PresentMember),
    /// A node is another process by now.
    Restarted(PresentMember),
    /// A node takes no part any more.
    Gone {
        /// Which.
        number: u32,
        /// Why.
        reason: String,
    },
}

/// The other nodes that take part, by what the master has said.
#[derive(Debug)]
pub struct MemberView {
    own: u32,
    known: u64,
    /// Which process each of them is.
    present: HashMap<u32, u64>,
}

impl MemberView {
    /// Worker `own` knows nobody.
    pub fn new(own: u32) -> Self {
        Self {
            own,
            known: 0,
            present: HashMap::new(),
        }
    }

    /// The version that it knows; 0 none.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// How many others there are.
    pub fn others(&self) -> usize {
        self.present.len()
    }

    /// The master may be another process, which numbers versions anew: it will be asked for all.
    pub fn begin(&mut self) {
        self.known = 0;
    }

    /// The master has said what has changed since [`Self::known`]; what is to be done about it.
    pub fn learn(&mut self, delta: MembershipDelta) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.known == 0 {
            let named = |number| {
                let here = delta.present.iter().any(|member| member.number == number);
                here || delta.lost.iter().any(|(lost, _)| *lost == number)
            };
            let gone: Vec<u32> = self
                .present
                .keys()
                .copied()
                .filter(|n| !named(*n))
                .collect();
            for number in gone {
                self.present.remove(&number);
                let reason = "the master does not know it".to_owned();
                changes.push(Change::Gone { number, reason });
            }
        }
        self.known = delta.version;
        for (number, reason) in delta.lost {
            if number != self.own {
                self.present.remove(&number);
                changes.push(Change::Gone { number, reason });
            }
        }
        for member in delta.present {
            if member.number == self.own {
                continue;
            }
            let before = self.present.insert(member.number, member.incarnation);
            changes.push(match before {
                Some(before) if before != member.incarnation => Change::Restarted(member),
                _ => Change::Here(member),
            });
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn member(number: u32, incarnation: u64) -> PresentMember {
        PresentMember {
            number,
            name: format!("worker {number}"),
            address: SocketAddr::from(([127, 0, 0, 1], 7000)),
            incarnation,
        }
    }

    fn list(
        version: u64,
        present: Vec<PresentMember>,
        lost: Vec<(u32, String)>,
    ) -> MembershipDelta {
        MembershipDelta {
            version,
            present,
            lost,
            revoked: None,
        }
    }

    #[test]
    fn changes_add_up_and_a_node_is_not_told_of_itself() {
        let mut view = MemberView::new(1);
        let first = view.learn(list(3, vec![member(1, 10), member(2, 20)], vec![]));
        assert_eq!(first, [Change::Here(member(2, 20))]);
        let second = view.learn(list(4, vec![member(3, 30)], vec![]));
        assert_eq!(second, [Change::Here(member(3, 30))]);
        assert_eq!((view.known(), view.others()), (4, 2));
        let gone = view.learn(list(5, vec![], vec![(2, "it ended".to_owned())]));
        let reason = "it ended".to_owned();
        assert_eq!(gone, [Change::Gone { number: 2, reason }]);
        assert_eq!(view.others(), 1);
    }

    #[test]
    fn another_process_under_the_same_number_is_told_from_the_one_before() {
        let mut view = MemberView::new(1);
        view.learn(list(3, vec![member(2, 20)], vec![]));
        let again = view.learn(list(4, vec![member(2, 20)], vec![]));
        assert_eq!(again, [Change::Here(member(2, 20))]);
        let other = view.learn(list(5, vec![member(2, 21)], vec![]));
        assert_eq!(other, [Change::Restarted(member(2, 21))]);
    }

    #[test]
    fn whom_another_master_does_not_know_is_gone() {
        let mut view = MemberView::new(1);
        view.learn(list(30, vec![member(2, 20), member(3, 30)], vec![]));
        view.begin();
        assert_eq!(view.known(), 0);
        let changes = view.learn(list(2, vec![member(3, 30)], vec![]));
        assert!(
            matches!(changes[0], Change::Gone { number: 2, .. }),
            "{changes:?}"
        );
        assert_eq!(changes[1], Change::Here(member(3, 30)));
        assert_eq!((view.known(), view.others()), (2, 1));
    }
}
