//! What a replica does in particular situations, in the small world.

mod world;

use bytes::Bytes;
use holdfast_consensus::fault::{Refusal, StopReason};
use holdfast_consensus::job::Call;
use holdfast_consensus::memory::{MemoryLogDisk, MemoryMachineDisk};
use holdfast_consensus::message::Outcome;
use holdfast_consensus::replica::{Replica, ReplicaConfig};
use holdfast_consensus::traits::{LogStore, SnapshotSink, SnapshotSource, SnapshotStore};
use holdfast_consensus::types::{ClusterId, Index, LogId, MemberId};
use world::{MS, SECOND, World, config, pass, write};

fn cluster(size: u64) -> World {
    let mut world = World::new(11, size, config(MemberId(1)));
    world.run_until(2 * SECOND);
    assert!(world.leader().is_some(), "a leader is elected");
    world
}

fn other_than(node: usize) -> usize {
    (node + 1) % 3
}

#[test]
fn an_idle_cluster_goes_quiet() {
    let mut world = cluster(3);
    write(&mut world, 0, 30);
    pass(&mut world, 10 * SECOND);
    let jobs = world.tally.jobs;
    pass(&mut world, 60 * SECOND);
    assert_eq!(world.tally.jobs, jobs, "nothing is written or read without news");
    world.check_converged();
}

#[test]
fn a_write_through_any_node_is_read_from_that_node() {
    let mut world = cluster(3);
    for node in 0..3 {
        write(&mut world, node, 20);
    }
    assert_eq!(world.acked.len(), 60, "every write is acknowledged: {:?}", world.tally);
    assert_eq!(world.tally.get("unknown") + world.tally.get("not-committed"), 0);
    world.check_converged();
}

#[test]
fn a_single_member_serves_writes_and_barriers() {
    let mut world = cluster(1);
    write(&mut world, 0, 100);
    world.ask(0, None, SECOND);
    pass(&mut world, SECOND);
    assert_eq!(world.acked.len(), 100);
    assert_eq!(world.tally.get("barrier"), 1);
    assert!(world.tally.get("compacted") > 0, "a single member compacts: {:?}", world.tally);
    world.crash(0);
    world.start(0);
    pass(&mut world, 5 * SECOND);
    world.check_converged();
}

#[test]
fn a_follower_that_is_far_behind_installs_a_snapshot() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    let follower = other_than(leader);
    world.crash(follower);
    write(&mut world, leader, 200);
    assert!(world.status(leader).first > Index(100), "the leader has compacted");
    world.start(follower);
    pass(&mut world, 5 * SECOND);
    assert!(world.tally.get("installed") > 0, "{:?}", world.tally);
    world.check_converged();
    // It is a full member again: forwards, reads, and survives a restart.
    write(&mut world, follower, 10);
    world.crash(follower);
    world.start(follower);
    pass(&mut world, 5 * SECOND);
    world.check_converged();
}

#[test]
fn a_transfer_that_loses_messages_still_ends() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    let follower = other_than(leader);
    world.crash(follower);
    write(&mut world, leader, 200);
    world.faults.loss = 300;
    world.faults.repeat = 200;
    world.start(follower);
    pass(&mut world, 40 * SECOND);
    world.heal();
    pass(&mut world, 10 * SECOND);
    assert!(world.tally.get("installed") > 0, "{:?}", world.tally);
    world.check_converged();
}

#[test]
fn a_repeated_forward_enters_the_log_once() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    let follower = other_than(leader);
    write(&mut world, follower, 1);
    let before = world.status(leader).commit;
    world.faults.repeat = 1_000;
    write(&mut world, follower, 20);
    assert_eq!(world.leader(), Some(leader), "an entry of an election would be counted");
    assert_eq!(world.status(leader).commit.0 - before.0, 20, "{:?}", world.tally);
}

#[test]
fn leadership_moves_on_request() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    let target = other_than(leader);
    world.call(leader, Call::Transfer { to: MemberId(target as u64 + 1) });
    pass(&mut world, SECOND);
    assert_eq!(world.leader(), Some(target), "the target leads");
    assert!(matches!(world.answered, Some(Outcome::Ready { .. })), "{:?}", world.answered);
    world.call(leader, Call::Transfer { to: MemberId(leader as u64 + 1) });
    let refused =
        Outcome::NotCommitted(Refusal::NotLeader { hint: Some(MemberId(target as u64 + 1)) });
    assert_eq!(world.answered, Some(refused), "only the leader hands over");
}

