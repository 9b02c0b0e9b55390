//! The leader: Raft 5.3, 5.4.2 and section 8; windows; back-off; bounds.

use crate::rig::*;
use holdfast_consensus::event::RoleKind;
use holdfast_consensus::fault::{LogFault, Refusal};
use holdfast_consensus::io::{CoreConfig, Effect, Input};
use holdfast_consensus::message::{Conflict, Message, SendLane};
use holdfast_consensus::types::*;

fn refusals(out: &[Effect]) -> Vec<(u64, Refusal)> {
    let mine = |effect: &Effect| match effect {
        Effect::Refused { ticket, why } => Some((ticket.0, why.clone())),
        _ => None,
    };
    out.iter().filter_map(mine).collect()
}

#[test]
fn a_new_leader_opens_its_term_with_an_empty_entry() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    let out = rig.elect(3, 5);
    let write = out.iter().find_map(|e| match e {
        Effect::Persist(p) if !p.append.is_empty() => Some(p.append.clone()),
        _ => None,
    });
    let blank = write.expect("its first entry");
    assert_eq!(blank.first(), Some(LogId::new(5, 2)));
    assert_eq!(blank.as_slice()[0].body, Body::Blank);
    assert_eq!(appends(&out, B), [(1, 1, 1)], "sent at once, in parallel with its own write");
    assert_eq!(appends(&out, C), [(2, 1, 1)]);
}

/// B12 (figure 8): entries of older terms are never committed by counting.
#[test]
fn an_entry_of_an_older_term_is_not_committed_by_counting() {
    let mut rig = Rig::leader(3, 5, &[(2, 1), (4, 2)]);
    assert_eq!(commits(&rig.deliver(B, ack(5, 1, (4, 2)))), [0; 0]);
    assert_eq!(commits(&rig.deliver(C, ack(5, 2, (4, 2)))), [0; 0]);
    assert_eq!(commits(&rig.deliver(B, ack(5, 1, (5, 3)))), [3], "but with an entry of its own");
}

/// B13: with four voters, two are no majority.
#[test]
fn commit_needs_more_than_half_of_an_even_group() {
    let mut rig = Rig::leader(4, 5, &[(4, 1)]);
    assert_eq!(commits(&rig.deliver(B, ack(5, 1, (5, 2)))), [0; 0]);
    assert_eq!(commits(&rig.deliver(C, ack(5, 2, (5, 2)))), [2]);
}

#[test]
fn all_queued_proposals_become_one_write_and_places_in_order() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    rig.deliver(B, ack(5, 1, (5, 2)));
    let out = rig.propose(10..14);
    assert_eq!(persist(&out).expect("one write").append.len(), 4);
    let places: Vec<_> = out
        .iter()
        .filter_map(|e| match e {
            Effect::Accepted { ticket, at } => Some((ticket.0, at.index.0)),
            _ => None,
        })
        .collect();
    assert_eq!(places, [(10, 3), (11, 4), (12, 5), (13, 6)]);
    assert_eq!(appends(&out, B), [(4, 2, 4)]);
    let bulk = |e: &Effect| matches!(e, Effect::Send { to, lane: SendLane::Bulk, .. } if *to == B);
    assert!(out.iter().any(bulk), "entries never delay heartbeats");
}

#[test]
fn a_follower_refuses_proposals_and_names_the_leader() {
    let mut rig = Rig::follower(3, 5, &[(4, 1)]);
    rig.deliver(B, append(5, 1, (4, 1), 0, &[]));
    let hint = Some(B);
    assert_eq!(refusals(&rig.propose(1..3)), [1, 2].map(|t| (t, Refusal::NotLeader { hint })));
}

