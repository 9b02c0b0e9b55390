//! Rule R15: what a member with damaged entries may do, and how they come back.

use crate::rig::*;
use holdfast_consensus::event::{Event, RoleKind, StepDown};
use holdfast_consensus::fault::{Refusal, StopReason};
use holdfast_consensus::io::{CoreConfig, Effect, Input};
use holdfast_consensus::message::Message;
use holdfast_consensus::types::*;
use holdfast_consensus::{Hole, Identity};

const LOG: [(u64, u64); 7] = [(1, 1), (1, 2), (2, 3), (2, 4), (3, 5), (3, 6), (4, 7)];

fn known(term: u64, index: u64) -> Hole {
    let identity = entry(term, index).identity().expect("small");
    Hole { index: Index(index), known: Some(identity) }
}

fn unknown(index: u64) -> Hole {
    Hole { index: Index(index), known: None }
}

/// A voter of three in term 4 whose log holds [`LOG`] but for the holes.
fn damaged(holes: &[Hole]) -> Rig {
    let base = recovered(in_term(4), &voters(3), &LOG);
    let lost = |index: u64| holes.iter().any(|h| h.index.0 == index && h.known.is_none());
    let mut terms: Vec<LogId> = Vec::new();
    for (term, index) in LOG {
        if !lost(index) && terms.last().is_none_or(|run| run.term.0 < term) {
            terms.push(LogId::new(term, index));
        }
    }
    Rig::with(CoreConfig::new(ME), Recovered { terms, holes: holes.to_vec(), ..base })
}

/// Requests for entries: (to, ask, indexes).
fn asked(out: &[Effect]) -> Vec<(MemberId, u64, Vec<u64>)> {
    let request = |(to, message): (MemberId, Message)| match message {
        Message::Repair { ask, wants } => {
            Some((to, ask, wants.iter().map(|w| w.index.0).collect()))
        }
        _ => None,
    };
    sent(out).into_iter().filter_map(request).collect()
}

/// Entries that are to be written in the place of damaged ones.
fn written(out: &[Effect]) -> Vec<LogId> {
    let ids = |effect: &Effect| match effect {
        Effect::Repair { entries } => Some(entries.iter().map(|e| e.id).collect::<Vec<_>>()),
        _ => None,
    };
    out.iter().filter_map(ids).flatten().collect()
}

/// The next request, however long it takes: perhaps it is already in what the last step did.
fn next_request(rig: &mut Rig, out: &[Effect]) -> (MemberId, u64, Vec<u64>) {
    let mut found = asked(out).pop();
    for _ in 0..50 {
        found = found.or_else(|| asked(&rig.expire()).pop());
    }
    found.expect("somebody is asked")
}

#[test]
fn a_damaged_member_votes_by_its_proved_end() {
    for (last, granted) in [((3, 9), false), ((4, 6), false), ((4, 7), true), ((4, 8), true)] {
        let mut rig = damaged(&[known(3, 5), unknown(4)][..1]);
        let mut out = rig.deliver(B, ask(5, false, last, false));
        out.extend(rig.sync());
        let reply = sent_to(&out, B).into_iter().find_map(|m| match m {
            Message::VoteReply { granted, .. } => Some(granted),
            _ => None,
        });
        assert_eq!(reply, Some(granted), "{last:?}");
    }
}

#[test]
fn a_damaged_member_acknowledges_nothing_from_the_first_damaged_entry_on() {
    let mut rig = damaged(&[unknown(4), known(3, 6)]);
    assert_eq!((rig.core.durable(), rig.core.proved()), (LogId::new(2, 3), LogId::new(4, 7)));
    // A heartbeat that matches the whole log, and entries that become durable behind the hole.
    let out = rig.deliver(B, append(4, 1, (4, 7), 7, &[]));
    assert_eq!(acks(&out), [(2, 3)]);
    let mut out = rig.deliver(B, append(4, 2, (4, 7), 7, &[(4, 8)]));
    out.extend(rig.sync());
    assert_eq!(acks(&out), [(2, 3)]);
    assert_eq!(rig.core.commit(), Index(7), "what is committed may be known all the same");
}

#[test]
fn a_damaged_member_never_stands_whoever_asks() {
    let mut rig = damaged(&[known(3, 5)]);
    for _ in 0..40 {
        rig.after(300_000);
        assert_eq!(rig.core.role(), RoleKind::Follower);
    }
    rig.deliver(B, append(4, 1, (4, 7), 7, &[]));
    let last = LogId::new(4, 7);
    rig.deliver(B, Message::TimeoutNow { term: Term(4), last, within: 300_000 });
    assert_eq!((rig.core.role(), rig.core.hard().term), (RoleKind::Follower, Term(4)));
}