#[test]
fn a_transfer_to_no_voter_is_refused_at_once() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    world.call(leader, Call::Transfer { to: MemberId(99) });
    assert_eq!(world.answered, Some(Outcome::NotCommitted(Refusal::NotVoter)));
    assert_eq!(world.leader(), Some(leader));
}

#[test]
fn a_barrier_sees_every_acknowledged_write_at_any_node() {
    let mut world = cluster(3);
    for node in 0..3 {
        write(&mut world, other_than(node), 5);
        world.ask(node, None, SECOND);
        pass(&mut world, SECOND);
    }
    assert_eq!(world.tally.get("barrier"), 3, "{:?}", world.tally);
}

#[test]
fn without_a_quorum_a_placed_write_is_unknown_and_a_held_one_never_entered() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    for node in (0..3).filter(|node| *node != leader) {
        world.crash(node);
    }
    world.ask(leader, Some(1), 100 * MS);
    pass(&mut world, 200 * MS);
    assert_eq!(world.answered, Some(Outcome::Unknown(Refusal::Deadline)));
    // By now the leader has stepped down: nobody takes the next one.
    pass(&mut world, 2 * SECOND);
    world.ask(leader, Some(2), 100 * MS);
    pass(&mut world, 200 * MS);
    assert_eq!(world.answered, Some(Outcome::NotCommitted(Refusal::Deadline)));
    let why = world.status(leader).not_ready.expect("not ready");
    assert!(why.contains("waiting for n"), "the sentence names who must come back: {why}");
    world.heal();
    pass(&mut world, 5 * SECOND);
    world.check_converged();
}

#[test]
fn calls_beyond_the_budget_are_answered_busy_at_once() {
    let small = ReplicaConfig { waiting_bytes: 2_000, ..config(MemberId(1)) };
    let mut world = World::new(3, 3, small);
    world.run_until(2 * SECOND);
    let leader = world.leader().expect("a leader");
    for node in (0..3).filter(|node| *node != leader) {
        world.crash(node);
    }
    for value in 0..20 {
        world.ask(leader, Some(value), 50 * MS);
    }
    assert_eq!(world.answered, Some(Outcome::NotCommitted(Refusal::Busy)));
    assert!(world.asked.len() < 10, "{} calls wait", world.asked.len());
    pass(&mut world, 100 * MS);
    world.ask(leader, Some(50), 50 * MS);
    assert_eq!(world.asked.len(), 1, "the budget is given back");
}

#[test]
fn a_command_that_is_too_large_never_leaves() {
    let mut world = cluster(3);
    let command = Bytes::from(vec![0; (1 << 20) + 1]);
    world.call(0, Call::Propose { command });
    assert_eq!(world.answered, Some(Outcome::NotCommitted(Refusal::TooLarge)));
}

#[test]
fn a_store_that_fails_for_a_while_is_fed_again() {
    let mut world = cluster(3);
    write(&mut world, 0, 30);
    for node in 0..3 {
        world.members[node].machine.fail_writes(5);
    }
    write(&mut world, 1, 30);
    pass(&mut world, 10 * SECOND);
    assert!(world.tally.get("store-reopened") >= 3, "{:?}", world.tally);
    world.check_converged();
}

#[test]
fn a_store_that_never_recovers_stops_its_replica_after_thirty_seconds() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    let follower = other_than(leader);
    world.members[follower].machine.fail_writes(u32::MAX);
    write(&mut world, leader, 5);
    pass(&mut world, 25 * SECOND);
    assert_eq!(world.members[follower].stopped, None, "it is tried again for 30 s");
    let why = world.status(follower).not_ready.expect("not ready");
    assert!(why.contains("store failed"), "{why}");
    pass(&mut world, 15 * SECOND);
    let reason = world.members[follower].stopped.clone();
    assert!(matches!(reason, Some(StopReason::StoreRefused { .. })), "{reason:?}");
    write(&mut world, leader, 5);
    assert_eq!(world.acked.len(), 10, "the others go on");
}