/// B32: bounded, and what is charged is released.
#[test]
fn the_uncommitted_tail_is_bounded_and_its_bytes_come_back() {
    let config = CoreConfig { uncommitted_bytes: 1_000, ..CoreConfig::new(ME) };
    let mut rig = Rig::leader_with(config, 3, 5, &[(4, 1)]);
    rig.deliver(B, ack(5, 1, (5, 2)));
    for round in 0..100u64 {
        let mut taken = 0;
        for ticket in 0..20 {
            let out = rig.propose(ticket..ticket + 1);
            match refusals(&out).as_slice() {
                [] => taken += 1,
                [(_, why)] => assert_eq!(*why, Refusal::Busy),
                more => panic!("{more:?}"),
            }
        }
        assert_eq!(taken, 6, "six entries of 164 bytes fit, in round {round}");
        rig.sync();
        let last = rig.core.last();
        rig.deliver(B, ack(5, 1, (5, last.index.0)));
        assert_eq!(rig.core.commit(), last.index);
    }
}

#[test]
fn too_large_a_command_and_a_full_disk_are_refused_by_name() {
    let config = CoreConfig { command_bytes: 99, ..CoreConfig::new(ME) };
    let mut rig = Rig::leader_with(config, 3, 5, &[(4, 1)]);
    assert_eq!(refusals(&rig.propose(1..2)), [(1, Refusal::TooLarge)]);
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    rig.step(Input::Headroom { low: true });
    assert_eq!(refusals(&rig.propose(1..2)), [(1, Refusal::DiskFull)]);
    assert_eq!(rig.core.role(), RoleKind::Leader, "it still leads and serves");
    rig.step(Input::Headroom { low: false });
    assert_eq!(refusals(&rig.propose(2..3)), []);
}

/// R45: leadership goes to a voter that advertises space, and else stays.
#[test]
fn a_leader_without_space_hands_over_to_a_voter_that_has_some() {
    let asked = |out: &[Effect]| {
        out.iter().find_map(|e| match e {
            Effect::Send { to, message: Message::TimeoutNow { .. }, .. } => Some(*to),
            _ => None,
        })
    };
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    let result = Ok(LogId::new(5, 2));
    let full = Message::AppendReply { term: Term(5), round: 1, result, promise: 0, low: true };
    rig.deliver(B, full);
    assert_eq!(asked(&rig.step(Input::Headroom { low: true })), None, "B has none either");
    assert_eq!(asked(&rig.deliver(C, ack(5, 1, (5, 2)))), Some(C));
    let there = Refusal::NotLeader { hint: Some(C) };
    assert_eq!(refusals(&rig.propose(1..2)), [(1, there)], "the caller goes where there is space");
}

/// R45: without a quorum that has space nothing is appended but what frees some, even by a leader
/// that has space itself.
#[test]
fn a_leader_takes_no_writes_while_a_majority_has_no_space() {
    let reply = |low| {
        let result = Ok(LogId::new(5, 2));
        Message::AppendReply { term: Term(5), round: 1, result, promise: 0, low }
    };
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    rig.deliver(B, reply(true));
    assert_eq!(refusals(&rig.propose(1..2)), [], "the leader and C have space");
    rig.deliver(C, reply(true));
    assert_eq!(refusals(&rig.propose(2..3)), [(2, Refusal::DiskFull)]);
    let batch = vec![(Ticket(3), bytes::Bytes::from_static(b"delete"))];
    assert_eq!(refusals(&rig.step(Input::Free { batch })), [], "what frees is taken");
    assert_eq!(rig.core.role(), RoleKind::Leader);
    rig.deliver(C, reply(false));
    assert_eq!(refusals(&rig.propose(4..5)), []);
}

#[test]
fn appends_are_pipelined_within_the_windows() {
    let config = CoreConfig { window_messages: 3, append_bytes: 164, ..CoreConfig::new(ME) };
    let mut rig = Rig::leader_with(config, 3, 5, &[(4, 1)]);
    rig.deliver(B, ack(5, 1, (5, 2)));
    let out = rig.propose(1..9);
    assert_eq!(
        appends(&out, B).iter().map(|a| (a.1, a.2)).collect::<Vec<_>>(),
        [(2, 1), (3, 1), (4, 1)]
    );
    assert_eq!(appends(&out, C), [], "C is still probed");
    let out = rig.deliver(B, ack(5, 3, (5, 4)));
    assert_eq!(appends(&out, B).iter().map(|a| (a.1, a.2)).collect::<Vec<_>>(), [(5, 1), (6, 1)]);
}

