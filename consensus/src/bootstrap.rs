//! Forming a cluster (R7): who mints the cluster id, and who adopts it.
//!
//! Empty members that were started with `new` exchange hellos. The first name of
//! `initial_members` is the founder: only when every listed name has presented itself empty does
//! it found; nobody else ever does. Everyone else adopts the cluster of a founder whose
//! configuration lists its member id. Keeps: at most one cluster is ever formed by one set of
//! members, and a member with data takes no part.
//!
//! The world makes the result durable in this order: identity in state *founding* (with the
//! configuration), then the first log entry, then identity *formed*; a restart in *founding*
//! writes the first entry again if the log is empty.

use crate::handshake::Hello;
use crate::types::{ClusterId, MemberId, Membership};
use std::collections::BTreeMap;

/// What to do after a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Keep waiting for these names.
    Wait {
        /// Names that have not presented themselves empty yet.
        missing: Vec<String>,
    },
    /// This member is the founder and everybody is there: found a cluster of these voters.
    Found {
        /// The first configuration.
        membership: Membership,
    },
    /// Join this cluster, whose configuration lists this member.
    Adopt {
        /// The cluster.
        cluster: ClusterId,
        /// Its recovery epoch.
        epoch: u64,
    },
    /// A person must look: the text names the thing and the remedy.
    Refuse(String),
}

/// A member that is empty. With `initial` empty it was started with `existing`: it never founds
/// and only waits for a cluster that lists it.
#[derive(Clone, Debug)]
pub struct Forming {
    name: String,
    member: MemberId,
    initial: Vec<String>,
    /// Members that presented themselves empty, by name. Invariant: only names of `initial`.
    present: BTreeMap<String, MemberId>,
}

impl Forming {
    /// A member that waits. `initial` holds the names of `initial_members` in their configured
    /// order if the member was started with `new`, and nothing if with `existing`.
    #[must_use]
    pub fn new(name: &str, member: MemberId, initial: &[String]) -> Self {
        let mut present = BTreeMap::new();
        if initial.iter().any(|n| n == name) {
            present.insert(name.to_owned(), member);
        }
        Self { name: name.to_owned(), member, initial: initial.to_vec(), present }
    }

    /// What `forming` in this member's own hello must say.
    #[must_use]
    pub fn advertised(&self) -> Option<Vec<String>> {
        (!self.initial.is_empty()).then(|| self.initial.clone())
    }

    /// What to do now, without news: a cluster of one founds at once.
    #[must_use]
    pub fn step(&self) -> Step {
        let missing: Vec<_> =
            self.initial.iter().filter(|n| !self.present.contains_key(*n)).cloned().collect();
        let founder = self.initial.first() == Some(&self.name);
        if !missing.is_empty() || !founder {
            return Step::Wait { missing };
        }
        let voters = self.present.iter().map(|(name, id)| (*id, name.clone()));
        Step::Found { membership: Membership::of_voters(voters) }
    }

    /// Learns of a peer.
    pub fn hello(&mut self, peer: &Hello) -> Step {
        if peer.cluster != ClusterId::default() {
            // R7: a forming member adopts the founder that lists its id, although that one now
            // has data. Any other cluster is none of our business: keep waiting.
            if peer.membership.names.get(&self.member) == Some(&self.name) {
                return Step::Adopt { cluster: peer.cluster, epoch: peer.epoch };
            }
            // [The founder was wiped and restarted with `new`: its peers are not empty, so they
            // never count as present and no rival cluster forms.]
            self.present.remove(&peer.name);
            return self.step();
        }
        let Some(theirs) = &peer.forming else { return self.step() };
        if !self.initial.contains(&peer.name) {
            return self.step();
        }
        if *theirs != self.initial {
            return Step::Refuse(format!(
                "initial_members differ: {} has [{}], {} has [{}]; give every member the same list",
                self.name,
                self.initial.join(", "),
                peer.name,
                theirs.join(", "),
            ));
        }
        if peer.name == self.name || peer.member == self.member {
            return Step::Refuse(format!(
                "another node presents the name {} or member id {}; every node needs its own name and data directory",
                peer.name, peer.member,
            ));
        }
        self.present.insert(peer.name.clone(), peer.member);
        self.step()
    }