#[test]
fn a_store_without_space_waits_for_as_long_as_it_takes_and_says_what_helps() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    let follower = other_than(leader);
    world.members[follower].machine.set_full(true);
    write(&mut world, leader, 5);
    pass(&mut world, 60 * SECOND);
    assert_eq!(world.members[follower].stopped, None, "a full disk stops nobody (R45)");
    let status = world.status(follower);
    let why = status.not_ready.expect("it cannot catch up");
    assert!(why.contains("waits for space") && why.contains("free some space"), "{why}");
    assert!(status.no_space.is_some(), "the alarm stands as well");
    world.members[follower].machine.set_full(false);
    pass(&mut world, 20 * SECOND);
    assert_eq!(world.status(follower).not_ready, None, "it goes on by itself");
    world.check_converged();
}

#[test]
fn an_unknown_entry_type_stops_a_replica_and_answers_unknown() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    world.call(leader, Call::Propose { command: Bytes::from_static(&[0xff, 0x7f, 0]) });
    pass(&mut world, SECOND);
    assert_eq!(world.answered, Some(Outcome::Unknown(Refusal::Stopping)));
    // Whoever learns that it is committed stops; without them the last one may never learn it.
    let stopped: Vec<_> = world.members.iter().filter_map(|m| m.stopped.clone()).collect();
    assert!(world.members[leader].stopped.is_some() && stopped.len() >= 2, "{stopped:?}");
    for reason in stopped {
        let unknown = matches!(reason, StopReason::UnknownEntryType { kind: 0x7fff, .. });
        assert!(unknown, "{reason:?}");
    }
    world.call(leader, Call::Barrier);
    assert_eq!(world.answered, Some(Outcome::NotCommitted(Refusal::Stopping)));
}

#[test]
fn a_log_that_keeps_failing_is_reopened_a_bounded_number_of_times() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    let follower = other_than(leader);
    world.members[follower].log.fail_persists(u32::MAX);
    for _ in 0..30 {
        write(&mut world, leader, 3);
        pass(&mut world, SECOND);
    }
    let reason = world.members[follower].stopped.clone();
    assert!(matches!(reason, Some(StopReason::Log(_))), "{reason:?}");
    assert_eq!(world.tally.get("log-reopened"), 10, "{:?}", world.tally);
    assert_eq!(world.acked.len(), 90, "the others go on");
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    let mut world = cluster(3);
    for node in 0..3 {
        world.members[node].log.set_full(true);
    }
    let leader = world.leader().expect("a leader");
    write(&mut world, leader, 60);
    assert!(world.tally.get("not-committed") + world.tally.get("unknown") > 0, "{:?}", world.tally);
    // However long it lasts, and however much is tried: nobody stops, and nothing was a fault
    // of a log (R45, R46).
    for _ in 0..60 {
        write(&mut world, leader, 3);
        pass(&mut world, 10 * SECOND);
    }
    assert!(world.members.iter().all(|m| m.stopped.is_none()), "a full disk stops nobody");
    assert_eq!(world.tally.get("log-reopened"), 0, "{:?}", world.tally);
    for node in 0..3 {
        assert!(world.status(node).no_space.is_some(), "n{node} says so");
    }
    world.heal();
    pass(&mut world, 20 * SECOND);
    for node in 0..3 {
        assert_eq!(world.status(node).no_space, None, "the alarm of n{node} ends by itself");
    }
    write(&mut world, 0, 10);
    pass(&mut world, 5 * SECOND);
    world.check_converged();
}

#[test]
fn a_store_ahead_of_its_log_is_refused() {
    let mut world = cluster(3);
    write(&mut world, 0, 20);
    pass(&mut world, 5 * SECOND);
    world.crash(1);
    let mut log = MemoryLogDisk::new().open();
    let mut machine = world.members[1].machine.open();
    let opened = Replica::open(config(MemberId(2)), 1, &mut log, &mut machine, 0);
    let Err(StopReason::NeedsOperator(text)) = opened.map(|_| ()) else {
        panic!("a lost log is evidence");
    };
    assert!(text.contains("the store has applied"), "{text}");
}

