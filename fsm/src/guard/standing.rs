//! What the runtime says of the replica, and whether that lets it destroy anything.

use super::Keep;
use crate::records::VolumeId;
use holdfast_consensus::traits::Contact;
use holdfast_consensus::{ClusterId, Index, MemberId, Micros, Term};

/// Oldest contact with the leader that counts, in microseconds (R35).
pub const CONTACT_MAX_AGE: Micros = 5_000_000;

/// The replica as its runtime sees it, at the moment of asking. Plain values: the guard trusts the
/// runtime for these alone; the state of the store it reads itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The member; zero if it has no identity yet (N8).
    pub member: MemberId,
    /// The cluster that the data plane's directory belongs to.
    pub cluster: ClusterId,
    /// The data plane's disk.
    pub volume: VolumeId,
    /// The state epoch in which the data plane was last looked through as a whole.
    pub state_epoch: u64,
    /// Now, on the clock that counts suspend.
    pub now: Micros,
    /// Contact with the current leader
    /// ([`Replica::contact`](holdfast_consensus::replica::Replica::contact)).
    pub contact: Option<Contact>,
    /// The replica has stopped applying.
    pub stopped: bool,
    /// The process is shutting down.
    pub shutting_down: bool,
    /// The member is held (R3, R5).
    pub held: bool,
    /// A digest dispute is open (R27).
    pub dispute: bool,
}

/// Proof that the replica is current: it has applied everything that the leader of the current
/// term, which has committed an entry of its own, said was committed at most five seconds ago.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AppliedCaughtUp {
    leader: MemberId,
    term: Term,
    commit: Index,
    applied: Index,
}

impl AppliedCaughtUp {
    /// Checks it (R35).
    ///
    /// # Errors
    /// [`Keep`] that says what is missing.
    pub fn check(standing: &Standing, applied: Index) -> Result<Self, Keep> {
        let contact = leader_known(standing)?;
        own_term(&contact)?;
        recent(standing, &contact)?;
        covered(&contact, applied)?;
        let Contact { leader, term, commit, .. } = contact;
        Ok(Self { leader, term, commit, applied })
    }

    /// The leader.
    #[must_use]
    pub const fn leader(&self) -> MemberId {
        self.leader
    }

    /// Its term.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// What it had committed.
    #[must_use]
    pub const fn commit(&self) -> Index {
        self.commit
    }

    /// What was applied here.
    #[must_use]
    pub const fn applied(&self) -> Index {
        self.applied
    }
}

fn leader_known(standing: &Standing) -> Result<Contact, Keep> {
    standing.contact.ok_or(Keep::NoLeader)
}

/// The commit index of a leader that has committed nothing of its own may lag behind (R35).
fn own_term(contact: &Contact) -> Result<(), Keep> {
    if contact.own_term { Ok(()) } else { Err(Keep::FreshLeader { term: contact.term }) }
}

/// An old contact says nothing about now; a clock that went back says nothing at all (N10).
fn recent(standing: &Standing, contact: &Contact) -> Result<(), Keep> {
    match standing.now.checked_sub(contact.at) {
        Some(age) if age <= CONTACT_MAX_AGE => Ok(()),
        age => Err(Keep::OldContact { age: age.unwrap_or(Micros::MAX) }),
    }
}

fn covered(contact: &Contact, applied: Index) -> Result<(), Keep> {
    if applied >= contact.commit {
        return Ok(());
    }
    Err(Keep::NotCaughtUp { applied, commit: contact.commit })
}

/// Stopped, leaving, held or disputed replicas destroy nothing (R30).
pub(super) fn awake(standing: &Standing) -> Result<(), Keep> {
    not_stopped(standing)?;
    not_leaving(standing)?;
    not_held(standing)?;
    not_disputed(standing)
}

/// A replica that stopped applying is wrong for ever, however current its index (N16).
fn not_stopped(standing: &Standing) -> Result<(), Keep> {
    if standing.stopped { Err(Keep::Stopped) } else { Ok(()) }
}

fn not_leaving(standing: &Standing) -> Result<(), Keep> {
    if standing.shutting_down { Err(Keep::ShuttingDown) } else { Ok(()) }
}

fn not_held(standing: &Standing) -> Result<(), Keep> {
    if standing.held { Err(Keep::Held) } else { Ok(()) }
}

fn not_disputed(standing: &Standing) -> Result<(), Keep> {
    if standing.dispute { Err(Keep::Dispute) } else { Ok(()) }
}

/// Without an identity nothing is anybody's (N8).
pub(super) fn identified(standing: &Standing) -> Result<(), Keep> {
    let nobody = standing.member == MemberId(0) || standing.volume == VolumeId(0);
    if nobody { Err(Keep::NoIdentity) } else { Ok(()) }
}