#[test]
fn a_known_entry_comes_from_any_member_without_leader_or_commit_index() {
    let mut rig = damaged(&[known(3, 5)]);
    let (to, number, wants) = next_request(&mut rig, &[]);
    assert_eq!(wants, [5]);
    // Another entry of the same place, and an answer of somebody else, bring nothing.
    let forged = Entry { time: 99, ..entry(3, 5) };
    let other = if to == B { C } else { B };
    let reply = |e: Entry, ask| Message::RepairReply { ask, entries: vec![e] };
    assert_eq!(written(&rig.deliver(other, reply(entry(3, 5), number))), []);
    assert_eq!(written(&rig.deliver(to, reply(entry(3, 5), number + 7))), []);
    let out = rig.deliver(to, reply(forged, number));
    assert_eq!(written(&out), []);
    let (to, number, _) = next_request(&mut rig, &out);
    assert_eq!(to, other, "the next member is asked");
    assert_eq!(written(&rig.deliver(to, reply(entry(3, 5), number))), [LogId::new(3, 5)]);
    assert_eq!(rig.core.durable().index, Index(4), "not before it is durable");
    let out = rig.step(Input::Repaired { filled: vec![Index(5)] });
    assert!(events(&out).contains(&Event::Repaired { count: 1, left: 0 }));
    assert_eq!(rig.core.durable(), LogId::new(4, 7));
    rig.after(2_000_000);
    assert_eq!(rig.core.role(), RoleKind::PreCandidate, "it may stand again");
}

/// Seed 774476 of the default profile: the time of a damaged last entry is not known, and what the
/// member proposed later was earlier than the entry that had come back; no log took that.
#[test]
fn a_repaired_member_proposes_nothing_earlier_than_what_came_back() {
    let late = Entry { time: 9_000_000_000, ..entry(4, 7) };
    let hole = Hole { index: Index(7), known: Some(late.identity().expect("small")) };
    let mut rig = damaged(&[hole]);
    let (to, ask, _) = next_request(&mut rig, &[]);
    let entries = vec![late];
    assert_eq!(written(&rig.deliver(to, Message::RepairReply { ask, entries })).len(), 1);
    rig.step(Input::Repaired { filled: vec![Index(7)] });
    let out = rig.elect(3, 5);
    let first = persist(&out).expect("the first entry of its term").append;
    let time = first.as_slice().first().expect("one").time;
    assert!(time >= 9_000_000_000, "{time}");
}

#[test]
fn an_entry_of_unknown_identity_comes_from_the_leader_alone() {
    let mut rig = damaged(&[unknown(4)]);
    for _ in 0..20 {
        let out = rig.after(400_000);
        assert_eq!(asked(&out), [], "without a leader nobody can say what stood there");
    }
    let mut out = rig.deliver(B, append(4, 1, (4, 7), 7, &[]));
    out.extend(rig.after(5_100_000));
    out.extend(rig.deliver(B, append(4, 2, (4, 7), 7, &[])));
    let (to, number, wants) = asked(&out).pop().expect("the leader is asked");
    assert_eq!((to, wants), (B, vec![4]));
    let misfit = Message::RepairReply { ask: number, entries: vec![entry(4, 4)] };
    let mut out = rig.deliver(B, misfit);
    assert_eq!(written(&out), [], "terms do not fall along a log");
    for round in 3..20 {
        out.extend(rig.deliver(B, append(4, round, (4, 7), 7, &[])));
        if !asked(&out).is_empty() {
            break;
        }
        out.extend(rig.after(500_000));
    }
    rig.deliver(B, append(4, 20, (4, 7), 7, &[]));
    let (_, number, _) = asked(&out).pop().expect("and asked again");
    let reply = Message::RepairReply { ask: number, entries: vec![entry(2, 4)] };
    assert_eq!(written(&rig.deliver(B, reply)), [LogId::new(2, 4)]);
    rig.step(Input::Repaired { filled: vec![Index(4)] });
    assert_eq!((rig.core.term_at(Index(4)), rig.core.holes()), (Some(Term(2)), &[][..]));
}

