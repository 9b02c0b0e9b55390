//! Promises and the one durable watermark; failing and reopened logs.

use crate::rig::*;
use holdfast_consensus::Entries;
use holdfast_consensus::event::{Cut, Event, RoleKind, StepDown};
use holdfast_consensus::fault::{LogFault, StopReason};
use holdfast_consensus::io::{CoreConfig, Effect, Input, Persist};
use holdfast_consensus::message::Message;
use holdfast_consensus::types::*;

fn fault() -> LogFault {
    LogFault::Poisoned { detail: "injected".into() }
}

/// B25: neither a retransmission nor a heartbeat reports what is only in memory.
#[test]
fn entries_in_memory_are_not_acknowledged_on_any_path() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    let bring = append(4, 1, (4, 1), 0, &[(4, 2), (4, 3)]);
    assert_eq!(acks(&rig.deliver(B, bring.clone())), []);
    assert_eq!(acks(&rig.deliver(B, bring)), [], "a retransmission waits as well");
    assert_eq!(acks(&rig.deliver(B, append(4, 2, (4, 3), 0, &[]))), [(4, 1)]);
    assert_eq!(rig.core.durable(), LogId::new(4, 1));
    let out = rig.sync();
    assert_eq!(acks(&out), [(4, 3)], "and is told once when it is durable");
    assert_eq!(rig.core.durable(), LogId::new(4, 3));
}

#[test]
fn each_completed_write_is_acknowledged_as_far_as_it_goes() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    rig.deliver(B, append(4, 1, (4, 1), 0, &[(4, 2)]));
    rig.deliver(B, append(4, 2, (4, 2), 0, &[(4, 3)]));
    let first = rig.writes[0];
    assert_eq!(acks(&rig.sync_through(first)), [(4, 2)]);
    assert_eq!(acks(&rig.sync()), [(4, 3)]);
}

/// The answer to a new term's message says "I am in this term", so it waits for the hard state.
#[test]
fn nothing_is_acknowledged_in_a_term_that_is_not_durable() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    assert_eq!(sent(&rig.deliver(B, append(6, 1, (4, 1), 0, &[]))), []);
    assert_eq!(acks(&rig.sync()), [(4, 1)]);
}

/// B27: a completion is known by its number only; the same entry written twice is two writes.
#[test]
fn a_completed_older_write_confirms_nothing_that_was_cut_meanwhile() {
    let mut rig = Rig::follower(5, 1, &[(1, 1)]);
    rig.deliver(B, append(1, 1, (1, 1), 0, &[(1, 2), (1, 3)]));
    rig.deliver(C, append(2, 1, (1, 1), 0, &[(2, 2)]));
    rig.deliver(B, append(3, 1, (1, 1), 0, &[(1, 2), (1, 3)]));
    let writes = rig.writes.clone();
    assert_eq!(rig.core.durable(), LogId::new(1, 1));
    assert_eq!(acks(&rig.sync_through(writes[0])), []);
    assert_eq!(rig.core.durable(), LogId::new(1, 1), "the first write is about to be undone");
    assert_eq!(acks(&rig.sync_through(writes[1])), []);
    assert_eq!(acks(&rig.sync_through(writes[2])), [(1, 3)]);
}

/// The watermark falls when a truncation is handed out, not when it completes.
#[test]
fn a_truncation_lowers_the_watermark_at_once() {
    let mut rig = Rig::follower(3, 3, &[(1, 1), (1, 2), (1, 3)]);
    let out = rig.deliver(B, append(3, 1, (1, 1), 0, &[(3, 2)]));
    assert_eq!(rig.core.durable(), LogId::new(1, 1));
    assert_eq!(acks(&out), []);
    rig.sync();
    assert_eq!(rig.core.durable(), LogId::new(3, 2));
}

#[test]
fn promises_of_an_older_term_are_void() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    rig.deliver(B, append(4, 1, (4, 1), 0, &[(4, 2)]));
    rig.deliver(C, ask(5, false, (4, 2), true));
    assert_eq!(sent(&rig.sync()), [(C, vote(5, false, 5, true))]);
}

