//! What two members tell each other before anything else, and whether they may talk (R3, R7).

use crate::types::{ClusterId, Index, LogId, MemberId, Membership, Term};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Version of the peer protocol that this build speaks.
pub const PROTOCOL_VERSION: u16 = 1;

/// A member as it presents itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Protocol version.
    pub protocol: u16,
    /// Configured node name.
    pub name: String,
    /// Member id, durable in the log before it is first presented.
    pub member: MemberId,
    /// Cluster id; zero while there is none.
    pub cluster: ClusterId,
    /// Recovery epoch (R8).
    pub epoch: u64,
    /// Raft group.
    pub group: u64,
    /// Number of this start (R3).
    pub boot: u64,
    /// Durable term (R3).
    pub term: Term,
    /// Last durable entry (R3).
    pub durable: LogId,
    /// Commit index: volatile, holds nobody (R3).
    pub commit: Index,
    /// `initial_members` of a member that was started with `new`, is empty and waits to form;
    /// `None` for everybody else.
    pub forming: Option<Vec<String>>,
    /// Configuration in force (empty if none): names who belongs to `cluster`.
    pub membership: Membership,
    /// Base URL of the member's HTTP API, for status and hints.
    pub http: String,
    /// Build version, for people.
    pub build: String,
    /// Newest entry type that this build can apply.
    pub newest_type: u16,
    /// Id of the disk that holds the member's topic directories; zero while it has none. The
    /// leader gives partitions to a node and its disk together (R5, N21).
    pub volume: u128,
}

/// Why two members may not talk.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum HelloRefusal {
    /// Another protocol version.
    #[error(
        "peer {name} speaks protocol {theirs}, this build speaks {ours}: upgrade the older one"
    )]
    Protocol {
        /// The peer.
        name: String,
        /// Its version.
        theirs: u16,
        /// Our version.
        ours: u16,
    },
    /// Another cluster.
    #[error(
        "peer {name} belongs to cluster {theirs}, this node to {ours}: check the peer addresses"
    )]
    Cluster {
        /// The peer.
        name: String,
        /// Its cluster.
        theirs: ClusterId,
        /// Our cluster.
        ours: ClusterId,
    },
    /// Another recovery epoch.
    #[error(
        "peer {name} is in recovery epoch {theirs:016x}, this node in {ours:016x}: one of them was recovered without the other"
    )]
    Epoch {
        /// The peer.
        name: String,
        /// Its epoch.
        theirs: u64,
        /// Our epoch.
        ours: u64,
    },
    /// Somebody who is in no configuration of ours.
    #[error(
        "peer {name} presents member id {member}, which is not in the configuration (known as {name}: {known}): it lost or replaced its data directory and stays out, since an amnesiac vote loses data; put the directory of {name} back as it was last, or run on with the others; this version cannot replace a member"
    )]
    Stranger {
        /// The peer.
        name: String,
        /// The id it presents.
        member: MemberId,
        /// The id that the configuration has for that name.
        known: String,
    },
    /// Our own id or name: two live processes with one identity.
    #[error("peer {name} presents this node's own {what}: two nodes are configured as one")]
    Myself {
        /// The peer.
        name: String,
        /// What collides.
        what: String,
    },
    /// The peer is empty and has no cluster; nothing but handshakes is exchanged with it.
    #[error("peer {name} is empty and waits for a cluster")]
    Empty {
        /// The peer.
        name: String,
    },
}

