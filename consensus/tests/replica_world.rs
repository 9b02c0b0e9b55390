//! Three replicas on the in-memory implementations, under crashes, loss and failing disks: the
//! same driver and core that both worlds run.

mod world;

use std::collections::BTreeMap;
use world::{MS, SECOND, World, config};

use bytes::Bytes;
use holdfast_consensus::job::Call;
use holdfast_consensus::types::MemberId;

/// One seed: some seconds of trouble under load, then health. Returns what happened.
fn run(seed: u64) -> World {
    let mut world = World::new(seed, 3, config(MemberId(1)));
    world.run_until(2 * SECOND);
    let mut value = 0;
    let end = 14 * SECOND;
    while world.now < end {
        trouble(&mut world);
        for _ in 0..world.rng.between(1, 12) {
            value += 1;
            load(&mut world, value);
            let pause = world.rng.between(MS, 30 * MS);
            let next = world.now + pause;
            world.run_until(next);
        }
    }
    world.heal();
    let until = world.now + 20 * SECOND;
    world.run_until(until);
    world
}

fn load(world: &mut World, value: u64) {
    let node = usize::try_from(world.rng.between(0, 3)).expect("small");
    let patience = world.rng.between(200 * MS, 4 * SECOND);
    if world.rng.chance(150) {
        world.ask(node, None, patience);
    } else if world.rng.chance(150) && world.members[node].process.is_some() {
        // About the newest acknowledged value: a stale answer would say that it is not there.
        let about = world.acked.last().copied().unwrap_or(0);
        let question = Bytes::copy_from_slice(&about.to_le_bytes());
        world.call_within(node, Call::Confirm { question }, patience);
    } else {
        world.ask(node, Some(value), patience);
    }
}

/// One thing goes wrong, or becomes right again.
fn trouble(world: &mut World) {
    let node = usize::try_from(world.rng.between(0, 3)).expect("small");
    let other = usize::try_from(world.rng.between(0, 3)).expect("small");
    match world.rng.between(0, 16) {
        0 | 1 => world.crash(node),
        2..=5 => {
            for member in 0..3 {
                world.start(member);
            }
        }
        6 => {
            world.cuts.insert((node, other));
        }
        7 | 8 => world.cuts.clear(),
        9 => world.members[node].log.fail_persists(1),
        10 => {
            let times = world.rng.between(1, 4);
            world.members[node].machine.fail_writes(u32::try_from(times).expect("small"));
        }
        11 => world.members[node].log.snapshots().fail_publish(1),
        12 => {
            let full = world.rng.chance(300);
            world.members[node].log.set_full(full);
        }
        13 => {
            world.faults.loss = world.rng.between(0, 120);
            world.faults.repeat = world.rng.between(0, 120);
        }
        14 => {
            world.faults.delay = world.rng.between(MS, 40 * MS);
            world.faults.job = world.rng.between(MS, 20 * MS);
        }
        _ => {
            world.faults.loss = 0;
            world.faults.repeat = 0;
        }
    }
}

fn checked(seed: u64) -> World {
    // Shown with a failure only: the seed, and (when the world is dropped) its last events.
    println!("seed {seed}");
    let world = run(seed);
    world.check_converged();
    assert!(world.asked.is_empty(), "calls are left waiting: {:?}", world.asked);
    world
}

#[test]
fn acknowledged_writes_survive_crashes_loss_and_failing_disks() {
    let (from, to) = (0, 150);
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    let mut skipped = 0;
    for seed in from..to {
        let world = checked(seed);
        assert!(world.tally.get("acked") >= 20, "seed {seed}: {:?}", world.tally);
        skipped += world.tally.skipped;
        for (what, count) in &world.tally.counts {
            *totals.entry(what).or_default() += count;
        }
    }
    println!("skipped {skipped}, {totals:#?}");
    for what in [
        "snapshot",
        "compacted",
        "installed",
        "transfer",
        "checkpoint",
        "log-reopened",
        "store-reopened",
        "barrier",
        "confirmed",
        "not-committed",
        "forwarded-again",
        "crash",
    ] {
        assert!(totals.get(what).copied().unwrap_or(0) > 0, "{what} never happened: {totals:?}");
    }
    assert!(totals["acked"] >= 100 * (to - from), "too little was acknowledged: {totals:?}");
    assert!(skipped > 0, "no entry was ever handed to a store that held it");
}
