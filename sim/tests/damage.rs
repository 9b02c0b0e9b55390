//! Damage below what was synced: a member over a damaged log starts, is given back what it lost,
//! and promises no more than it can prove meanwhile (R5, R14, R15).

use holdfast_consensus::event::RoleKind;
use holdfast_consensus::job::Call;
use holdfast_consensus::message::Outcome;
use holdfast_fsm::Command;
use holdfast_log::inspect;
use holdfast_sim::profile::Setup;
use holdfast_sim::trace::Trace;
use holdfast_sim::world::World;
use holdfast_sim::world::script::Script;

const SECOND: u64 = 1_000_000;

fn put(n: u64) -> Command {
    let key = format!("k{n}").into_bytes().into();
    Command::KvPut { key, value: format!("value {n}").into_bytes().into() }
}

/// A cluster in which `k0..k9` are acknowledged, applied everywhere and proved durable.
fn cluster(seed: u64, names: &[&str]) -> Script {
    let setup = Setup { segment_bytes: 64 << 10, ..Setup::quiet(names.len()) };
    let mut script = World::scripted(seed, names, setup, Trace::default());
    script.start_all();
    script.run_until_serving().expect("a healthy cluster serves");
    for n in 0..10 {
        write(&mut script, 0, n);
    }
    script.run_for(2 * SECOND).expect("every property holds");
    script
}

fn write(script: &mut Script, node: usize, n: u64) {
    let outcome = script.propose(node, &put(n)).expect("every property holds");
    assert!(matches!(outcome, Some(Outcome::Committed { .. })), "{n}: {outcome:?}");
}

fn three(seed: u64) -> Script {
    cluster(seed, &["anna", "bert", "cleo"])
}

/// Flips a bit in the body of each of these entries on a node that is down.
fn damage(script: &mut Script, node: usize, indexes: &[u64]) {
    assert!(!script.is_running(node));
    let records = inspect::records(&script.disk(node)).expect("a log").map(Result::unwrap);
    let found: Vec<_> = records
        .filter(|r| r.kind == "entry" && indexes.contains(&r.index.0))
        .map(|r| (r.file, r.offset + r.len - 9))
        .collect();
    assert!(found.len() >= indexes.len(), "{found:?}");
    for (file, offset) in found {
        script.flip(node, &file, offset, 3).expect("there");
    }
}

/// Damages both copies of the header of the newest segment of a node that is down: nothing tells
/// where its records belong, so the member is held.
fn lose_proof(script: &mut Script, node: usize) {
    assert!(!script.is_running(node));
    let newest = script.disk(node).files().into_keys().rfind(|path| path.starts_with("log/0"));
    let newest = newest.expect("a segment");
    for offset in [48, 4096 + 48] {
        script.flip(node, &newest, offset, 3).expect("there");
    }
}

fn follower(script: &Script) -> usize {
    (script.leader().expect("serving") + 1) % 3
}

#[test]
fn a_member_with_a_damaged_log_starts_is_repaired_and_converges() {
    let mut script = three(1);
    let node = follower(&script);
    script.crash(node, true);
    damage(&mut script, node, &[4, 7]);
    script.start(node).expect("it starts over the damage");
    let status = script.status(node).expect("it runs");
    let damaged = status.damaged.expect("it says so");
    assert_eq!((damaged.first.0, damaged.last.0, damaged.count), (4, 7, 2));
    assert!(status.not_ready.expect("and is not ready").contains("2 damaged entries"));
    assert!(status.durable.index.0 < 4 && status.proved.index.0 > 7, "{:?}", status.durable);
    let repaired = script.run_until_true(
        |world| world.status(node).is_some_and(|s| s.damaged.is_none() && s.not_ready.is_none()),
        script.now() + 5 * SECOND,
    );
    assert_eq!(repaired, Ok(true));
    write(&mut script, node, 10);
    // What was given back is on the disk: the next start finds nothing damaged.
    script.crash(node, true);
    script.start(node).expect("starts");
    assert_eq!(script.status(node).and_then(|s| s.damaged), None);
    script.settle().expect("every acknowledged write is there");
}

#[test]
fn a_damaged_majority_recovers_by_itself_where_each_entry_is_whole_somewhere() {
    let mut script = three(2);
    for node in 0..3 {
        script.crash(node, true);
    }
    damage(&mut script, 0, &[3, 5, 9]);
    damage(&mut script, 1, &[4, 6]);
    damage(&mut script, 2, &[2, 7, 8]);
    script.start_all();
    script.run_until_serving().expect("no entry is lost everywhere");
    assert!((0..3).all(|node| script.status(node).is_some_and(|s| s.damaged.is_none())));
    write(&mut script, 1, 10);
    script.settle().expect("every acknowledged write is there");
}

#[test]
fn a_held_member_promises_nothing_and_gives_back_what_others_lost() {
    let mut script = three(3);
    let leader = script.leader().expect("serving");
    let (held, other) = ((leader + 1) % 3, (leader + 2) % 3);
    for node in 0..3 {
        script.crash(node, true);
    }
    lose_proof(&mut script, held);
    // Of these only the held member has a whole copy.
    damage(&mut script, leader, &[5]);
    damage(&mut script, other, &[5]);
    let before = script.image(held);
    script.start_all();
    script.run_until_serving().expect("the others lead, with what the held one gives back");
    let status = script.status(held).expect("it runs");
    assert!(status.held.is_some() && status.not_ready.expect("not ready").contains("held"));
    assert_eq!(status.role, RoleKind::Follower);
    write(&mut script, leader, 10);
    script.run_for(2 * SECOND).expect("every property holds");
    // Without the third there is no quorum: a held member makes none.
    script.crash(other, true);
    let lost = script.propose(leader, &put(11)).expect("every property holds");
    assert!(!matches!(lost, Some(Outcome::Committed { .. })), "{lost:?}");
    let barrier = script.ask(held, Call::Barrier, SECOND).expect("every property holds");
    assert!(!matches!(barrier, Some(Outcome::Ready { .. })), "{barrier:?}");
    script.crash(held, true);
    assert!(script.image(held) == before, "not a byte of it has changed");
    script.start(held).expect("it comes back");
    assert!(script.status(held).is_some_and(|s| s.held.is_some()));
    script.settle().expect("every acknowledged write is there");
}

#[test]
fn a_cluster_of_one_refuses_to_start_over_damage_and_says_what_can_be_done() {
    for proof in [false, true] {
        let mut script = cluster(4, &["anna"]);
        script.crash(0, true);
        if proof {
            lose_proof(&mut script, 0);
        } else {
            damage(&mut script, 0, &[4]);
        }
        script.start(0).expect("it refuses, and that is no violation");
        assert!(!script.is_running(0));
        let why = script.refused(0).expect("it says why");
        assert!(why.contains("Put the data directory back from a copy"), "{why}");
    }
}

#[test]
fn what_nobody_damaged_is_never_called_damaged() {
    let mut script = three(5);
    let node = follower(&script);
    script.crash(node, true);
    let records = inspect::records(&script.disk(node)).expect("a log").map(Result::unwrap);
    let entry = records.filter(|r| r.kind == "entry").last().expect("an entry");
    // Behind the back of the world, as a bug of the log would do it.
    script.disk(node).flip_bit(&entry.file, entry.offset + 40, 3).expect("there");
    let seen = script.start(node).expect_err("nobody damaged the disk");
    assert_eq!(seen.property, "undamaged", "{seen}");
}
