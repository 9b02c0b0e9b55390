//! Promises survive: what a member promised anybody (a vote, leadership or an acknowledgement in a
//! term, the end of its durable log) it still holds after any crash (Raft figure 2, persistent state; dissertation 3.8). A truncation
//! with its replacement raises the last id, so the last id a member presents never falls (R3).

use super::{Verdict, Violation};
use holdfast_consensus::{LogId, Term};

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
}
