//! Permits: values that only the guard makes, and that whatever destroys must be handed.

use super::inquiry::{Inquiry, Told};
use super::local::same_epoch;
use super::{AppliedCaughtUp, Claim, Evidence, Keep, Verdict};
use crate::view::View;
use holdfast_consensus::{ClusterId, Index, MemberId, Term};

/// What a permit rests on: written beside what is destroyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Proved by the own state.
    Local {
        /// What it says.
        verdict: Verdict,
        /// As of this index.
        applied: Index,
    },
    /// Said by a leader that had proved itself, and found again here.
    Confirmed {
        /// What was said.
        verdict: Verdict,
        /// The leader.
        leader: MemberId,
        /// Its term.
        term: Term,
        /// As of this index.
        index: Index,
    },
}

impl std::fmt::Display for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local { verdict, applied } => {
                write!(f, "the own state at {applied} says that it {verdict}")
            }
            Self::Confirmed { verdict, leader, term, index } => {
                write!(f, "leader {leader} of {term} at {index} says that it {verdict}")
            }
        }
    }
}

/// Leave to destroy exactly one thing. Cannot be copied or made elsewhere.
///
/// ```compile_fail
/// fn twice(permit: holdfast_fsm::guard::Permit) {
///     let _again = permit.clone();
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit that is not used destroys nothing"]
pub struct Permit {
    claim: Claim,
    proof: Proof,
    /// Cluster and state epoch of the state that proved it.
    state: (ClusterId, u64),
    /// Generation of the store, if the claim could change back.
    generation: Option<u64>,
}

impl Permit {
    pub(super) fn proved(claim: Claim, evidence: &Evidence, verdict: Verdict) -> Self {
        let generation = (!claim.is_monotone()).then_some(evidence.generation);
        let proof = Proof::Local { verdict, applied: evidence.applied };
        Self { claim, proof, state: (evidence.cluster, evidence.state_epoch), generation }
    }

    pub(super) fn confirmed(inquiry: Inquiry, told: &Told, caught_up: &AppliedCaughtUp) -> Self {
        debug_assert!(caught_up.applied() >= told.index);
        let state = inquiry.state();
        let generation = Some(inquiry.generation());
        Self { claim: inquiry.into_claim(), proof: told.proof(), state, generation }
    }

    /// What was claimed.
    #[must_use]
    pub const fn claim(&self) -> &Claim {
        &self.claim
    }

    /// What it rests on.
    #[must_use]
    pub const fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Checks again, under the lock of the name, that the state is still the one that proved it
    /// (R29). A claim that cannot change back survives a reopened store, any other does not.
    ///
    /// # Errors
    /// [`Keep`].
    pub fn still_stands(&self, view: &View) -> Result<(), Keep> {
        let (cluster, epoch) = self.state;
        let held = view.held().map_err(|e| Keep::Unreadable(e.to_string()))?;
        if held.cluster != cluster {
            return Err(Keep::OtherCluster { found: cluster, mine: held.cluster });
        }
        same_epoch(epoch, held.state_epoch)?;
        match self.generation {
            Some(was) => same_generation(was, held.generation),
            None => Ok(()),
        }
    }
}

/// Whatever was read from another store, or from this one before it was reopened, is void (N5).
pub(super) const fn same_generation(was: u64, is: u64) -> Result<(), Keep> {
    if was == is { Ok(()) } else { Err(Keep::StoreReplaced { was, is }) }
}
