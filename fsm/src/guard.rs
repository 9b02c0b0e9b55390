//! The guard: nothing is destroyed because of metadata without a [`Permit`], and only this module
//! makes one.
//!
//! Four real losses came from trusting a replica that was behind without knowing it (SCENARIOS 1
//! to 4). So nothing here believes an absence, and nothing believes "current" of itself.
//!
//! - **First line, local proof** ([`Guard::prove`]): the tombstone of exactly this incarnation,
//!   deleted in the current state epoch, read together with everything that makes it believable
//!   (R29, R30). An incarnation never returns, so that the proof cannot go stale.
//! - **Second line, the leader's word** ([`Guard::inquire`], [`Guard::conclude`]): for what can
//!   change back (ownership, which attachment is in force), and for what is not known here. The
//!   replica must be provably current ([`AppliedCaughtUp`], R35), the leader must have proved
//!   itself before it answered, and a second look at the own state must agree.
//!
//! Every other outcome keeps the data and says why ([`Keep`]). A keep is never final in a healthy
//! cluster: ask again at the next pass.
//!
//! Each step is a small function of its own in [`local`], [`standing`] and [`inquiry`].

mod claim;
pub mod inquiry;
mod keep;
pub mod local;
mod permit;
pub mod standing;

pub use claim::{Claim, Evidence, Verdict};
pub use inquiry::Inquiry;
pub use keep::Keep;
pub use permit::{Permit, Proof};
pub use standing::{AppliedCaughtUp, CONTACT_MAX_AGE, Standing};

use crate::view::View;
use holdfast_consensus::message::Outcome;

/// Judges claims, always with both lines. Holds no state: ask it from any thread.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard;

impl Guard {
    /// The guard.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// First line: proves the claim from what is held here, if that can be done.
    ///
    /// # Errors
    /// [`Keep`]; [`Keep::needs_leader`] says that the second line may help.
    pub fn prove(&self, claim: Claim, view: &View, standing: &Standing) -> Result<Permit, Keep> {
        let (evidence, verdict) = local::first_line(&claim, view, standing)?;
        if claim.is_monotone() {
            return Ok(Permit::proved(claim, &evidence, verdict));
        }
        Err(Keep::AskLeader)
    }

    /// Second line: begins an inquiry. Its question goes to the leader
    /// ([`Call::Confirm`](holdfast_consensus::job::Call::Confirm)); `nonce` tells it from every
    /// other inquiry of this node (N27).
    ///
    /// # Errors
    /// [`Keep`] if the state here already says that there is nothing to ask.
    pub fn inquire(
        &self,
        claim: Claim,
        view: &View,
        standing: &Standing,
        nonce: u64,
    ) -> Result<Inquiry, Keep> {
        local::may_ask(&claim, view, standing)?;
        Inquiry::begin(claim, view, standing, nonce)
    }

    /// Second line: ends an inquiry with the outcome of its call.
    ///
    /// # Errors
    /// [`Keep`]; ask again at the next pass.
    pub fn conclude(
        &self,
        inquiry: Inquiry,
        outcome: &Outcome,
        view: &View,
        standing: &Standing,
    ) -> Result<Permit, Keep> {
        let told = inquiry.told(outcome)?;
        let caught_up = inquiry.look_again(&told, view, standing)?;
        Ok(Permit::confirmed(inquiry, &told, &caught_up))
    }
}
