//! The checkers that share the committed log.

use crate::check::commit_safety::Committed;
use crate::check::election_safety::ElectionSafety;
use crate::check::leader_completeness;
use crate::check::linearizable;
use crate::check::log_matching::History;
use crate::check::model::Model;
use crate::check::results::{self, Acked};
use crate::check::state_machine::Digests;
use crate::check::{Verdict, Violation};
use crate::history::recorder::Recorder;
use holdfast_consensus::{Body, LogId, Membership, Term};
use holdfast_fsm::SessionRef;

/// Everything that is known about the run.
#[derive(Default)]
pub(super) struct Suite {
    pub(super) elections: ElectionSafety,
    pub(super) history: History,
    pub(super) committed: Committed,
    pub(super) digests: Digests,
    pub(super) model: Model,
    /// What clients saw.
    pub(super) recorder: Recorder,
    /// The last committed configuration.
    membership: Membership,
    /// Acknowledged calls that the committed log does not reach yet.
    open: Vec<Acked>,
    /// Commands that were refused for good.
    refused: Vec<(String, SessionRef)>,
}

impl Suite {
    pub(super) fn on_commit(&mut self, who: &str, through: LogId) -> Verdict {
        for entry in self.committed.on_commit(who, through, &self.history)? {
            self.model.apply(&entry);
            if let Body::Membership(membership) = entry.body {
                self.membership = *membership;
            }
        }
        match self.model.twice() {
            Some((first, second)) => Err(Violation::new(
                results::PROPERTY,
                format!("one call was committed twice, at {first} and at {second}"),
            )),
            None => Ok(()),
        }
    }

    pub(super) fn on_leader(&self, who: &str, term: Term, last: LogId) -> Verdict {
        leader_completeness::on_leader(who, term, last, &self.committed, &self.history)
    }

    pub(super) fn on_acked(&mut self, acked: Acked) -> Verdict {
        if !results::check(&acked, &self.committed, &self.model)? {
            self.open.push(acked);
        }
        Ok(())
    }

    pub(super) fn on_refused(&mut self, who: &str, by: SessionRef) {
        self.refused.push((who.to_owned(), by));
    }

    /// The last committed configuration.
    pub(super) const fn membership(&self) -> &Membership {
        &self.membership
    }

    /// What clients had seen when a property failed may explain why it matters.
    pub(super) fn with_history(&self, mut violation: Violation) -> Violation {
        if violation.property != linearizable::PROPERTY
            && let Err(seen) = linearizable::searched(&self.recorder.history())
        {
            violation.evidence += &format!("; by then clients saw that {}", seen.evidence);
        }
        violation
    }

    /// At the end every acknowledged call is in the committed log, and no refused one.
    pub(super) fn finish(&self) -> Verdict {
        let history = self.recorder.history();
        linearizable::plain(&history)?;
        linearizable::searched(&history)?;
        for acked in &self.open {
            if !results::check(acked, &self.committed, &self.model)? {
                let what = format!(
                    "{} acknowledged {}, the committed log ends at {}",
                    acked.who,
                    acked.at,
                    self.committed.last()
                );
                return Err(Violation::new(results::PROPERTY, what));
            }
        }
        self.refused.iter().try_for_each(|(who, by)| results::check_refused(who, *by, &self.model))
    }
}
