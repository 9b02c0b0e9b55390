//! Election safety: at most one leader in a term (Raft figure 3), and at most one vote of a member
//! in a term, restarts included (Raft 5.2).

use super::{Verdict, Violation};
use holdfast_consensus::{MemberId, Term};
use std::collections::BTreeMap;

/// Name of the property.
pub const PROPERTY: &str = "election-safety";

/// Leaders and votes by term.
#[derive(Debug, Default)]
pub struct ElectionSafety {
    leaders: BTreeMap<Term, MemberId>,
    votes: BTreeMap<(MemberId, Term), MemberId>,
}

impl ElectionSafety {
    /// A member leads.
    ///
    /// # Errors
    /// If another one led in that term.
    pub fn on_leader(&mut self, term: Term, member: MemberId) -> Verdict {
        match self.leaders.insert(term, member) {
            Some(other) if other != member => Err(Violation::new(
                PROPERTY,
                format!("both {other} and {member} led in term {term}"),
            )),
            _ => Ok(()),
        }
    }

    /// A granted vote left a member (pre-votes do not count).
    ///
    /// # Errors
    /// If the member has voted for somebody else in that term, in this life or an earlier one.
    pub fn on_vote(&mut self, voter: MemberId, term: Term, candidate: MemberId) -> Verdict {
        match self.votes.insert((voter, term), candidate) {
            Some(other) if other != candidate => Err(Violation::new(
                PROPERTY,
                format!("{voter} voted in term {term} for {other} and then for {candidate}"),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_leaders_in_one_term_are_seen() {
        let mut check = ElectionSafety::default();
        assert_eq!(check.on_leader(Term(1), MemberId(1)), Ok(()));
        assert_eq!(check.on_leader(Term(2), MemberId(2)), Ok(()));
        assert_eq!(check.on_leader(Term(2), MemberId(2)), Ok(()));
        assert!(check.on_leader(Term(1), MemberId(2)).is_err());
    }

    #[test]
    fn a_second_vote_in_one_term_is_seen() {
        let mut check = ElectionSafety::default();
        assert_eq!(check.on_vote(MemberId(3), Term(1), MemberId(1)), Ok(()));
        assert_eq!(check.on_vote(MemberId(3), Term(1), MemberId(1)), Ok(()));
        assert!(check.on_vote(MemberId(3), Term(1), MemberId(2)).is_err());
    }
}