    /// A peer's connection ended: it must present itself again before it counts.
    pub fn gone(&mut self, name: &str) {
        if name != self.name {
            self.present.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::PROTOCOL_VERSION;
    use crate::types::{Index, LogId, Term};

    fn names() -> Vec<String> {
        ["a", "b", "c"].map(String::from).to_vec()
    }

    fn empty(name: &str, member: u64) -> Hello {
        Hello {
            protocol: PROTOCOL_VERSION,
            name: name.into(),
            member: MemberId(member),
            cluster: ClusterId(0),
            epoch: 0,
            group: 0,
            boot: 1,
            term: Term(0),
            durable: LogId::default(),
            commit: Index(0),
            forming: Some(names()),
            membership: Membership::default(),
            http: String::new(),
            build: String::new(),
            newest_type: 0,
            volume: 0,
        }
    }

    fn member_of(name: &str, member: u64, ids: [u64; 3]) -> Hello {
        let voters = ids.into_iter().zip(names()).map(|(id, n)| (MemberId(id), n));
        Hello {
            cluster: ClusterId(77),
            epoch: 5,
            forming: None,
            membership: Membership::of_voters(voters),
            ..empty(name, member)
        }
    }

    #[test]
    fn only_the_founder_founds_and_only_when_all_are_present() {
        let mut a = Forming::new("a", MemberId(1), &names());
        assert_eq!(a.hello(&empty("b", 2)), Step::Wait { missing: vec!["c".into()] });
        let Step::Found { membership } = a.hello(&empty("c", 3)) else { panic!("must found") };
        assert_eq!(membership.voters, [MemberId(1), MemberId(2), MemberId(3)]);

        let mut b = Forming::new("b", MemberId(2), &names());
        b.hello(&empty("a", 1));
        assert_eq!(b.hello(&empty("c", 3)), Step::Wait { missing: vec![] });
    }

    #[test]
    fn members_adopt_the_founder_that_lists_their_id() {
        let mut b = Forming::new("b", MemberId(2), &names());
        let step = b.hello(&member_of("a", 1, [1, 2, 3]));
        assert_eq!(step, Step::Adopt { cluster: ClusterId(77), epoch: 5 });
    }

    #[test]
    fn a_member_that_lost_its_log_is_not_listed_and_waits() {
        let mut b = Forming::new("b", MemberId(22), &names());
        let step = b.hello(&member_of("a", 1, [1, 2, 3]));
        assert!(matches!(step, Step::Wait { .. }), "{step:?}");
    }

    #[test]
    fn a_wiped_founder_restarted_with_new_never_forms_a_rival() {
        let mut a = Forming::new("a", MemberId(11), &names());
        assert!(matches!(a.hello(&member_of("b", 2, [1, 2, 3])), Step::Wait { .. }));
        assert!(matches!(a.hello(&member_of("c", 3, [1, 2, 3])), Step::Wait { .. }));
        // Even if one of them had presented itself empty before.
        a.hello(&empty("b", 2));
        a.hello(&member_of("b", 2, [1, 2, 3]));
        assert_eq!(a.hello(&empty("c", 3)), Step::Wait { missing: vec!["b".into()] });
    }

    #[test]
    fn existing_members_wait_and_never_found() {
        let mut a = Forming::new("a", MemberId(1), &[]);
        assert_eq!(a.advertised(), None);
        assert_eq!(a.step(), Step::Wait { missing: vec![] });
        assert_eq!(a.hello(&empty("b", 2)), Step::Wait { missing: vec![] });
    }

    #[test]
    fn a_cluster_of_one_founds_at_once() {
        let a = Forming::new("a", MemberId(1), &["a".into()]);
        assert!(matches!(a.step(), Step::Found { .. }));
    }

    #[test]
    fn differing_member_lists_are_refused_by_name() {
        let mut a = Forming::new("a", MemberId(1), &names());
        let mut other = empty("b", 2);
        other.forming = Some(vec!["b".into(), "a".into(), "c".into()]);
        let Step::Refuse(text) = a.hello(&other) else { panic!("must refuse") };
        assert!(text.contains("initial_members differ"), "{text}");
    }
}