#[test]
fn appends_over_an_unknown_entry_cut_nothing_that_matches_behind_it() {
    let mut rig = damaged(&[unknown(4)]);
    // The probe asks about the unknown entry itself: it can neither be confirmed nor denied.
    let out = rig.deliver(B, append(4, 1, (2, 4), 3, &[]));
    assert_eq!(conflicts(&out)[0].last, Index(3));
    let mut out = rig.deliver(B, append(4, 2, (2, 3), 3, &[(2, 4)]));
    assert!(persist(&out).is_none(), "{out:?}");
    out.extend(rig.deliver(B, append(4, 3, (2, 3), 7, &LOG[3..])));
    assert!(persist(&out).is_none(), "{out:?}");
    assert_eq!((rig.core.last(), rig.core.commit()), (LogId::new(4, 7), Index(7)));
}

#[test]
fn a_conflict_behind_an_unknown_entry_replaces_that_entry_too() {
    let mut rig = damaged(&[unknown(4)]);
    let out = rig.deliver(B, append(6, 1, (2, 3), 3, &[(2, 4), (6, 5)]));
    let write = persist(&out).expect("a conflict");
    assert_eq!(write.truncate_from, Some(Index(4)), "no log ends with an unknown entry");
    assert_eq!(write.append.first(), Some(LogId::new(2, 4)));
    assert!(rig.core.holes().is_empty());
}

#[test]
fn the_commit_index_stops_short_of_an_unknown_entry() {
    let mut rig = damaged(&[unknown(4)]);
    rig.deliver(B, append(4, 1, (4, 7), 4, &[]));
    assert_eq!(rig.core.commit(), Index(3));
    rig.deliver(B, append(4, 2, (4, 7), 5, &[]));
    assert_eq!(rig.core.commit(), Index(5));
}

#[test]
fn a_leader_that_cannot_read_its_own_entry_hands_over() {
    let mut rig = Rig::leader(3, 5, &LOG[..4]);
    rig.deliver(B, ack(5, 1, (5, 5)));
    assert_eq!(rig.core.commit(), Index(5));
    let out = rig.step(Input::Damaged { holes: vec![known(2, 3)] });
    assert!(matches!(sent_to(&out, B)[0], Message::TimeoutNow { .. }), "{out:?}");
    let why = StepDown::Damaged;
    assert!(events(&out).contains(&Event::SteppedDown { term: Term(5), why }));
    assert_eq!(rig.core.role(), RoleKind::Follower);
    assert_eq!(asked(&out).len(), 1, "and asks at once");
}

#[test]
fn damage_to_an_entry_in_memory_is_written_again_from_there() {
    let mut rig = Rig::follower(3, 4, &LOG);
    rig.deliver(B, append(4, 1, (4, 7), 7, &[(4, 8), (4, 9)]));
    rig.sync();
    let out = rig.step(Input::Damaged { holes: vec![unknown(8)] });
    assert_eq!(written(&out), [LogId::new(4, 8)]);
    assert_eq!(rig.core.durable().index, Index(7));
    rig.step(Input::Repaired { filled: vec![Index(8)] });
    assert_eq!(rig.core.durable().index, Index(9));
}

#[test]
fn a_lost_end_of_the_log_stops_the_member() {
    let mut rig = Rig::follower(3, 4, &LOG);
    let out = rig.step(Input::Damaged { holes: vec![unknown(7)] });
    assert!(matches!(out.last(), Some(Effect::Stop(StopReason::NeedsOperator(_)))), "{out:?}");
}

/// R15, R45: a repair that waited behind a write without space is gone with it, and is asked for again.
#[test]
fn a_repair_that_found_no_space_is_asked_for_again() {
    let mut rig = damaged(&[known(3, 5)]);
    let (to, ask, _) = next_request(&mut rig, &[]);
    let reply = Message::RepairReply { ask, entries: vec![entry(3, 5)] };
    assert_eq!(written(&rig.deliver(to, reply)), [LogId::new(3, 5)]);
    let log = Box::new(recovered(in_term(4), &voters(3), &LOG));
    let out = rig.step(Input::NoSpace { log });
    let (_, _, wants) = next_request(&mut rig, &out);
    assert_eq!(wants, [5]);
}

#[test]
fn requests_go_round_and_slow_down() {
    let mut rig = damaged(&[known(3, 5)]);
    let (mut whom, mut times) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        whom.push(next_request(&mut rig, &[]).0);
        times.push(rig.now);
    }
    assert!(whom.windows(2).all(|pair| pair[0] != pair[1]), "{whom:?}");
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[0] < 1_000_000 && pauses[pauses.len() - 1] <= 5_300_000, "{pauses:?}");
    assert!(pauses.iter().any(|pause| *pause >= 5_000_000), "{pauses:?}");
}

