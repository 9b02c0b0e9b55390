//! Snapshots: Raft section 7, R25.

use crate::rig::*;
use holdfast_consensus::io::{CoreConfig, Effect, Input};
use holdfast_consensus::message::{Conflict, Message, TransferState};
use holdfast_consensus::types::*;

/// What a member with an empty log says of an append behind `prev`.
fn empty_behind(prev: LogId) -> Conflict {
    Conflict { prev, last: Index(0), term: None, first_of_term: Index(1) }
}

fn meta(term: u64, index: u64, membership: Membership) -> SnapshotMeta {
    SnapshotMeta {
        last: LogId::new(term, index),
        membership,
        membership_index: Index(1),
        bytes: 10,
        ..SnapshotMeta::default()
    }
}

fn offer(term: u64, transfer: u64, meta: SnapshotMeta) -> Message {
    Message::SnapshotOffer { term: Term(term), transfer: TransferId(transfer), meta }
}

fn ships(out: &[Effect]) -> Vec<(MemberId, u64)> {
    let mine = |effect: &Effect| match effect {
        Effect::Ship { to, meta, .. } => Some((*to, meta.last.index.0)),
        _ => None,
    };
    out.iter().filter_map(mine).collect()
}

fn resets(out: &[Effect]) -> Vec<LogId> {
    let mine = |effect: &Effect| match effect {
        Effect::Reset { last, .. } => Some(*last),
        _ => None,
    };
    out.iter().filter_map(mine).collect()
}

#[test]
fn an_offer_that_is_not_needed_is_answered_done() {
    let mut rig = Rig::follower(3, 4, &[(1, 1), (1, 2), (4, 3)]);
    rig.deliver(B, append(4, 1, (4, 3), 2, &[]));
    let out = rig.deliver(B, offer(4, 1, meta(1, 2, voters(3))));
    let (term, transfer) = (Term(4), TransferId(1));
    let done = Message::SnapshotAck { term, transfer, next: 10, state: TransferState::Done };
    assert_eq!(sent(&out), [(B, done)]);
    let out = rig.deliver(C, offer(3, 9, meta(1, 2, voters(3))));
    let failed = sent_to(&out, C);
    assert!(
        matches!(failed[..], [Message::SnapshotAck { state: TransferState::Failed, .. }]),
        "{failed:?}"
    );
}

#[test]
fn a_needed_offer_is_expected_and_an_older_one_is_not() {
    let mut rig = Rig::follower(3, 4, &[(1, 1)]);
    let expects =
        |out: &[Effect]| out.iter().filter(|e| matches!(e, Effect::Expect { .. })).count();
    let wanted = meta(4, 30, voters(3));
    assert_eq!(expects(&rig.deliver(B, offer(4, 5, wanted.clone()))), 1);
    assert_eq!(expects(&rig.deliver(B, offer(4, 5, wanted.clone()))), 1, "a repeated one");
    assert_eq!(expects(&rig.deliver(B, offer(4, 4, wanted.clone()))), 0, "an overtaken one");
    assert_eq!(expects(&rig.deliver(C, offer(6, 1, wanted))), 1, "a newer leader's");
}

#[test]
fn a_received_snapshot_becomes_the_base_and_promises_wait_for_it() {
    let mut rig = Rig::follower(3, 4, &[(1, 1), (1, 2)]);
    rig.deliver(B, append(4, 1, (1, 2), 0, &[]));
    rig.deliver(B, offer(4, 1, meta(3, 30, voters(5))));
    let out = rig.step(Input::SnapshotReceived { meta: meta(3, 30, voters(5)) });
    assert_eq!(resets(&out), [LogId::new(3, 30)]);
    assert_eq!(commits(&out), [30]);
    assert_eq!((rig.core.first(), rig.core.last()), (Index(31), LogId::new(3, 30)));
    assert_eq!(rig.core.membership(), (Index(1), &voters(5)));
    assert_eq!(rig.core.contact(), None, "what the leader said before the install is void");
    let out = rig.deliver(B, append(4, 2, (3, 30), 30, &[]));
    assert!(acks(&out).iter().all(|(_, index)| *index < 30), "{out:?}");
    assert_eq!(acks(&rig.sync()), [(3, 30)]);
    assert_eq!(rig.core.durable(), LogId::new(3, 30));
}

/// B46: a suffix that agrees with the snapshot is kept.
#[test]
fn a_snapshot_behind_the_log_keeps_the_matching_suffix() {
    let log = [(1, 1), (1, 2), (3, 3), (3, 4)];
    let mut rig = Rig::follower(3, 4, &log);
    let out = rig.step(Input::SnapshotReceived { meta: meta(3, 3, voters(3)) });
    assert_eq!(resets(&out), [LogId::new(3, 4)]);
    assert_eq!((rig.core.last(), rig.core.durable()), (LogId::new(3, 4), LogId::new(3, 4)));
    assert!(!out.iter().any(|e| matches!(e, Effect::Lost { .. })));

    let mut rig = Rig::follower(3, 4, &log);
    let out = rig.step(Input::SnapshotReceived { meta: meta(2, 3, voters(3)) });
    assert_eq!(resets(&out), [LogId::new(2, 3)]);
    assert!(out.contains(&Effect::Lost { from: Index(1) }));
    assert!(rig.core.durable().index < Index(3), "what was cut is no longer vouched for");
}

