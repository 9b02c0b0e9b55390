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

use crate::fault::{NEVER_OLDER, NO_REPLACEMENT};
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
    /// A cluster knows this node's name under another member id: its directory was lost or replaced.
    /// Nothing that arrives here changes that; it waits, and the text says who it was and what can
    /// be done.
    Stranger(String),
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
    /// The member id that a cluster has for this node's name, by the name of the peer that said so.
    /// Invariant: never this member's own id. Bounded: two names at most are kept.
    was: BTreeMap<String, (ClusterId, MemberId)>,
}

/// Peers whose word on who this node was is kept: one is enough to say it, a second outlives it.
const WORDS_MAX: usize = 2;

impl Forming {
    /// A member that waits. `initial` holds the names of `initial_members` in their configured
    /// order if the member was started with `new`, and nothing if with `existing`.
    #[must_use]
    pub fn new(name: &str, member: MemberId, initial: &[String]) -> Self {
        let mut present = BTreeMap::new();
        if initial.iter().any(|n| n == name) {
            present.insert(name.to_owned(), member);
        }
        Self {
            name: name.to_owned(),
            member,
            initial: initial.to_vec(),
            present,
            was: BTreeMap::new(),
        }
    }

    /// What `forming` in this member's own hello must say.
    #[must_use]
    pub fn advertised(&self) -> Option<Vec<String>> {
        (!self.initial.is_empty()).then(|| self.initial.clone())
    }

    /// What to do now, without news: a cluster of one founds at once.
    #[must_use]
    pub fn step(&self) -> Step {
        if let Some((cluster, known)) = self.was.values().next() {
            return Step::Stranger(lost(&self.name, self.member, *cluster, *known));
        }
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
        self.was.remove(&peer.name);
        if peer.cluster != ClusterId::default() {
            // R7: a forming member adopts the founder that lists its id, although that one now
            // has data. Any other cluster is none of our business: keep waiting.
            if peer.membership.names.get(&self.member) == Some(&self.name) {
                return Step::Adopt { cluster: peer.cluster, epoch: peer.epoch };
            }
            // [The founder was wiped and restarted with `new`: its peers are not empty, so they
            // never count as present and no rival cluster forms.]
            self.present.remove(&peer.name);
            // [B voted and acknowledged as one member, lost its directory, and would do it again as
            // another: R1, R5. It stays out, and says who it was.]
            let listed = peer.membership.names.iter().find(|(_, name)| **name == self.name);
            if let Some((known, _)) = listed.filter(|_| self.was.len() < WORDS_MAX) {
                self.was.insert(peer.name.clone(), (peer.cluster, *known));
            }
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

/// What a node says whose directory was lost or replaced. It stays true while the others are away:
/// one that has said it waits for its directory, not for them.
fn lost(name: &str, member: MemberId, cluster: ClusterId, known: MemberId) -> String {
    format!(
        "{name} is in the configuration of cluster {cluster} under another member id, {known}, and the data directory \
         here is empty (member {member}): its own was lost or emptied, or data_dir names another one. It stays out, \
         having forgotten what it voted and acknowledged. Stop it and put its directory back as it was last, \
         {NEVER_OLDER}, or correct data_dir. {NO_REPLACEMENT}"
    )
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
        for initial in [names(), Vec::new()] {
            let mut b = Forming::new("b", MemberId(22), &initial);
            let Step::Stranger(text) = b.hello(&member_of("a", 1, [1, 2, 3])) else {
                panic!("must say who it was")
            };
            let (was, is) = (MemberId(2).to_string(), MemberId(22).to_string());
            assert!(text.contains("under another member id") && text.contains(&was), "{text}");
            assert!(text.contains(&is) && text.contains("put its directory back"), "{text}");
            // It keeps saying so while the others are away, and until they know better.
            b.gone("a");
            assert!(matches!(b.step(), Step::Stranger(_)));
            let step = b.hello(&member_of("a", 1, [1, 22, 3]));
            assert_eq!(step, Step::Adopt { cluster: ClusterId(77), epoch: 5 });
        }
    }

    #[test]
    fn members_that_were_all_emptied_form_a_new_cluster() {
        let mut b = Forming::new("b", MemberId(22), &names());
        b.hello(&member_of("a", 1, [1, 2, 3]));
        b.hello(&member_of("c", 3, [1, 2, 3]));
        assert!(matches!(b.hello(&empty("a", 11)), Step::Stranger(_)), "c still knows the old one");
        assert_eq!(b.hello(&empty("c", 33)), Step::Wait { missing: vec![] });
    }

    #[test]
    fn a_wiped_founder_restarted_with_new_never_forms_a_rival() {
        let mut a = Forming::new("a", MemberId(11), &names());
        assert!(matches!(a.hello(&member_of("b", 2, [1, 2, 3])), Step::Stranger(_)));
        assert!(matches!(a.hello(&member_of("c", 3, [1, 2, 3])), Step::Stranger(_)));
        // Even if one of them had presented itself empty before.
        a.hello(&empty("b", 2));
        a.hello(&member_of("b", 2, [1, 2, 3]));
        assert!(matches!(a.hello(&empty("c", 3)), Step::Stranger(_)));
        // Nor if what is told of that cluster does not name it.
        let mut a = Forming::new("a", MemberId(11), &names());
        let without = Hello { membership: Membership::default(), ..member_of("b", 2, [1, 2, 3]) };
        a.hello(&empty("b", 2));
        a.hello(&without);
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
