//! Quorum arithmetic as pure functions of a configuration. Every decision that needs "enough
//! members" asks here, so that the joint phase (both majorities, dissertation 4.3) and the rule
//! that learners never count are stated once.

use crate::types::{Index, MemberId, Membership};
use std::fmt;

/// Where a vote stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every half has a majority in favour.
    Won,
    /// Some half can no longer reach a majority.
    Lost,
    /// Neither yet.
    Pending,
}

/// Smallest number of members that is more than half of `members`.
#[must_use]
pub const fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// The halves that must each agree: the voters, and in the joint phase the outgoing voters.
fn halves(membership: &Membership) -> impl Iterator<Item = &[MemberId]> {
    [membership.voters.as_slice(), membership.outgoing.as_slice()]
        .into_iter()
        .enumerate()
        // An empty `outgoing` means "no joint phase" and asks nothing; empty `voters` ask the
        // impossible, so that a member without a configuration never counts as a quorum.
        .filter(|(half, members)| *half == 0 || !members.is_empty())
        .map(|(_, members)| members)
}

/// The highest value that a quorum has reached: in every half, a majority has at least this much.
/// Zero if the configuration has no voters.
#[must_use]
pub fn reached(membership: &Membership, value: impl Fn(MemberId) -> u64) -> u64 {
    halves(membership)
        .map(|members| {
            let mut values: Vec<u64> = members.iter().map(|m| value(*m)).collect();
            values.sort_unstable_by(|a, b| b.cmp(a));
            // With n members, the majority-th largest value is held by a majority (B13).
            values.get(majority(members.len()) - 1).copied().unwrap_or(0)
        })
        .min()
        .unwrap_or(0)
}

/// The highest index that a quorum holds durably, given each member's durable match.
#[must_use]
pub fn committed(membership: &Membership, matched: impl Fn(MemberId) -> Index) -> Index {
    Index(reached(membership, |m| matched(m).0))
}

/// Where a vote stands; `vote` says what a member answered, `None` if nothing yet.
#[must_use]
pub fn verdict(membership: &Membership, vote: impl Fn(MemberId) -> Option<bool>) -> Verdict {
    let mut worst = Verdict::Won;
    for members in halves(membership) {
        let yes = members.iter().filter(|m| vote(**m) == Some(true)).count();
        let no = members.iter().filter(|m| vote(**m) == Some(false)).count();
        let needed = majority(members.len());
        if members.len().saturating_sub(no) < needed {
            return Verdict::Lost;
        }
        if yes < needed {
            worst = Verdict::Pending;
        }
    }
    worst
}

/// The voters for which `answered` is false: whom a member without a quorum waits for.
#[must_use]
pub fn missing(membership: &Membership, answered: impl Fn(MemberId) -> bool) -> Vec<MemberId> {
    membership.members().into_iter().filter(|m| membership.is_voter(*m) && !answered(*m)).collect()
}

/// Draws who is where: one line a voter, a bar up to its index, and the quorum's index last.
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    membership: &'a Membership,
    matched: Vec<(MemberId, Index)>,
}

impl<'a> Picture<'a> {
    /// A picture of a configuration, given each member's durable match.
    #[must_use]
    pub fn new(membership: &'a Membership, matched: impl Fn(MemberId) -> Index) -> Self {
        let matched = membership.members().into_iter().map(|m| (m, matched(m))).collect();
        Self { membership, matched }
    }

    fn at(&self, member: MemberId) -> Index {
        self.matched.iter().find(|(m, _)| *m == member).map_or(Index(0), |(_, i)| *i)
    }

    fn half(&self, f: &mut fmt::Formatter<'_>, title: &str, members: &[MemberId]) -> fmt::Result {
        const BAR: u64 = 20;
        let top = self.matched.iter().map(|(_, i)| i.0).max().unwrap_or(0).max(1);
        writeln!(f, "{title} ({} of {} needed)", majority(members.len()), members.len())?;
        for member in members {
            let index = self.at(*member);
            let len = usize::try_from(index.0.saturating_mul(BAR) / top).unwrap_or(0);
            let name = self.membership.name_of(*member);
            writeln!(f, "  {name:<16} |{:<20}| {index}", "=".repeat(len))?;
        }
        Ok(())
    }
}

impl fmt::Display for Picture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.half(f, "voters", &self.membership.voters)?;
        if !self.membership.outgoing.is_empty() {
            self.half(f, "outgoing", &self.membership.outgoing)?;
        }
        write!(f, "quorum at {}", committed(self.membership, |m| self.at(m)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(count: u64) -> Membership {
        Membership::of_voters((1..=count).map(|n| (MemberId(n), format!("n{n}"))))
    }

    fn at(values: &'static [u64]) -> impl Fn(MemberId) -> Index {
        move |m| Index(values[usize::try_from(m.0 - 1).expect("small")])
    }

    #[test]
    fn an_even_group_needs_more_than_half() {
        assert_eq!(committed(&voters(4), at(&[5, 5, 3, 3])), Index(3));
        assert_eq!(committed(&voters(4), at(&[5, 5, 5, 3])), Index(5));
    }

    #[test]
    fn the_order_of_members_does_not_matter() {
        assert_eq!(committed(&voters(5), at(&[9, 1, 8, 2, 7])), Index(7));
        assert_eq!(committed(&voters(3), at(&[0, 4, 9])), Index(4));
        assert_eq!(committed(&voters(1), at(&[6])), Index(6));
    }

    #[test]
    fn a_joint_configuration_needs_both_majorities() {
        let mut joint = voters(6);
        joint.outgoing = vec![MemberId(1), MemberId(2), MemberId(3)];
        joint.voters = vec![MemberId(4), MemberId(5), MemberId(6)];
        assert_eq!(committed(&joint, at(&[5, 5, 5, 10, 10, 10])), Index(5));
        let yes_new = |m: MemberId| (m.0 > 3).then_some(true);
        assert_eq!(verdict(&joint, yes_new), Verdict::Pending);
        assert_eq!(verdict(&joint, |m| Some(m.0 > 2)), Verdict::Lost);
        assert_eq!(verdict(&joint, |m| (m.0 != 1 && m.0 != 6).then_some(true)), Verdict::Won);
    }

    #[test]
    fn learners_never_count() {
        let mut m = voters(3);
        m.learners = vec![MemberId(4), MemberId(5)];
        assert_eq!(committed(&m, at(&[7, 0, 0, 7, 7])), Index(0));
        assert_eq!(verdict(&m, |m| (m.0 != 2 && m.0 != 3).then_some(true)), Verdict::Pending);
        assert_eq!(missing(&m, |m| m.0 == 1), [MemberId(2), MemberId(3)]);
    }

    #[test]
    fn no_configuration_is_no_quorum() {
        let none = Membership::default();
        assert_eq!(committed(&none, |_| Index(9)), Index(0));
        assert_ne!(verdict(&none, |_| Some(true)), Verdict::Won);
    }

    #[test]
    fn the_picture_shows_who_is_where() {
        let m = voters(3);
        let picture = Picture::new(&m, at(&[4, 2, 0])).to_string();
        let expected = "voters (2 of 3 needed)\n  \
            n1               |====================| i4\n  \
            n2               |==========          | i2\n  \
            n3               |                    | i0\n\
            quorum at i2";
        assert_eq!(picture, expected);
    }
}
