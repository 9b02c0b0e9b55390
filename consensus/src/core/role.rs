//! Roles. What only one role needs lives inside it and ends with it.

use super::leader::Leader;
use crate::event::{RoleKind, StepDown};
use crate::types::{MemberId, Micros};
use std::collections::BTreeMap;

/// The role of this member.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    Follower(Follower),
    PreCandidate(PreCandidate),
    Candidate(Candidate),
    Leader(Box<Leader>),
}

/// Follows, or waits for a leader.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    /// When to start a pre-vote.
    pub(crate) deadline: Micros,
}

/// Asks whether an election could be won.
#[derive(Clone, Debug)]
pub(crate) struct PreCandidate {
    /// When to ask again.
    pub(crate) deadline: Micros,
    /// Answers, by voter: a set, so that duplicates count once (B04).
    pub(crate) answers: BTreeMap<MemberId, bool>,
}

/// Stands in an election.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// When to give up; `None` until the own vote is durable, because nobody was asked before
    /// that (B03), and a slow disk must not raise the term again and again (R41).
    pub(crate) deadline: Option<Micros>,
    /// Answers, by voter; this member's own vote only once it is durable.
    pub(crate) answers: BTreeMap<MemberId, bool>,
    /// A leader asked for it: overrides stickiness.
    pub(crate) transfer: bool,
}

/// What a handler wants its role to become.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// Nothing changes.
    Stay,
    /// Ask for pre-votes.
    PreVote,
    /// Stand in a new term.
    Stand { transfer: bool },
    /// Lead the term that was won.
    Lead,
    /// Give up leadership within the term.
    StepDown(StepDown),
}

impl Role {
    pub(crate) const fn kind(&self) -> RoleKind {
        match self {
            Self::Follower(_) => RoleKind::Follower,
            Self::PreCandidate(_) => RoleKind::PreCandidate,
            Self::Candidate(_) => RoleKind::Candidate,
            Self::Leader(_) => RoleKind::Leader,
        }
    }
}