#[test]
fn a_new_commit_index_is_told_at_once() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    let out = rig.deliver(B, ack(5, 1, (5, 2)));
    let Some(Message::Append { prev, commit, commit_own_term, .. }) = sent_to(&out, B).pop() else {
        panic!("{out:?}");
    };
    assert_eq!((prev.index, commit, commit_own_term), (Index(2), Index(2), true));
    let out = rig.deliver(C, ack(5, 2, (5, 2)));
    assert_eq!(appends(&out, C).len(), 1, "and to a slower one when it could use it");
    assert_eq!(sent(&rig.deliver(C, ack(5, 9, (5, 2)))), [], "but only once");
}

/// A heartbeat carries the leader's commit index whole, whatever the receiver holds (R35).
#[test]
fn heartbeats_are_urgent_and_carry_the_uncapped_commit() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    rig.deliver(B, ack(5, 1, (5, 2)));
    let out = rig.after(50_000);
    let beat = out.iter().find_map(|e| match e {
        Effect::Send {
            to,
            lane,
            message: Message::Append { commit, commit_own_term, entries, .. },
        } if *to == C => Some((*lane, *commit, *commit_own_term, entries.len())),
        _ => None,
    });
    assert_eq!(beat, Some((SendLane::Urgent, Index(2), true, 0)));
}

fn conflict(prev: (u64, u64), last: u64, term: Option<u64>, first: u64) -> Conflict {
    Conflict {
        prev: LogId::new(prev.0, prev.1),
        last: Index(last),
        term: term.map(Term),
        first_of_term: Index(first),
    }
}

/// B29: agreement is found in as many rounds as there are terms.
#[test]
fn back_off_goes_by_whole_terms() {
    let log = [(1, 1), (1, 2), (1, 3), (4, 4), (4, 5), (6, 6), (6, 7)];
    let mut rig = Rig::leader(3, 8, &log);
    let out = rig.deliver(B, reject(8, 1, conflict((6, 7), 4, None, 5)));
    assert_eq!(appends(&out, B).last().map(|a| a.1), Some(4), "behind the end of a short log");
    let round = appends(&out, B)[0].0;
    let out = rig.deliver(B, reject(8, round, conflict((4, 4), 4, Some(2), 2)));
    assert_eq!(appends(&out, B).last().map(|a| a.1), Some(1), "before a term that we do not have");

    let mut rig = Rig::leader(3, 8, &log);
    let out = rig.deliver(B, reject(8, 1, conflict((6, 7), 9, Some(4), 4)));
    assert_eq!(appends(&out, B).last().map(|a| a.1), Some(5), "behind our own last of the term");
}

/// B19: a late rejection does nothing.
#[test]
fn a_stale_rejection_moves_nothing() {
    let mut rig = Rig::leader(3, 8, &[(1, 1), (1, 2), (1, 3)]);
    let stale = reject(8, 1, conflict((1, 3), 1, None, 2));
    let out = rig.deliver(B, stale.clone());
    assert_eq!(appends(&out, B).last().map(|a| (a.1, a.2)), Some((1, 0)));
    assert_eq!(sent_to(&rig.deliver(B, stale.clone()), B), [], "the same again");
    let round = appends(&out, B)[0].0;
    rig.deliver(B, ack(8, round, (8, 4)));
    assert_eq!(rig.core.peers(rig.now)[0].match_index, Index(4));
    assert_eq!(sent_to(&rig.deliver(B, stale), B), [], "the same after the match");
    assert_eq!(rig.core.peers(rig.now)[0].match_index, Index(4));
    assert_eq!(rig.core.peers(rig.now)[0].state, "replicate");
}

