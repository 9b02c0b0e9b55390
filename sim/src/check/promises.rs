//! Promises survive: what a member promised anybody (a vote, leadership or an acknowledgement in a
//! term, the end of its durable log) it still holds after any crash (Raft figure 2, persistent state;
//! dissertation 3.8), until a leader replaces what was acknowledged and never committed (section 5.3).
//!
//! R3 would have the last id that a member presents never fall, since a truncation with its
//! replacement raises it. It may fall: the replacement can come in two appends, the first of them of
//! an older term than what it replaces (seed 805515 of the default profile).

use super::{Verdict, Violation};
use holdfast_consensus::{Index, LogId, Term};

/// Name of the property.
pub const PROPERTY: &str = "promises-survive";

/// What one member has promised in all its lives.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    term: Term,
    acknowledged: LogId,
}

impl Promises {
    /// A message left that promises something in this term.
    pub fn on_term(&mut self, term: Term) {
        self.term = self.term.max(term);
    }

    /// An acknowledgement left that reports this durable entry.
    pub fn on_acknowledged(&mut self, durable: LogId) {
        self.acknowledged = self.acknowledged.max(durable);
    }

    /// A leader replaces what the member has acknowledged from an index on; before it lies `kept`.
    pub fn on_replaced(&mut self, from: Index, kept: LogId) {
        if self.acknowledged.index >= from {
            self.acknowledged = kept;
        }
    }

    /// The member is back with this hard term and this end of its log.
    ///
    /// # Errors
    /// If it has forgotten something.
    pub fn on_restart(&self, who: &str, term: Term, last: LogId) -> Verdict {
        if term < self.term {
            return Err(Violation::new(
                PROPERTY,
                format!("{who} showed term {} and comes back in {term}", self.term),
            ));
        }
        if last < self.acknowledged {
            return Err(Violation::new(
                PROPERTY,
                format!(
                    "{who} acknowledged {} and comes back with a log that ends at {last}",
                    self.acknowledged
                ),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_term_or_acknowledgement_is_seen() {
        let mut promises = Promises::default();
        promises.on_term(Term(4));
        promises.on_acknowledged(LogId::new(3, 9));
        assert_eq!(promises.on_restart("a", Term(4), LogId::new(3, 9)), Ok(()));
        assert_eq!(promises.on_restart("a", Term(5), LogId::new(4, 2)), Ok(()), "replaced");
        assert!(promises.on_restart("a", Term(3), LogId::new(3, 9)).is_err());
        assert!(promises.on_restart("a", Term(4), LogId::new(3, 8)).is_err());
    }

    #[test]
    fn what_a_leader_replaced_is_no_promise_any_more_and_what_lies_before_it_is() {
        let mut promises = Promises::default();
        promises.on_acknowledged(LogId::new(5, 9));
        promises.on_replaced(Index(10), LogId::new(5, 9));
        assert!(promises.on_restart("a", Term(6), LogId::new(4, 9)).is_err(), "not replaced");
        promises.on_replaced(Index(9), LogId::new(4, 8));
        assert_eq!(promises.on_restart("a", Term(6), LogId::new(4, 9)), Ok(()));
        assert!(promises.on_restart("a", Term(6), LogId::new(4, 7)).is_err());
    }
}
