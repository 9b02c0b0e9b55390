//! Damaged, held and repaired members, in the small world of replicas (R5, R15).

mod world;

use holdfast_consensus::fault::{LogFault, StopReason};
use holdfast_consensus::job::ReplicaInput;
use holdfast_consensus::replica::Replica;
use holdfast_consensus::types::{Index, MemberId};
use world::{SECOND, World, config, pass, write};

fn cluster(seed: u64, size: u64, kept: u64) -> World {
    let mut config = config(MemberId(1));
    config.kept_entries = kept;
    let mut world = World::new(seed, size, config);
    world.run_until(2 * SECOND);
    assert!(world.leader().is_some(), "a leader is elected");
    world
}

fn stop_all(world: &mut World) {
    for node in 0..world.members.len() {
        world.crash(node);
    }
}

fn start_all(world: &mut World) {
    for node in 0..world.members.len() {
        world.start(node);
    }
}

/// The members' damage lies at different places: each has what the others lost, and C is short, so
/// that no leader can be elected before they have helped one another (R15's schedule).
#[test]
fn members_that_are_damaged_at_different_places_repair_one_another_without_a_leader() {
    let mut world = cluster(3, 3, 1_000);
    let c = (0..3).find(|n| world.leader() != Some(*n)).expect("a follower");
    write(&mut world, 0, 6);
    world.crash(c);
    let others: Vec<usize> = (0..3).filter(|n| *n != c).collect();
    write(&mut world, others[0], 10);
    stop_all(&mut world);
    for (n, node) in others.iter().enumerate() {
        for index in 10..14u64 {
            assert!(world.members[*node].log.damage(Index(index + 4 * n as u64), true));
        }
    }
    let acked = world.acked.len();
    start_all(&mut world);
    pass(&mut world, 5 * SECOND);
    assert!(world.leader().is_some(), "somebody leads again");
    write(&mut world, c, 5);
    assert_eq!(world.acked.len(), acked + 5);
    world.check_converged();
    for node in 0..3 {
        assert_eq!(world.status(node).damaged, None);
    }
}

#[test]
fn a_damaged_minority_is_repaired_beside_the_running_cluster() {
    for known in [true, false] {
        let mut world = cluster(5, 3, 1_000);
        write(&mut world, 0, 20);
        let leader = world.leader().expect("a leader");
        let damaged = (leader + 1) % 3;
        world.crash(damaged);
        assert!(world.members[damaged].log.damage(Index(9), known));
        assert!(world.members[damaged].log.damage(Index(12), known));
        world.start(damaged);
        let status = world.status(damaged);
        assert_eq!(status.damaged.as_ref().map(|d| d.count), Some(2));
        assert!(status.not_ready.is_some_and(|why| why.contains("damaged")));
        assert!(status.durable.index < Index(9) && status.proved.index > Index(12));
        pass(&mut world, 3 * SECOND);
        assert_eq!(world.status(damaged).damaged, None, "known {known}");
        write(&mut world, damaged, 5);
        world.check_converged();
        world.crash(damaged);
        world.start(damaged);
        assert_eq!(world.status(damaged).damaged, None, "the repair is durable");
    }
}

#[test]
fn what_the_others_have_compacted_comes_by_a_snapshot() {
    let mut world = cluster(7, 3, 5);
    write(&mut world, 0, 20);
    let leader = world.leader().expect("a leader");
    let damaged = (leader + 1) % 3;
    world.crash(damaged);
    assert!(world.members[damaged].log.damage(Index(9), true));
    world.cuts.extend((0..3).flat_map(|n| [(n, damaged), (damaged, n)]));
    world.start(damaged);
    write(&mut world, leader, 150);
    assert!(world.status(leader).first > Index(20), "the leader has compacted");
    world.cuts.clear();
    pass(&mut world, 8 * SECOND);
    assert_eq!(world.status(damaged).damaged, None);
    assert!(world.status(damaged).first > Index(9));
    world.check_converged();
}

/// Damage that a read meets while everything runs: followers need old entries from a leader that
/// cannot read them any more.
#[test]
fn a_leader_that_meets_damage_hands_over_and_is_repaired() {
    let mut config = config(MemberId(1));
    config.kept_entries = 1_000;
    config.core.cache_bytes = 1;
    let mut world = World::new(9, 3, config);
    world.run_until(2 * SECOND);
    let leader = world.leader().expect("a leader");
    let behind = (leader + 1) % 3;
    world.crash(behind);
    write(&mut world, leader, 30);
    assert!(world.members[leader].log.damage(Index(15), true));
    world.start(behind);
    pass(&mut world, 8 * SECOND);
    assert!(world.tally.get("damage-met-by-a-read") > 0, "{:?}", world.tally);
    assert_eq!(world.status(leader).damaged, None);
    write(&mut world, behind, 5);
    world.check_converged();
}