/// B24: the leader counts itself by its own disk.
#[test]
fn a_leader_does_not_count_its_own_entry_before_it_is_durable() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    rig.elect(3, 5);
    assert_eq!(commits(&rig.deliver(B, ack(5, 1, (5, 2)))), [0; 0]);
    assert_eq!(commits(&rig.sync()), [2]);
    // And it may commit without its own disk once the others hold it.
    rig.propose(1..2);
    rig.deliver(B, ack(5, 3, (5, 3)));
    assert_eq!(commits(&rig.deliver(C, ack(5, 4, (5, 3)))), [3]);
    assert_eq!(rig.core.durable(), LogId::new(5, 2));
    assert_eq!(rig.core.cached(Index(3), Index(3)).len(), 1, "the applier gets it from memory");
}

/// B23: after a failed write the leader is gone, and its entries keep their identity.
#[test]
fn a_leader_whose_write_fails_steps_down_and_promises_nothing() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    let at = persist(&rig.propose(1..3)).expect("a write").seq;
    let out = rig.step(Input::PersistFailed { at, fault: fault() });
    let why = StepDown::WriteFailed;
    assert!(events(&out).contains(&Event::SteppedDown { term: Term(5), why }));
    assert_eq!((rig.core.role(), rig.core.last()), (RoleKind::Follower, LogId::new(5, 4)));
    assert_eq!(persist(&rig.after(10_000_000)), None);
    assert_eq!(rig.core.role(), RoleKind::Follower, "it does not stand with a poisoned log");

    let out = rig.step(Input::Reopened {
        last: LogId::new(5, 3),
        hard: rig.core.hard(),
        holes: Vec::new(),
    });
    let write = persist(&out).expect("the tail is written again");
    assert!(write.seq > at);
    assert_eq!(write.truncate_from, Some(Index(3)));
    assert_eq!(
        (write.append.first(), write.append.last()),
        (Some(LogId::new(5, 3)), Some(LogId::new(5, 4)))
    );
    assert_eq!(write.hard, Some(rig.core.hard()));
    rig.sync();
    assert_eq!(rig.core.durable(), LogId::new(5, 4));
}

#[test]
fn a_follower_holds_its_promises_until_the_reopened_log_has_them() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    let at = persist(&rig.deliver(B, append(4, 1, (4, 1), 0, &[(4, 2)]))).expect("a write").seq;
    assert_eq!(sent(&rig.step(Input::PersistFailed { at, fault: fault() })), []);
    assert_eq!(sent(&rig.step(Input::Persisted { through: at })), [], "an old handle's word");
    let out = rig.deliver(B, append(4, 2, (4, 2), 0, &[(4, 3)]));
    assert_eq!((sent(&out), persist(&out)), (vec![], None), "memory is no place to wait");
    rig.deliver(C, ask(7, false, (4, 2), true));
    rig.writes.clear();
    let out =
        rig.step(Input::Reopened { last: LogId::new(4, 1), hard: in_term(4), holes: Vec::new() });
    let write = persist(&out).expect("a write");
    assert_eq!((write.truncate_from, write.append), (None, entries(&[(4, 2)])));
    assert_eq!(write.hard, Some(HardState { term: Term(7), voted_for: Some(C) }));
    assert_eq!(sent(&out), []);
    assert_eq!(sent(&rig.sync()), [(C, vote(7, false, 7, true))]);
}

/// No space: the log is as it is on disk, with these entries.
fn no_space(on_disk: &[(u64, u64)]) -> Input {
    Input::NoSpace { log: Box::new(recovered(in_term(4), &voters(3), on_disk)) }
}