#[test]
fn a_snapshot_that_was_overtaken_is_ignored() {
    let mut rig = Rig::follower(3, 4, &[(1, 1), (1, 2), (4, 3)]);
    rig.deliver(B, append(4, 1, (4, 3), 3, &[]));
    let out = rig.step(Input::SnapshotReceived { meta: meta(1, 2, voters(3)) });
    assert_eq!((resets(&out), rig.core.first()), (vec![], Index(1)));
}

/// B49: a stale uncommitted configuration that the snapshot covers is gone.
#[test]
fn a_covered_configuration_does_not_survive_the_snapshot() {
    let mut log = recovered(in_term(4), &voters(3), &[(1, 1), (4, 2)]);
    log.memberships.push((Index(2), voters(5)));
    let mut rig = Rig::with(CoreConfig::new(ME), log);
    assert_eq!(rig.core.membership().0, Index(2));
    rig.step(Input::SnapshotReceived { meta: meta(5, 30, voters(3)) });
    assert_eq!(rig.core.membership(), (Index(1), &voters(3)));
}

/// The hard state may not have been durable when a snapshot of a newer term was: no member is ever
/// in an older term than its log.
#[test]
fn a_log_of_a_newer_term_raises_the_term_durably() {
    let mut rig = Rig::with(CoreConfig::new(ME), recovered(in_term(2), &voters(3), &[(5, 1)]));
    let out = rig.step(Input::Wake);
    assert_eq!(persist(&out).and_then(|p| p.hard), Some(in_term(5)));
    assert_eq!(acks(&rig.deliver(B, append(5, 1, (5, 1), 0, &[]))), []);
    assert_eq!(acks(&rig.sync()), [(5, 1)]);

    let mut rig = Rig::follower(3, 4, &[(1, 1)]);
    let out = rig.step(Input::SnapshotReceived { meta: meta(5, 30, voters(3)) });
    let write = persist(&out).expect("the term is written");
    assert_eq!(write.hard, Some(in_term(5)));
    // The term goes out before the base, and each is promised by its own number.
    assert_eq!(rig.writes.first(), Some(&write.seq));
    assert_eq!(rig.writes.len(), 2);
}

/// B58: with nothing left in its log, a leader still brings a follower up.
#[test]
fn a_fully_compacted_leader_offers_its_snapshot() {
    let base = LogId::new(3, 50);
    let log = Recovered {
        hard: in_term(4),
        first: Index(51),
        base,
        last: base,
        memberships: vec![(Index(1), voters(3))],
        snapshot: Some(meta(3, 50, voters(3))),
        ..Recovered::default()
    };
    let mut rig = Rig::with(CoreConfig::new(ME), log);
    assert_eq!(rig.core.commit(), Index(50));
    let out = rig.elect(3, 5);
    let round = appends(&out, B)[0].0;
    rig.sync();
    let out = rig.deliver(B, reject(5, round, empty_behind(base)));
    assert_eq!(ships(&out), [(B, 50)]);
    assert_eq!(rig.core.peers(rig.now)[0].state, "snapshot");
    assert_eq!(ships(&rig.after(50_000)), [], "one transfer a peer");
    let out = rig.step(Input::TransferEnded { transfer: TransferId(1), ok: true });
    assert_eq!(appends(&out, B).last().map(|a| (a.1, a.2)), Some((50, 1)));
}

/// B58: the leader's own first entry, too, may be compacted: then its log is empty.
#[test]
fn a_leader_compacted_to_its_last_entry_offers_its_snapshot() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    rig.deliver(C, ack(5, 2, (5, 2)));
    assert_eq!(rig.core.commit(), Index(2));
    rig.step(Input::Snapshotted { meta: meta(5, 2, voters(3)) });
    rig.step(Input::Compacted { first: Index(3) });
    assert_eq!(ships(&rig.deliver(B, reject(5, 1, empty_behind(LogId::new(4, 1))))), [(B, 2)]);
}

#[test]
fn a_failed_transfer_is_offered_again_later_and_a_needless_one_stops() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    rig.deliver(C, ack(5, 2, (5, 2)));
    rig.step(Input::Snapshotted { meta: meta(5, 2, voters(3)) });
    rig.step(Input::Compacted { first: Index(3) });
    let out = rig.deliver(B, reject(5, 1, empty_behind(LogId::new(4, 1))));
    assert_eq!(ships(&out), [(B, 2)]);
    let transfer = TransferId(1);
    assert_eq!(ships(&rig.step(Input::TransferEnded { transfer, ok: false })), []);
    assert_eq!(ships(&rig.after(50_000)), [(B, 2)]);
    let out = rig.deliver(B, ack(5, 3, (5, 2)));
    assert!(out.contains(&Effect::StopShip { transfer: TransferId(2) }), "{out:?}");
}

#[test]
fn a_deposed_leader_stops_its_transfers() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    rig.deliver(C, ack(5, 2, (5, 2)));
    rig.step(Input::Snapshotted { meta: meta(5, 2, voters(3)) });
    rig.step(Input::Compacted { first: Index(3) });
    rig.deliver(B, reject(5, 1, empty_behind(LogId::new(4, 1))));
    let out = rig.deliver(C, append(6, 1, (5, 2), 2, &[]));
    assert!(out.contains(&Effect::StopShip { transfer: TransferId(1) }), "{out:?}");
}
