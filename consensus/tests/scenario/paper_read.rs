//! Read indexes: dissertation 6.4.

use crate::rig::*;
use holdfast_consensus::fault::Refusal;
use holdfast_consensus::io::{Effect, Input};
use holdfast_consensus::types::*;

fn read(rig: &mut Rig, ticket: u64) -> Vec<Effect> {
    let deadline = rig.now + 100_000;
    rig.step(Input::ReadIndex { ticket: Ticket(ticket), deadline })
}

fn served(out: &[Effect]) -> Vec<(u64, u64)> {
    let mine = |effect: &Effect| match effect {
        Effect::ReadAt { ticket, index } => Some((ticket.0, index.0)),
        _ => None,
    };
    out.iter().filter_map(mine).collect()
}

/// A leader that has committed its first entry, at index 2, and the last round it used.
fn ready(count: u64) -> (Rig, u64) {
    let mut rig = Rig::leader(count, 5, &[(4, 1)]);
    let mut last = 0;
    for peer in 2..=count {
        let out = rig.deliver(MemberId(peer), ack(5, peer - 1, (5, 2)));
        last = appends(&out, MemberId(peer)).last().map_or(last, |a| a.0).max(last);
    }
    assert!(rig.core.committed_own_term());
    (rig, last)
}

/// B64: a new leader's commit index may lag; reads wait for its first own entry.
#[test]
fn no_read_before_an_entry_of_the_own_term_is_committed() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    let out = read(&mut rig, 1);
    let round = appends(&out, B).last().expect("a round").0;
    assert_eq!(served(&rig.deliver(B, ack(5, round, (4, 1)))), []);
    let out = rig.deliver(B, ack(5, round, (5, 2)));
    assert_eq!((commits(&out), served(&out)), (vec![2], vec![(1, 2)]));
}

/// B65: only a round sent after the read arrived confirms it, and a quorum must answer.
#[test]
fn a_read_needs_a_round_that_left_after_it() {
    let (mut rig, last) = ready(5);
    let out = read(&mut rig, 1);
    let round = |peer| appends(&out, peer).last().expect("a round").0;
    assert!(round(B) > last);
    for peer in [B, C, D, E] {
        assert_eq!(served(&rig.deliver(peer, ack(5, last, (5, 2)))), [], "an older round");
    }
    assert_eq!(served(&rig.deliver(B, ack(5, round(B), (5, 2)))), [], "two of five");
    assert_eq!(served(&rig.deliver(C, ack(5, round(C), (5, 2)))), [(1, 2)]);
}

/// B66: late answers to a finished round confirm nothing new.
#[test]
fn answers_to_an_old_round_do_not_serve_a_repeated_read() {
    let (mut rig, _) = ready(3);
    let out = read(&mut rig, 1);
    let old = appends(&out, B).last().expect("a round").0;
    assert_eq!(served(&rig.deliver(B, ack(5, old, (5, 2)))), [(1, 2)]);
    let out = read(&mut rig, 1);
    for peer in [B, C] {
        assert_eq!(served(&rig.deliver(peer, ack(5, old, (5, 2)))), []);
    }
    let new = appends(&out, C).last().expect("a new round").0;
    assert_eq!(served(&rig.deliver(C, ack(5, new, (5, 2)))), [(1, 2)]);
}

#[test]
fn answers_of_another_term_confirm_nothing() {
    let (mut rig, _) = ready(3);
    let out = read(&mut rig, 1);
    let round = appends(&out, B).last().expect("a round").0;
    assert_eq!(served(&rig.deliver(B, ack(4, round, (4, 1)))), []);
    assert_eq!(served(&rig.deliver(B, ack(5, round + 50, (5, 2)))), [], "a round never sent");
}

#[test]
fn reads_that_come_during_a_round_share_the_next_one() {
    let (mut rig, _) = ready(3);
    let first = appends(&read(&mut rig, 1), B).last().expect("a round").0;
    for ticket in 2..100 {
        assert_eq!(sent(&read(&mut rig, ticket)), []);
    }
    let out = rig.deliver(B, ack(5, first, (5, 2)));
    assert_eq!(served(&out), [(1, 2)]);
    let second = appends(&out, B).last().expect("one more round for all the others").0;
    assert_eq!(appends(&out, C).len(), 1);
    assert_eq!(served(&rig.deliver(B, ack(5, second, (5, 2)))).len(), 98);
}

#[test]
fn the_index_is_the_commit_at_arrival() {
    let (mut rig, _) = ready(3);
    let out = read(&mut rig, 1);
    rig.propose(1..2);
    rig.sync();
    let round = appends(&out, B).last().expect("a round").0;
    assert_eq!(served(&rig.deliver(B, ack(5, round, (5, 3)))), [(1, 2)]);
    assert_eq!(rig.core.commit(), Index(3));
}

#[test]
fn a_sole_voter_answers_at_once_and_only_what_is_durable() {
    let mut rig = Rig::follower(1, 4, &[(4, 1)]);
    rig.step(Input::Wake);
    rig.sync();
    assert_eq!(served(&read(&mut rig, 1)), [], "its first entry is not durable");
    assert_eq!(served(&rig.sync()), [(1, 2)]);
    rig.propose(1..2);
    assert_eq!(served(&read(&mut rig, 2)), [(2, 2)]);
}

#[test]
fn reads_end_with_their_deadline_or_with_leadership() {
    let (mut rig, _) = ready(3);
    read(&mut rig, 1);
    let out = rig.after(100_000);
    let refused = |ticket, why| Effect::Refused { ticket: Ticket(ticket), why };
    assert!(out.contains(&refused(1, Refusal::Deadline)), "{out:?}");
    read(&mut rig, 2);
    let out = rig.deliver(B, append(9, 1, (5, 2), 2, &[]));
    assert!(out.contains(&refused(2, Refusal::NotLeader { hint: Some(B) })), "{out:?}");
    let out = read(&mut rig, 3);
    assert!(out.contains(&refused(3, Refusal::NotLeader { hint: Some(B) })), "{out:?}");
}

#[test]
fn waiting_reads_are_bounded() {
    let config = holdfast_consensus::io::CoreConfig {
        reads: 2,
        ..holdfast_consensus::io::CoreConfig::new(ME)
    };
    let mut rig = Rig::leader_with(config, 3, 5, &[(4, 1)]);
    read(&mut rig, 1);
    read(&mut rig, 2);
    let out = read(&mut rig, 3);
    assert!(out.contains(&Effect::Refused { ticket: Ticket(3), why: Refusal::Busy }), "{out:?}");
}