#[test]
fn a_peer_that_lost_what_the_leader_compacted_is_offered_a_snapshot() {
    let mut rig = Rig::leader(3, 5, &LOG[..4]);
    rig.deliver(B, ack(5, 1, (5, 5)));
    rig.deliver(C, ack(5, 1, (5, 5)));
    let meta = SnapshotMeta {
        last: LogId::new(2, 4),
        membership: voters(3),
        membership_index: Index(1),
        ..SnapshotMeta::default()
    };
    rig.step(Input::Snapshotted { meta });
    rig.step(Input::Compacted { first: Index(4) });
    let ship =
        |out: &[Effect]| out.iter().any(|e| matches!(e, Effect::Ship { to, .. } if *to == C));
    let held = rig.deliver(C, Message::Repair { ask: 1, wants: vec![known(2, 4)] });
    assert!(!ship(&held), "it still has that entry");
    let out = rig.deliver(C, Message::Repair { ask: 2, wants: vec![known(1, 2)] });
    assert!(ship(&out), "{out:?}");
}

#[test]
fn a_snapshot_below_the_commit_index_is_taken_if_it_covers_a_hole() {
    let meta = |term, index| SnapshotMeta {
        last: LogId::new(term, index),
        membership: voters(3),
        membership_index: Index(1),
        bytes: 9,
        ..SnapshotMeta::default()
    };
    let offer = |meta| Message::SnapshotOffer { term: Term(4), transfer: TransferId(1), meta };
    let expects = |out: &[Effect]| out.iter().any(|e| matches!(e, Effect::Expect { .. }));
    let mut rig = damaged(&[unknown(5)]);
    rig.deliver(B, append(4, 1, (4, 7), 7, &[]));
    assert!(!expects(&rig.deliver(B, offer(meta(2, 4)))), "it does not reach the hole");
    assert!(expects(&rig.deliver(B, offer(meta(3, 5)))));
    let out = rig.step(Input::SnapshotReceived { meta: meta(3, 5) });
    let last = LogId::new(4, 7);
    assert!(
        out.iter().any(|e| matches!(e, Effect::Reset { last: l, .. } if *l == last)),
        "{out:?}"
    );
    assert_eq!((rig.core.holes(), rig.core.commit()), (&[][..], Index(7)));
    // Until the base is durable the damage still is what lies on disk.
    assert_eq!(acks(&rig.deliver(B, append(4, 2, (4, 7), 7, &[]))), [(2, 4)]);
    assert_eq!(rig.core.durable(), LogId::new(2, 4));
    rig.sync();
    assert_eq!(acks(&rig.deliver(B, append(4, 3, (4, 7), 7, &[]))), [(4, 7)]);
}

#[test]
fn a_held_member_answers_nobody_and_stands_nowhere() {
    // The term is among what it cannot prove.
    let base = recovered(in_term(0), &voters(3), &LOG);
    let held = Some("its hard state cannot be proved".to_owned());
    let mut rig = Rig::with(CoreConfig::new(ME), Recovered { held, ..base });
    assert_eq!(rig.core.next_deadline(), None);
    let mut out = rig.deliver(B, ask(9, false, (9, 9), false));
    out.extend(rig.deliver(B, append(9, 1, (4, 7), 7, &[(9, 8)])));
    out.extend(rig.after(10_000_000));
    assert!(sent(&out).is_empty() && persist(&out).is_none(), "{out:?}");
    let out = rig.propose(1..2);
    let why = Refusal::NotLeader { hint: None };
    assert!(out.contains(&Effect::Refused { ticket: Ticket(1), why }));
}

#[test]
fn the_reopened_log_says_anew_what_is_damaged() {
    let mut rig = damaged(&[known(3, 5)]);
    let fault = holdfast_consensus::fault::LogFault::Poisoned { detail: "test".into() };
    rig.step(Input::PersistFailed { at: Seq(1), fault });
    let holes = vec![known(2, 3), Hole { index: Index(9), known: Some(Identity::default()) }];
    rig.step(Input::Reopened { last: LogId::new(4, 7), hard: in_term(4), holes });
    assert_eq!(rig.core.holes(), [known(2, 3)], "what memory writes again is no hole");
}