#[test]
fn a_log_that_begins_behind_the_store_needs_a_snapshot() {
    let mut world = cluster(3);
    write(&mut world, 0, 200);
    pass(&mut world, 5 * SECOND);
    world.crash(0);
    let mut machine = MemoryMachineDisk::new(ClusterId(7), 1).open();
    let mut log = world.members[0].log.open();
    assert!(log.recovered().base.index > Index(0), "the log was compacted");
    assert!(log.snapshots().corrupt() && log.snapshots().corrupt(), "both files are damaged");
    assert_eq!(log.snapshots().newest(), None);
    let opened = Replica::open(config(MemberId(1)), 1, &mut log, &mut machine, 0);
    let Err(StopReason::NeedsOperator(text)) = opened.map(|_| ()) else {
        panic!("nothing closes the gap between log and store");
    };
    assert!(text.contains("no verified snapshot"), "{text}");
}

/// Copies a node's newest snapshot to another node, as a finished receive would have left it.
fn hand_over(world: &World, from: usize, to: usize) -> LogId {
    let source = world.members[from].log.snapshots();
    let meta = source.newest().expect("a snapshot");
    let target = world.members[to].log.snapshots();
    let mut writer = target.create(&meta).expect("a file");
    let mut reader = source.open(&meta, 0).expect("a snapshot");
    while let Some(chunk) = reader.next_chunk().expect("a chunk") {
        writer.put_chunk(writer.offset(), &chunk).expect("room");
    }
    target.publish(writer).expect("a whole snapshot");
    meta.last
}

#[test]
fn a_start_that_finds_a_received_snapshot_above_its_log_goes_on_with_the_install() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    let follower = other_than(leader);
    write(&mut world, leader, 20);
    world.crash(follower);
    write(&mut world, leader, 200);
    let last = hand_over(&world, leader, follower);
    for node in 0..3 {
        world.cuts.insert((node, follower));
        world.cuts.insert((follower, node));
    }
    world.start(follower);
    pass(&mut world, SECOND);
    let status = world.status(follower);
    assert_eq!(status.applied.last, last, "the snapshot is installed without any help");
    assert_eq!(status.first, last.index.next(), "the log begins behind it");
    world.cuts.clear();
    pass(&mut world, 5 * SECOND);
    world.check_converged();
}

#[test]
fn a_conflicting_suffix_below_a_received_snapshot_is_cut_at_the_start() {
    let mut world = cluster(3);
    let old = world.leader().expect("a leader");
    // The old leader, cut off, keeps entries that nobody else has.
    for node in (0..3).filter(|node| *node != old) {
        world.cuts.insert((old, node));
        world.cuts.insert((node, old));
    }
    for value in 0..15 {
        world.ask(old, Some(value), 200 * MS);
    }
    pass(&mut world, 3 * SECOND);
    let cut = world.status(old).last;
    let new = world.leader().expect("a new leader");
    assert_ne!(new, old, "the others elect one");
    write(&mut world, new, 200);
    world.crash(old);
    let last = hand_over(&world, new, old);
    assert!(cut.index < last.index && cut.term < last.term, "{cut} conflicts with {last}");
    world.cuts.clear();
    world.start(old);
    pass(&mut world, 5 * SECOND);
    assert_eq!(world.members[old].stopped, None, "the suffix is no evidence against the cluster");
    world.check_converged();
}

#[test]
fn a_restart_serves_nothing_before_the_leader_confirmed_its_log() {
    let mut world = cluster(3);
    write(&mut world, 0, 20);
    let leader = world.leader().expect("a leader");
    let follower = other_than(leader);
    world.crash(follower);
    world.start(follower);
    let why = world.status(follower).not_ready.expect("not ready at once");
    assert!(why.contains("no leader"), "{why}");
    pass(&mut world, 2 * SECOND);
    assert_eq!(world.status(follower).not_ready, None);
}

#[test]
fn a_unique_write_passed_on_to_a_dead_leader_is_passed_on_again_and_takes_effect_once() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    write(&mut world, leader, 5);
    let (asker, before) = (other_than(leader), world.acked.len());
    world.crash(leader);
    // Odd values are asked as unique commands; the follower does not know yet that nobody leads.
    world.ask(asker, Some(2_000_001), 30 * SECOND);
    pass(&mut world, 2 * SECOND);
    assert_eq!(world.acked.len(), before + 1, "long before its deadline: {:?}", world.tally);
    assert!(world.tally.get("forwarded-again") > 0, "{:?}", world.tally);
    world.start(leader);
    pass(&mut world, 5 * SECOND);
    world.check_converged();
}
