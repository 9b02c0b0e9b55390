//! The commit rule: a leader commits an entry of its own term that a majority of every voter set
//! durably holds, and everything before it (Raft 5.3 and 5.4.2, figure 8); everybody else commits
//! only what some leader has committed. Judged at each rise of a commit index, against what the
//! logs have confirmed: a commit that was too bold is seen even if no crash makes it matter (BUGS
//! B12, B13, B14, B24, B75). Also the leader's side of it: what it takes a member to hold is never
//! more than that member has acknowledged to it.

use super::{Verdict, Violation};
use holdfast_consensus::{Index, LogId, MemberId, Membership, Term};

/// Name of the property.
pub const PROPERTY: &str = "commit-rule";

/// A member says that everything up to an entry is committed.
#[derive(Copy, Clone, Debug)]
pub struct Claim<'a> {
    /// Who.
    pub who: &'a str,
    /// The entry.
    pub through: LogId,
    /// The term it leads, if it does.
    pub leads: Option<Term>,
    /// The configuration that it counts by.
    pub membership: &'a Membership,
    /// The last entry that was known committed before.
    pub known: LogId,
}

/// Judges a claim; `holds` says which members durably hold the entry.
///
/// # Errors
/// If the claim breaks the rule.
pub fn check(claim: &Claim<'_>, holds: impl Fn(MemberId) -> bool) -> Verdict {
    let Claim { who, through, leads, membership, known } = claim;
    let Some(term) = leads else {
        if through.index > known.index {
            return bold(format!("{who} leads nothing and commits {through}; the last is {known}"));
        }
        return Ok(());
    };
    if through.term != *term {
        return bold(format!("{who} leads term {term} and commits {through} by counting"));
    }
    // Arithmetic of its own: the product's is what is judged.
    for half in [&membership.voters, &membership.outgoing] {
        let holders = half.iter().filter(|m| holds(**m)).count();
        let joint = half.is_empty() && !membership.voters.is_empty();
        if !joint && holders * 2 <= half.len() {
            return bold(format!(
                "{who} commits {through}, which {holders} of {} voters durably hold",
                half.len()
            ));
        }
    }
    Ok(())
}

/// Judges what the leader of `term` takes a member to hold: at most `acknowledged`, what that
/// member ever acknowledged in this term.
///
/// # Errors
/// If it is more.
pub fn check_match(
    leader: &str,
    term: Term,
    member: &str,
    matched: Index,
    acknowledged: LogId,
) -> Verdict {
    if matched <= acknowledged.index {
        return Ok(());
    }
    bold(format!(
        "{leader} leads term {term} and takes {member} to hold {matched}; it acknowledged {acknowledged}"
    ))
}

fn bold(what: String) -> Verdict {
    Err(Violation::new(PROPERTY, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(voters: u64, outgoing: &[u64]) -> Membership {
        let named = (1..=voters).map(|n| (MemberId(n), format!("n{n}")));
        let outgoing = outgoing.iter().map(|n| MemberId(*n)).collect();
        Membership { outgoing, ..Membership::of_voters(named) }
    }

    fn claim(leads: Option<u64>, term: u64, membership: &Membership, holders: &[u64]) -> Verdict {
        let claim = Claim {
            who: "n1",
            through: LogId::new(term, 9),
            leads: leads.map(Term),
            membership,
            known: LogId::new(1, 7),
        };
        check(&claim, |m| holders.contains(&m.0))
    }

    #[test]
    fn an_entry_of_an_earlier_term_is_not_committed_by_counting() {
        let three = membership(3, &[]);
        assert_eq!(claim(Some(3), 3, &three, &[1, 2]), Ok(()));
        assert!(claim(Some(3), 2, &three, &[1, 2, 3]).is_err());
    }

    #[test]
    fn half_of_the_voters_are_no_majority() {
        let four = membership(4, &[]);
        assert_eq!(claim(Some(3), 3, &four, &[1, 2, 3]), Ok(()));
        assert!(claim(Some(3), 3, &four, &[1, 2]).is_err());
        assert!(claim(Some(3), 3, &four, &[1, 2, 5, 6, 7]).is_err(), "strangers do not count");
        let joint = membership(3, &[4, 5, 6]);
        assert_eq!(claim(Some(3), 3, &joint, &[1, 2, 4, 5]), Ok(()));
        assert!(claim(Some(3), 3, &joint, &[1, 2, 3, 4]).is_err(), "the other half");
        assert!(claim(Some(3), 3, &Membership::default(), &[1]).is_err(), "nobody votes");
    }

    #[test]
    fn a_follower_commits_what_a_leader_committed() {
        let three = membership(3, &[]);
        assert!(claim(None, 3, &three, &[1, 2, 3]).is_err());
        let known = Claim {
            who: "n1",
            through: LogId::new(1, 7),
            leads: None,
            membership: &three,
            known: LogId::new(1, 7),
        };
        assert_eq!(check(&known, |_| false), Ok(()));
    }

    #[test]
    fn a_match_that_nobody_acknowledged_is_seen() {
        let matched = |index| check_match("n1", Term(2), "n2", Index(index), LogId::new(2, 5));
        assert_eq!(matched(5), Ok(()));
        assert!(matched(6).is_err());
    }
}