#[test]
fn entries_older_than_the_cache_are_read_one_request_at_a_time() {
    let mut rig = Rig::leader(3, 8, &[(1, 1), (1, 2), (1, 3)]);
    let out = rig.deliver(B, reject(8, 1, conflict((1, 3), 1, None, 2)));
    let (round, prev, count) = appends(&out, B)[0];
    assert_eq!((prev, count), (1, 0), "a probe needs no entries");
    let out = rig.deliver(B, ack(8, round, (1, 1)));
    let fetch = out.iter().find_map(|e| match e {
        Effect::Fetch { fetch, peer, from, to, .. } => Some((*fetch, *peer, *from, *to)),
        _ => None,
    });
    let (fetch, peer, from, to) = fetch.expect("a fetch");
    assert_eq!((peer, from, to), (B, Index(2), Index(3)));
    let again = rig.propose(1..2);
    assert!(!again.iter().any(|e| matches!(e, Effect::Fetch { .. })), "one at a time");
    let out = rig.step(Input::Fetched { fetch, entries: Ok(entries(&[(1, 2), (1, 3)])) });
    assert_eq!(appends(&out, B).iter().map(|a| (a.1, a.2)).collect::<Vec<_>>(), [(1, 2), (3, 2)]);
}

#[test]
fn a_failed_or_foreign_fetch_is_tried_again_later() {
    for bad in [Err(LogFault::Refused("no".into())), Ok(entries(&[(7, 2), (7, 3)]))] {
        let mut rig = Rig::leader(3, 8, &[(1, 1), (1, 2), (1, 3)]);
        let out = rig.deliver(B, reject(8, 1, conflict((1, 3), 1, None, 2)));
        rig.deliver(B, ack(8, appends(&out, B)[0].0, (1, 1)));
        let out = rig.step(Input::Fetched { fetch: FetchId(1), entries: bad });
        assert_eq!(appends(&out, B), []);
        let out = rig.after(50_000);
        let again = out.iter().any(|e| matches!(e, Effect::Fetch { fetch: FetchId(2), .. }));
        let soon = rig.core.peers(rig.now)[0].state == "replicate";
        assert!(again || soon, "{out:?}");
    }
}

#[test]
fn lost_appends_are_noticed_without_new_ones() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    rig.deliver(B, ack(5, 1, (5, 2)));
    rig.propose(1..3);
    let mut out = Vec::new();
    for _ in 0..4 {
        out = rig.after(50_000);
        rig.deliver(C, ack(5, 2, (5, 2)));
        if appends(&out, B).iter().any(|a| a.1 == 4) {
            break;
        }
    }
    let asked = *appends(&out, B).last().expect("a question about the last entry sent");
    assert_eq!((asked.1, asked.2), (4, 0));
    let out = rig.deliver(B, reject(5, asked.0, conflict((5, 4), 2, None, 3)));
    assert_eq!(appends(&out, B).last().map(|a| (a.1, a.2)), Some((2, 2)), "sent again");
}

#[test]
fn log_time_grows_by_the_leaders_own_clock_only() {
    let mut log = recovered(in_term(4), &voters(1), &[(4, 1)]);
    log.time = 5_000;
    let mut rig = Rig::with(CoreConfig::new(ME), log);
    rig.step(Input::Wake);
    let blank = rig.sync();
    assert_eq!(persist(&blank).expect("its first entry").append.as_slice()[0].time, 5_000);
    rig.sync();
    rig.now += 700;
    let write = persist(&rig.propose(1..2)).expect("a write");
    assert_eq!(write.append.as_slice()[0].time, 5_700);
}

#[test]
fn the_cache_gives_up_only_what_is_durable_and_committed() {
    let config = CoreConfig { cache_bytes: 0, ..CoreConfig::new(ME) };
    let mut rig = Rig::leader_with(config, 3, 5, &[(4, 1)]);
    rig.deliver(B, ack(5, 1, (5, 2)));
    rig.propose(1..2);
    rig.propose(2..3);
    assert_eq!(rig.core.cached(Index(1), Index(9)).len(), 2);
    rig.sync();
    assert_eq!(rig.core.cached(Index(1), Index(9)).len(), 2, "durable, but not committed");
    rig.deliver(B, ack(5, 3, (5, 3)));
    assert_eq!(rig.core.cached(Index(1), Index(9)).first(), Some(LogId::new(5, 4)));
}
