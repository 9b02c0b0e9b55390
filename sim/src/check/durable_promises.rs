//! Durable promises: a vote, a candidacy or an acknowledgement leaves a member only after what it
//! promises is on its disk (Raft figure 2, "updated on stable storage before responding";
//! dissertation 3.8; DESIGN 4.2). Judged at each message, by what the log has confirmed: a promise
//! that came too early is seen even if no crash makes it matter (BUGS B01, B03, B15, B25).

use super::ground::Ground;
use super::{Verdict, Violation};
use holdfast_consensus::message::Message;
use holdfast_consensus::{HardState, MemberId};

/// Name of the property.
pub const PROPERTY: &str = "durable-promises";

/// A message leaves member `me` for `to`.
///
/// # Errors
/// If it promises what is not durable.
pub fn check(who: &str, me: MemberId, to: MemberId, message: &Message, ground: &Ground) -> Verdict {
    let vote = |term, candidate| {
        let promised = HardState { term, voted_for: Some(candidate) };
        if ground.hard() == promised && !ground.is_held() {
            return Ok(());
        }
        let what = format!("{who} votes for {candidate} in term {term}");
        early(&what, &format!("{:?}", ground.hard()))
    };
    match message {
        Message::Vote { pre: false, term, .. } => vote(*term, me),
        Message::VoteReply { pre: false, granted: true, asked, .. } => vote(*asked, to),
        Message::AppendReply { term, result: Ok(durable), .. } => {
            let what = format!("{who} acknowledges {durable} in term {term}");
            if !ground.may_acknowledge(*durable) {
                return early(&what, &format!("a log that ends at {}", ground.last()));
            }
            if ground.hard().term != *term {
                return early(&what, &format!("{:?}", ground.hard()));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn early(what: &str, held: &str) -> Verdict {
    Err(Violation::new(PROPERTY, format!("{what}; its disk holds {held}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::ground::tests::batch;
    use holdfast_consensus::{LogId, Term};

    fn ground() -> Ground {
        let mut ground = Ground::default();
        ground.writes(&[batch(None, &[(1, 1), (1, 2)], 4)]);
        ground.written();
        ground
    }

    fn says(message: &Message) -> Verdict {
        check("n1", MemberId(4), MemberId(4), message, &ground())
    }

    #[test]
    fn a_vote_before_its_write_is_seen() {
        let reply = |term: u64, pre| Message::VoteReply {
            term: Term(term),
            pre,
            asked: Term(term),
            granted: true,
        };
        assert_eq!(says(&reply(4, false)), Ok(()));
        assert!(says(&reply(5, false)).is_err());
        assert_eq!(says(&reply(5, true)), Ok(()), "a pre-vote promises nothing");
        let other = check("n1", MemberId(1), MemberId(2), &reply(4, false), &ground());
        assert!(other.is_err(), "the disk says another candidate");
        let vote = |term: u64| Message::Vote {
            term: Term(term),
            pre: false,
            last: LogId::default(),
            transfer: false,
        };
        assert_eq!(says(&vote(4)), Ok(()));
        assert!(says(&vote(5)).is_err());
    }

    #[test]
    fn a_vote_of_a_held_member_is_seen() {
        let hard = HardState { term: Term(4), voted_for: Some(MemberId(4)) };
        let mut found = holdfast_consensus::Recovered { hard, ..Default::default() };
        let vote =
            Message::Vote { term: Term(4), pre: false, last: LogId::default(), transfer: false };
        let mut ground = Ground::default();
        ground.proved(&found);
        assert_eq!(check("n1", MemberId(4), MemberId(2), &vote, &ground), Ok(()));
        found.held = Some("row P8".to_owned());
        ground.proved(&found);
        assert!(check("n1", MemberId(4), MemberId(2), &vote, &ground).is_err());
    }

    #[test]
    fn an_acknowledgement_before_its_write_is_seen() {
        let ack = |term: u64, durable| Message::AppendReply {
            term: Term(term),
            round: 1,
            result: Ok(durable),
            promise: 0,
            low: false,
        };
        assert_eq!(says(&ack(4, LogId::new(1, 2))), Ok(()));
        assert!(says(&ack(4, LogId::new(1, 3))).is_err(), "the entry");
        assert!(says(&ack(4, LogId::new(2, 2))).is_err(), "another entry");
        assert!(says(&ack(5, LogId::new(1, 2))).is_err(), "the term");
    }
}