/// Whether raft messages may flow between `me` and `peer`. Both sides evaluate it on both hellos,
/// so either may refuse. Keeps: no message of another cluster, epoch or unknown member is ever
/// handed to the core.
///
/// # Errors
/// The refusal, which names the peer and the remedy.
pub fn admit(me: &Hello, peer: &Hello) -> Result<(), HelloRefusal> {
    let name = peer.name.clone();
    if peer.protocol != me.protocol {
        return Err(HelloRefusal::Protocol { name, theirs: peer.protocol, ours: me.protocol });
    }
    if peer.member == me.member {
        return Err(HelloRefusal::Myself { name, what: format!("member id {}", me.member) });
    }
    if peer.name == me.name {
        return Err(HelloRefusal::Myself { name, what: format!("name {}", me.name) });
    }
    if peer.cluster == ClusterId::default() || me.cluster == ClusterId::default() {
        return Err(HelloRefusal::Empty { name });
    }
    if peer.cluster != me.cluster {
        return Err(HelloRefusal::Cluster { name, theirs: peer.cluster, ours: me.cluster });
    }
    if peer.epoch != me.epoch {
        return Err(HelloRefusal::Epoch { name, theirs: peer.epoch, ours: me.epoch });
    }
    // Who holds a configuration knows its members. A member without one yet (formed, log still
    // empty) believes the other's; two without one have nothing to say to each other but votes,
    // which R42 grants by log and term alone.
    if !me.membership.names.is_empty() && !me.membership.names.contains_key(&peer.member) {
        let known = me.membership.names.iter().find(|(_, n)| **n == peer.name);
        let known = known.map_or_else(|| "nobody".to_owned(), |(id, _)| id.to_string());
        return Err(HelloRefusal::Stranger { name, member: peer.member, known });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(name: &str, member: u64, cluster: u128) -> Hello {
        Hello {
            protocol: PROTOCOL_VERSION,
            name: name.into(),
            member: MemberId(member),
            cluster: ClusterId(cluster),
            epoch: 7,
            group: 0,
            boot: 1,
            term: Term(1),
            durable: LogId::default(),
            commit: Index(0),
            forming: None,
            membership: Membership::default(),
            http: String::new(),
            build: String::new(),
            newest_type: 0,
            volume: 0,
        }
    }

    #[test]
    fn members_of_one_cluster_are_admitted() {
        let (mut a, b) = (hello("a", 1, 9), hello("b", 2, 9));
        assert_eq!(admit(&a, &b), Ok(()));
        a.membership =
            Membership::of_voters([(MemberId(1), "a".into()), (MemberId(2), "b".into())]);
        assert_eq!(admit(&a, &b), Ok(()));
    }

    /// A change to a good hello, and how its refusal is known.
    type Case = (fn(&mut Hello), fn(&HelloRefusal) -> bool);

    #[test]
    fn each_mismatch_is_refused_by_its_own_name() {
        let a = hello("a", 1, 9);
        let cases: [Case; 7] = [
            (|h| h.protocol = 2, |e| matches!(e, HelloRefusal::Protocol { theirs: 2, .. })),
            (|h| h.member = MemberId(1), |e| matches!(e, HelloRefusal::Myself { .. })),
            (|h| h.name = "a".into(), |e| matches!(e, HelloRefusal::Myself { .. })),
            (|h| h.cluster = ClusterId(0), |e| matches!(e, HelloRefusal::Empty { .. })),
            (|h| h.cluster = ClusterId(8), |e| matches!(e, HelloRefusal::Cluster { .. })),
            (|h| h.epoch = 8, |e| matches!(e, HelloRefusal::Epoch { theirs: 8, ours: 7, .. })),
            (|h| h.protocol = 0, |e| matches!(e, HelloRefusal::Protocol { .. })),
        ];
        for (change, expected) in cases {
            let mut b = hello("b", 2, 9);
            change(&mut b);
            let refusal = admit(&a, &b).expect_err("must be refused");
            assert!(expected(&refusal), "{refusal}");
        }
    }

    #[test]
    fn a_wiped_member_that_comes_back_under_its_name_is_a_stranger() {
        let mut a = hello("a", 1, 9);
        a.membership =
            Membership::of_voters([(MemberId(1), "a".into()), (MemberId(2), "b".into())]);
        let refusal = admit(&a, &hello("b", 3, 9)).expect_err("must be refused");
        assert!(matches!(refusal, HelloRefusal::Stranger { member: MemberId(3), .. }), "{refusal}");
    }
}