/// R45: entries that find no space stand before no vote. They are given up like those of a process
/// that is killed: what they were to replace is there again, since a cut alone would take back
/// what was acknowledged (R3). The vote is written first, and commands are refused until there is
/// space.
#[test]
fn a_follower_without_space_votes_before_it_writes_entries() {
    let mut rig = Rig::follower(3, 4, &[(4, 1), (4, 2)]);
    rig.deliver(B, append(5, 1, (4, 1), 1, &[(5, 2), (5, 3)]));
    rig.writes.clear();
    let out = rig.step(no_space(&[(4, 1), (4, 2)]));
    assert_eq!((rig.core.last(), rig.core.durable()), (LogId::new(4, 2), LogId::new(4, 2)));
    let cut = Event::Truncated { from: Index(2), last: Index(3), why: Cut::NoSpace };
    assert!(events(&out).contains(&cut), "no leader replaced anything: {out:?}");
    let write = persist(&out).expect("the term is written");
    assert_eq!((write.truncate_from, write.append), (None, entries(&[])));
    assert_eq!(acks(&rig.sync()), [(4, 1)], "what was matched beyond is gone");
    let body = Body::Command(bytes::Bytes::from_static(b"command"));
    let bring = Message::Append {
        term: Term(5),
        round: 2,
        prev: LogId::new(4, 1),
        commit: Index(1),
        commit_own_term: true,
        entries: Entries::new(vec![Entry { body, ..entry(5, 2) }]).expect("one"),
    };
    let out = rig.deliver(B, bring);
    assert_eq!((sent(&out), persist(&out)), (vec![], None), "it waits for space with the leader");
    // An answer to what follows would make the leader send all of it again at once, for ever.
    let out = rig.deliver(B, append(5, 3, (5, 3), 1, &[(5, 4)]));
    assert_eq!(sent(&out), []);
    let out = rig.deliver(B, append(5, 4, (5, 3), 1, &[]));
    assert_eq!(conflicts(&out).len(), 1, "a heartbeat is answered");
    rig.deliver(C, ask(7, false, (5, 3), true));
    assert_eq!(sent(&rig.sync()), [(C, vote(7, false, 7, true))]);
    rig.step(Input::Room { has: true });
    let out = rig.deliver(C, append(7, 3, (4, 1), 1, &[(5, 2), (5, 3)]));
    let write = persist(&out).expect("taken");
    assert_eq!((write.truncate_from, write.append), (Some(Index(2)), entries(&[(5, 2), (5, 3)])));
    assert_eq!(acks(&rig.sync()), [(5, 3)]);
}

/// R3, R45: what takes the place of other entries and is committed stays, and its truncation with it.
#[test]
fn a_truncation_without_space_waits_with_what_replaces_the_entries() {
    let mut rig = Rig::follower(3, 4, &[(4, 1), (4, 2), (4, 3)]);
    rig.deliver(B, append(5, 1, (4, 1), 2, &[(5, 2), (5, 3)]));
    rig.writes.clear();
    let out = rig.step(no_space(&[(4, 1), (4, 2), (4, 3)]));
    assert_eq!((rig.core.last(), rig.core.durable()), (LogId::new(5, 2), LogId::new(4, 1)));
    let writes = persists(&out);
    let [term, entry] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!((term.truncate_from, &term.append), (None, &entries(&[])));
    assert_eq!((entry.truncate_from, &entry.append), (Some(Index(2)), &entries(&[(5, 2)])));
}

fn persists(out: &[Effect]) -> Vec<Persist> {
    let persist = |effect: &Effect| match effect {
        Effect::Persist(persist) => Some(persist.clone()),
        _ => None,
    };
    out.iter().filter_map(persist).collect()
}

