//! Random clusters of cores alone: faults of network and disk, crashes, compaction, transfers; then
//! everything heals, and the cluster must make progress.

mod scenario;

use holdfast_consensus::io::CoreConfig;
use holdfast_consensus::rng::SplitMix64;
use holdfast_consensus::types::*;
use scenario::{Faults, World};

/// Small windows and caches, so that every limit is met.
fn config(id: MemberId) -> CoreConfig {
    CoreConfig {
        append_bytes: 1_000,
        window_bytes: 4_000,
        window_messages: 4,
        uncommitted_bytes: 20_000,
        cache_bytes: 2_000,
        ..CoreConfig::new(id)
    }
}

/// Every member holds, durably and committed, what the leader holds.
fn converged(world: &World, leader: MemberId) -> Result<(), String> {
    let last = world.nodes[&leader].core.as_ref().expect("up").last();
    for (id, node) in &world.nodes {
        let core = node.core.as_ref().expect("up");
        let is = (core.commit(), core.last(), core.durable(), core.leader());
        let wanted = (last.index, last, last, Some(leader));
        if is != wanted {
            let peers = world.nodes[&leader].core.as_ref().map(|c| format!("{c:?}"));
            return Err(format!("{id} has not caught up: {is:?}, wanted {wanted:?}; {peers:?}"));
        }
    }
    Ok(())
}

fn run_seed(seed: u64) -> World {
    let mut rng = SplitMix64::new(seed ^ 0x5eed);
    let voters = [3, 3, 5, 1, 2][usize::try_from(seed % 5).expect("small")];
    let learners = u64::from(seed.is_multiple_of(7));
    let mut world = World::new(voters, learners, seed, config);
    world.faults = Faults::random(&mut rng);
    world.begin();
    world.run(6_000_000);
    world.heal();
    // A stalled disk or an old leader needs a few election timeouts to be given up.
    world.run(5_000_000);
    let leader = world.leader().unwrap_or_else(|| panic!("seed {seed}: no leader after healing"));
    for id in world.members() {
        world.step(id, holdfast_consensus::io::Input::Headroom { low: false });
    }
    world.propose(leader, 3);
    world.run(2_000_000);
    if let Err(found) = converged(&world, leader) {
        world.fail(format!("seed {seed}: {found}"));
    }
    world
}

#[test]
fn three_nodes_elect_replicate_and_commit() {
    let mut world = World::new(3, 0, 1, CoreConfig::new);
    world.run(1_000_000);
    let leader = world.leader().expect("a leader within a second");
    world.propose(leader, 10);
    world.run(20_000);
    let last = world.nodes[&leader].core.as_ref().expect("up").last().index;
    for node in world.nodes.values() {
        assert_eq!(node.core.as_ref().expect("up").commit(), last);
    }
}

#[test]
fn random_clusters_stay_safe_and_heal() {
    let seeds = option_env!("CORE_SEEDS").and_then(|s| {
        let (a, b) = s.split_once("..")?;
        Some(a.parse().ok()?..b.parse().ok()?)
    });
    let mut served = 0;
    let mut committed = 0;
    for seed in seeds.unwrap_or(0..300) {
        let result = std::panic::catch_unwind(|| run_seed(seed));
        let world = result.unwrap_or_else(|_| panic!("seed {seed} failed"));
        served += world.ghost.served;
        committed += world.ghost.last_committed().0;
    }
    println!("reads served {served}, entries committed {committed}");
    assert!(served > 300, "reads are served: {served}");
    assert!(committed > 300 * 30, "entries are committed: {committed}");
}
