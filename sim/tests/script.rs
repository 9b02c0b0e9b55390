//! Worlds that a program drives: what it asks for happens, and the checkers watch it all the same.

use holdfast_consensus::job::{Call, Lane};
use holdfast_consensus::message::Outcome;
use holdfast_fsm::Command;
use holdfast_sim::check::Violation;
use holdfast_sim::profile::Setup;
use holdfast_sim::trace::Trace;
use holdfast_sim::world::World;
use holdfast_sim::world::script::{DiskImage, Part, Script};

const NAMES: [&str; 3] = ["anna", "bert", "cleo"];

fn put(key: &str, value: &str) -> Command {
    Command::KvPut { key: key.to_owned().into(), value: value.to_owned().into() }
}

fn cluster(seed: u64) -> Script {
    let mut script = World::scripted(seed, &NAMES, Setup::quiet(3), Trace::default());
    script.start_all();
    script.run_until_serving().expect("a healthy cluster serves");
    script
}

fn write(script: &mut Script, node: usize, key: &str, value: &str) {
    let outcome = script.propose(node, &put(key, value)).expect("every property holds");
    assert!(matches!(outcome, Some(Outcome::Committed { .. })), "{key}: {outcome:?}");
}

fn read(script: &Script, node: usize, key: &str) -> Option<Vec<u8>> {
    let view = script.view(node).expect("runs");
    view.kv_get(key.as_bytes()).expect("readable").value.map(|row| row.value.to_vec())
}

#[test]
fn a_program_decides_who_leads_stands_still_and_comes_back() {
    let mut script = cluster(1);
    let old = script.leader().expect("serving");
    write(&mut script, old, "a", "1");
    script.isolate(old);
    let limit = script.now() + 10_000_000;
    let moved = script.run_until_true(|world| world.leader().is_some_and(|l| l != old), limit);
    assert_eq!(moved, Ok(true));
    let new = script.leader().expect("moved");
    write(&mut script, new, "a", "2");
    let lost = script.ask(old, Call::Barrier, 2_000_000).expect("every property holds");
    assert!(!matches!(lost, Some(Outcome::Ready { .. })), "a minority confirms nothing: {lost:?}");
    script.rejoin(old);
    let fresh = script.ask(old, Call::Barrier, 5_000_000).expect("every property holds");
    assert!(matches!(fresh, Some(Outcome::Ready { age: 0, .. })), "{fresh:?}");
    assert_eq!(read(&script, old, "a").as_deref(), Some(b"2".as_slice()));
    script.pause(new);
    assert_eq!(script.ask(new, Call::Barrier, 1_000_000), Ok(None), "nobody answers");
    script.run_for(3_000_000).expect("every property holds");
    script.crash(new, false);
    script.run_for(3_000_000).expect("every property holds");
    assert!(!script.is_running(new), "it was killed and nobody started it");
    script.start(new).expect("starts");
    script.settle().expect("nothing acknowledged is lost");
}

#[test]
fn a_stalled_lane_holds_its_jobs_up_until_it_is_freed() {
    let mut script = cluster(2);
    let leader = script.leader().expect("serving");
    let follower = (leader + 1) % 3;
    script.stall_lane(follower, Lane::Apply);
    write(&mut script, leader, "a", "1");
    script.run_for(1_000_000).expect("every property holds");
    assert_eq!(read(&script, follower, "a"), None, "nothing is applied");
    script.free_lane(follower, Lane::Apply);
    script.run_for(1_000_000).expect("every property holds");
    assert_eq!(read(&script, follower, "a").as_deref(), Some(b"1".as_slice()));
    script.settle().expect("nothing acknowledged is lost");
}

#[test]
fn an_older_store_is_fed_again_and_an_older_majority_is_seen() {
    let mut script = cluster(3);
    let leader = script.leader().expect("serving");
    write(&mut script, leader, "a", "1");
    script.run_for(2_000_000).expect("every property holds");
    let images: Vec<DiskImage> = (0..3).map(|node| script.image(node)).collect();
    write(&mut script, leader, "a", "2");
    script.crash(leader, true);
    script.restore(leader, &images[leader], Part::Store);
    script.start(leader).expect("starts");
    script.run_until_serving().expect("the log feeds the store");
    assert_eq!(read(&script, leader, "a").as_deref(), Some(b"2".as_slice()));

    let forgotten = |script: &mut Script| -> Result<(), Violation> {
        for node in [0, 1, 2] {
            script.crash(node, true);
            script.restore(node, &images[node], Part::Whole);
        }
        script.start_all();
        script.run_until_serving()?;
        write(script, 0, "b", "1");
        script.settle()
    };
    let seen = forgotten(&mut script).expect_err("an acknowledged write was forgotten");
    assert!(seen.property != "progress", "{seen}");
}

#[test]
fn the_same_script_is_the_same_run() {
    let hash = |seed| {
        let mut script = cluster(seed);
        write(&mut script, 0, "a", "1");
        script.summary().hash
    };
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
}