/// R45: what is known to be committed is kept in memory, and its write waits behind the vote.
#[test]
fn committed_entries_without_space_wait_behind_the_vote() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    rig.deliver(B, append(4, 1, (4, 1), 2, &[(4, 2), (4, 3)]));
    rig.deliver(C, ask(7, false, (4, 3), true));
    rig.writes.clear();
    let out = rig.step(no_space(&[(4, 1)]));
    assert_eq!((rig.core.commit(), rig.core.last()), (Index(2), LogId::new(4, 2)));
    let writes = persists(&out);
    let [vote_first, entry] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(vote_first.hard, Some(HardState { term: Term(7), voted_for: Some(C) }));
    assert!(vote_first.append.is_empty());
    assert_eq!((&entry.append, entry.hard), (&entries(&[(4, 2)]), None));
    let out = rig.step(Input::Persisted { through: vote_first.seq });
    assert_eq!(sent(&out), [(C, vote(7, false, 7, true))]);
    assert_eq!(rig.core.durable(), LogId::new(4, 1));
}

/// R45, B23: a leader that gives entries up may not go on: others may hold and commit them.
#[test]
fn a_leader_without_space_for_its_entries_steps_down() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    rig.propose(1..3);
    let out = rig.step(no_space(&[(4, 1), (5, 2)]));
    let why = StepDown::NoSpace;
    assert!(events(&out).contains(&Event::SteppedDown { term: Term(5), why }));
    assert_eq!((rig.core.role(), rig.core.last()), (RoleKind::Follower, rig.core.durable()));
    assert!(out.iter().any(|e| matches!(e, Effect::Lost { .. })), "its calls hear of it");
}

#[test]
fn a_reopened_log_that_forgot_durable_entries_stops_the_replica() {
    for (last, hard) in [(LogId::new(4, 1), in_term(4)), (LogId::new(4, 2), in_term(3))] {
        let mut rig = Rig::follower(3, 4, &[(4, 1), (4, 2)]);
        rig.step(Input::PersistFailed { at: Seq(1), fault: fault() });
        let out = rig.step(Input::Reopened { last, hard, holes: Vec::new() });
        assert!(matches!(out.last(), Some(Effect::Stop(StopReason::NeedsOperator(_)))), "{out:?}");
    }
}

/// How long this leader waits for a write before it steps down, in microseconds, if its writes
/// took so long before, one stage after the other.
fn patience(stages: &[u64]) -> u64 {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    rig.deliver(B, ack(5, 1, (5, 2)));
    let quorum = |rig: &mut Rig| {
        rig.deliver(B, ack(5, 1, (5, 2)));
        rig.deliver(C, ack(5, 1, (5, 2)));
    };
    for (n, usual) in (0..).zip(stages.iter().flat_map(|usual| [*usual; 200])) {
        rig.propose(n..n + 1);
        for _ in 0..usual / 10_000 {
            rig.after(10_000);
            quorum(&mut rig);
        }
        rig.sync();
    }
    rig.propose(90_000..90_001);
    let begun = rig.now;
    while rig.core.role() == RoleKind::Leader {
        rig.after(10_000);
        quorum(&mut rig);
    }
    rig.now - begun
}

/// R41: a slow disk is not a stalled one; and no disk makes a leader wait beyond the bound.
#[test]
fn a_leader_waits_for_a_write_by_what_its_disk_usually_takes() {
    let config = CoreConfig::new(ME);
    assert_eq!(patience(&[0]), config.election_max, "a fast disk: one election timeout");
    assert_eq!(patience(&[150_000]), 600_000, "a slow one: four times what it takes");
    assert_eq!(
        patience(&[250_000, 900_000]),
        config.write_stall,
        "and never longer than the bound"
    );
}

/// B42: heartbeats do not need the disk, so a watch over the oldest write has to.
#[test]
fn a_leader_with_a_stalled_disk_steps_down() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    rig.deliver(B, ack(5, 1, (5, 2)));
    rig.propose(1..2);
    let mut out = Vec::new();
    for _ in 0..80 {
        out.extend(rig.after(25_000));
        rig.deliver(B, ack(5, 1, (5, 2)));
        rig.deliver(C, ack(5, 1, (5, 2)));
    }
    let why = StepDown::WriteStalled;
    assert!(events(&out).contains(&Event::SteppedDown { term: Term(5), why }));
    assert_eq!(rig.core.role(), RoleKind::Follower);
}
