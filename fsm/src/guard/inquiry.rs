//! The second line: a question to the leader, its answer, and what must still hold then.

use super::local::{believed, judge};
use super::permit::same_generation;
use super::standing::{AppliedCaughtUp, Standing};
use super::{Claim, Keep, Proof, Verdict};
use crate::view::{Trust, View};
use bytes::Bytes;
use holdfast_consensus::codec;
use holdfast_consensus::message::{CONFIRM_QUESTION_MAX, Confirmation, Outcome};
use holdfast_consensus::{ClusterId, Index, MemberId, Term};
use serde::{Deserialize, Serialize};

/// A question to the leader. Frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The asker's cluster.
    pub cluster: ClusterId,
    /// The asker's state epoch.
    pub epoch: u64,
    /// The asker.
    pub asker: MemberId,
    /// Tells the question from every other of this asker.
    pub nonce: u64,
    /// What is asked about.
    pub claim: Claim,
}

/// A reply: the question it answers, whole, and the verdict. Frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The question.
    pub to: Question,
    /// The verdict.
    pub verdict: Verdict,
}

impl Question {
    /// Its bytes.
    ///
    /// # Errors
    /// [`Keep::BadStamp`] if it is longer than a question may be.
    pub fn encode(&self) -> Result<Bytes, Keep> {
        let bytes = codec::encode("question", self).map_err(|e| Keep::BadStamp(e.to_string()))?;
        if bytes.len() > CONFIRM_QUESTION_MAX {
            return Err(Keep::BadStamp(format!("{} bytes to ask about it", bytes.len())));
        }
        Ok(bytes.into())
    }
}

impl Reply {
    /// Reads a reply.
    ///
    /// # Errors
    /// [`Keep::StrangeReply`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Keep> {
        codec::decode("reply", bytes).map_err(|_| Keep::StrangeReply)
    }
}

/// Answers a question from a view, for a leader that has proved itself (the driver sees to that).
/// `None` is "unknown": a question of another cluster, one that cannot be read, or a state that
/// cannot. A state that does not trust itself, or proves nothing, answers [`Verdict::Unknown`].
#[must_use]
pub fn answer(view: &View, question: &[u8]) -> Option<(Index, Bytes)> {
    if question.len() > CONFIRM_QUESTION_MAX {
        return None;
    }
    let question: Question = codec::decode("question", question).ok()?;
    let evidence = view.evidence(&question.claim).ok()?;
    if question.cluster != evidence.cluster {
        return None;
    }
    let believable = evidence.trust == Trust::Walked && question.epoch == evidence.state_epoch;
    let verdict = match judge(&question.claim, &evidence) {
        Ok(verdict) if believable => verdict,
        _ => Verdict::Unknown,
    };
    let reply = codec::encode("reply", &Reply { to: question, verdict }).ok()?;
    Some((evidence.applied, reply.into()))
}

/// What the leader told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    leader: MemberId,
    term: Term,
    /// Index of the answer.
    pub(super) index: Index,
    verdict: Verdict,
}

impl Told {
    pub(super) fn proof(&self) -> Proof {
        Proof::Confirmed {
            verdict: self.verdict.clone(),
            leader: self.leader,
            term: self.term,
            index: self.index,
        }
    }
}

/// An inquiry under way. Good for one outcome.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its question must be asked, and its outcome concluded"]
pub struct Inquiry {
    question: Question,
    /// Generation of the store when it began.
    generation: u64,
}

impl Inquiry {
    pub(super) fn begin(
        claim: Claim,
        view: &View,
        standing: &Standing,
        nonce: u64,
    ) -> Result<Self, Keep> {
        let held = view.held().map_err(|e| Keep::Unreadable(e.to_string()))?;
        let question = Question {
            cluster: held.cluster,
            epoch: held.state_epoch,
            asker: standing.member,
            nonce,
            claim,
        };
        Ok(Self { question, generation: held.generation })
    }

    /// What to ask.
    #[must_use]
    pub const fn question(&self) -> &Question {
        &self.question
    }

    /// What is claimed.
    #[must_use]
    pub const fn claim(&self) -> &Claim {
        &self.question.claim
    }

    pub(super) fn into_claim(self) -> Claim {
        self.question.claim
    }

    pub(super) const fn state(&self) -> (ClusterId, u64) {
        (self.question.cluster, self.question.epoch)
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The leader's word, if it grants the claim. Everything but a definite answer to this very
    /// question is unknown.
    pub(super) fn told(&self, outcome: &Outcome) -> Result<Told, Keep> {
        let confirmation = answered(outcome)?;
        let reply = Reply::decode(&confirmation.answer)?;
        self.answers_this(&reply)?;
        grants(self.claim(), &reply.verdict)?;
        let Confirmation { leader, term, index, .. } = confirmation;
        Ok(Told { leader: *leader, term: *term, index: *index, verdict: reply.verdict })
    }

    /// A reply to another question, of whatever age, is no reply (N27).
    fn answers_this(&self, reply: &Reply) -> Result<(), Keep> {
        if reply.to == self.question { Ok(()) } else { Err(Keep::StrangeReply) }
    }

    /// Looks at the own state again, behind the leader's answer: it must agree.
    pub(super) fn look_again(
        &self,
        told: &Told,
        view: &View,
        standing: &Standing,
    ) -> Result<AppliedCaughtUp, Keep> {
        let evidence = believed(self.claim(), view, standing)?;
        same_generation(self.generation, evidence.generation)?;
        behind_the_answer(told, evidence.applied)?;
        let caught_up = AppliedCaughtUp::check(standing, evidence.applied)?;
        same_leader(told, &caught_up)?;
        agrees(told, judge(self.claim(), &evidence)?)?;
        Ok(caught_up)
    }
}

fn answered(outcome: &Outcome) -> Result<&Confirmation, Keep> {
    match outcome {
        Outcome::Confirmed(confirmation) => Ok(confirmation),
        Outcome::NotCommitted(refusal) | Outcome::Unknown(refusal) => {
            Err(Keep::NoAnswer(format!("{refusal:?}")))
        }
        Outcome::Committed { .. } | Outcome::Ready { .. } => Err(Keep::StrangeReply),
    }
}

fn grants(claim: &Claim, verdict: &Verdict) -> Result<(), Keep> {
    if claim.is_granted_by(verdict) {
        return Ok(());
    }
    Err(match *verdict {
        Verdict::Unknown | Verdict::Gone { .. } => Keep::LeaderUnknown,
        Verdict::Live { incarnation } | Verdict::Moved { incarnation, .. } => {
            Keep::LeaderLive { incarnation }
        }
    })
}

/// The own state must have reached what the leader read.
fn behind_the_answer(told: &Told, applied: Index) -> Result<(), Keep> {
    if applied >= told.index {
        return Ok(());
    }
    Err(Keep::BehindAnswer { applied, index: told.index })
}

/// A leader that was deposed meanwhile may have said what its successor has changed (N2).
fn same_leader(told: &Told, caught_up: &AppliedCaughtUp) -> Result<(), Keep> {
    if (told.leader, told.term) == (caught_up.leader(), caught_up.term()) {
        return Ok(());
    }
    Err(Keep::LeaderChanged)
}

fn agrees(told: &Told, own: Verdict) -> Result<(), Keep> {
    if told.verdict == own { Ok(()) } else { Err(Keep::Disagreement) }
}