/// What a verification beside the replica meets goes the same way; what is known is no news, and
/// hides nothing that is.
#[test]
fn damage_met_beside_a_replica_is_repaired_and_told_once() {
    let mut config = config(MemberId(1));
    config.kept_entries = 1_000;
    config.core.cache_bytes = 1;
    let mut world = World::new(15, 3, config);
    world.run_until(2 * SECOND);
    let leader = world.leader().expect("a leader");
    write(&mut world, leader, 30);
    pass(&mut world, SECOND);
    let damaged = (leader + 1) % 3;
    let fault = |first: u64, last: u64| {
        let (first, last) = (Index(first), Index(last));
        ReplicaInput::Damaged(LogFault::Damaged { first, last, detail: String::new() })
    };
    for index in [9, 10] {
        assert!(world.members[damaged].log.damage(Index(index), true));
    }
    let nothing = LogFault::Compacted { first: Index(3) };
    world.step(damaged, ReplicaInput::Damaged(nothing));
    assert_eq!(world.status(damaged).damaged, None);
    for (first, last, count, told) in [(9, 9, 1, 1), (9, 9, 1, 1), (9, 10, 2, 2), (9, 10, 2, 2)] {
        world.step(damaged, fault(first, last));
        assert_eq!(world.status(damaged).damaged.map(|d| d.count), Some(count));
        assert_eq!(world.tally.get("damage-met-by-a-read"), told);
    }
    pass(&mut world, 5 * SECOND);
    assert_eq!(world.status(damaged).damaged, None);
    write(&mut world, damaged, 5);
    world.check_converged();
}

/// A disk that failed one read and gives the entry again has lost nothing: the member does not stay
/// damaged over an entry that its log holds.
#[test]
fn an_entry_that_reads_well_again_is_no_hole_for_ever() {
    let mut world = cluster(17, 3, 1_000);
    write(&mut world, 0, 30);
    pass(&mut world, SECOND);
    let leader = world.leader().expect("a leader");
    let mistaken = (leader + 1) % 3;
    let (first, last) = (Index(9), Index(9));
    let fault = LogFault::Damaged { first, last, detail: "read: an error".into() };
    world.step(mistaken, ReplicaInput::Damaged(fault));
    assert!(world.status(mistaken).damaged.is_some());
    pass(&mut world, 3 * SECOND);
    assert_eq!(world.status(mistaken).damaged, None);
    write(&mut world, mistaken, 5);
    world.check_converged();
}

#[test]
fn a_held_member_changes_nothing_and_still_gives_entries_back() {
    let mut world = cluster(11, 3, 1_000);
    write(&mut world, 0, 20);
    let (damaged, held, third) = (0, 1, 2);
    stop_all(&mut world);
    assert!(world.members[damaged].log.damage(Index(9), true));
    world.members[held].log.hold("its hard state cannot be proved");
    world.start(damaged);
    world.start(held);
    let before = world.status(held);
    pass(&mut world, 5 * SECOND);
    assert_eq!(world.status(damaged).damaged, None, "a held member serves reads for repair");
    assert_eq!(world.leader(), None, "but it votes for nobody");
    assert!(world.status(held).not_ready.is_some_and(|why| why.contains("held")));
    world.start(third);
    pass(&mut world, 5 * SECOND);
    assert!(world.leader().is_some());
    write(&mut world, third, 5);
    let after = world.status(held);
    assert_eq!(
        (after.last, after.hard, after.applied),
        (before.last, before.hard, before.applied),
        "not a byte of it changes"
    );
    assert!(world.status(third).last > after.last);
}

#[test]
fn the_only_voter_refuses_to_start_on_damage() {
    for held in [false, true] {
        let mut world = cluster(13, 1, 1_000);
        write(&mut world, 0, 10);
        world.crash(0);
        let member = &world.members[0];
        if held {
            member.log.hold("its hard state cannot be proved");
        } else {
            assert!(member.log.damage(Index(5), true));
        }
        let (mut log, mut machine) = (member.log.open(), member.machine.open());
        let config = config(MemberId(1));
        let refused = Replica::open(config, 1, &mut log, &mut machine, world.now);
        assert!(matches!(refused, Err(StopReason::NeedsOperator(why)) if why.contains("copy")));
    }
}

/// Any damage that leaves one intact copy of each entry is healed: a seeded sweep over places,
/// members, and members that are down meanwhile.
#[test]
fn whatever_is_damaged_somewhere_and_intact_elsewhere_comes_back() {
    for seed in 0..40 {
        let mut world = cluster(100 + seed, 3, 1_000);
        write(&mut world, 0, 25);
        stop_all(&mut world);
        let last = 24;
        for index in 2..last {
            // At most one member loses an entry, or two where the third is known to hold it.
            let node = usize::try_from(world.rng.between(0, 6)).expect("small");
            if node < 3 {
                assert!(world.members[node].log.damage(Index(index), true));
            }
        }
        world.faults.loss = 100;
        world.faults.repeat = 100;
        start_all(&mut world);
        pass(&mut world, 10 * SECOND);
        world.heal();
        pass(&mut world, 10 * SECOND);
        for node in 0..3 {
            assert_eq!(world.status(node).damaged, None, "seed {seed}");
        }
        world.check_converged();
    }
}
