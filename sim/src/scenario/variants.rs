//! What a naive fix of the four losses misses (SCENARIOS 6), as far as it applies here.

use super::four::{age, meanwhile};
use super::stage::{SECOND, Stage, off_plot};
use crate::broker::ledger::Place;
use crate::check::Verdict;
use crate::world::script::Part;
use holdfast_consensus::job::Lane;
use holdfast_log::mem_disk::Op;

const R: usize = 0;
const L: usize = 1;
const M: usize = 2;

pub(super) fn orders(incarnation: u64) -> Place {
    Place { topic: "orders".to_owned(), incarnation, partition: 0 }
}

/// A topic is deleted, and n1 asks n2 about it; the answer takes its time.
fn deleted_while_asking(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    let first = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 3)?;
    stage.world.slow_notes(L, R, SECOND);
    stage.delete(L, "orders")?;
    stage.tell(format!("orders ({first}) is deleted; what n2 answers to n1 takes a second"));
    stage.question_is_out(R)
}

/// N1: deleted and created anew under one name, between the question and the act. The leader's
/// answer about the name is right when it is given and wrong when it arrives.
pub(super) fn recreated(stage: &mut Stage) -> Verdict {
    deleted_while_asking(stage)?;
    let second = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.tell(format!("orders is created again ({second}), and 20 records are acknowledged"));
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N1 and R29: the old state knows the deletion of the first incarnation and nothing of the
/// second, whose data lie there.
pub(super) fn recreated_behind(stage: &mut Stage) -> Verdict {
    stage.open()?;
    let first = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 3)?;
    stage.delete(L, "orders")?;
    age(stage)?;
    let second = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage
        .tell(format!("orders was deleted as {first} and is created as {second}, with 20 records"));
    stage.power_cut(R);
    meanwhile(stage)?;
    stage.start_unheard(R, M)?;
    stage.world.run_for(3 * SECOND)?;
    stage.hear(R);
    stage.until_current(R)?;
    stage.finish(3 * SECOND)
}

/// N3: the node that comes back asks a leader that is itself still replaying.
pub(super) fn fresh_responder(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.create(L, "audit", &[L])?;
    age(stage)?;
    // The leader to be starts over too: its state will be as old as R's.
    stage.world.crash(M, false);
    stage.world.start(M)?;
    stage.world.run_until_serving()?;
    stage.world.run_for(2 * SECOND)?;
    stage.lead(L)?;
    let incarnation = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.until_current(M)?;
    stage.produce_all(R, "orders", 20)?;
    stage.tell(format!("orders is created at {incarnation}; n1 holds its 20 records"));
    for node in [R, L, M] {
        stage.power_cut(node);
    }
    stage.world.start(M)?;
    stage.world.stall_lane(M, Lane::Apply);
    stage.world.start(R)?;
    stage.world.stall_lane(R, Lane::Apply);
    stage.until("somebody leads", 10 * SECOND, |world| world.leader().is_some())?;
    stage.lead_if_possible(M)?;
    stage.tell("n3 leads and has yet to apply its log; so has n1");
    stage.world.run_for(3 * SECOND)?;
    stage.world.free_lane(M, Lane::Apply);
    stage.world.free_lane(R, Lane::Apply);
    stage.finish(3 * SECOND)
}

/// N15: the store of a node is closed after a fault, and its reads fail.
pub(super) fn read_error(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.world.stall_lane(R, Lane::Apply);
    stage.world.disk(R).fail_next(Op::Write, "store/");
    stage.create(L, "audit", &[L])?;
    stage.world.free_lane(R, Lane::Apply);
    stage.tell_of(R, "has a store that fails");
    stage.until("reads fail", 5 * SECOND, |world| {
        world.view(R).is_some_and(|view| view.topic("orders").is_err())
    })?;
    stage.world.stall_lane(R, Lane::Apply);
    stage.world.run_for(3 * SECOND)?;
    stage.world.free_lane(R, Lane::Apply);
    stage.finish(3 * SECOND)
}

/// N21: the data of one node lie on the disk of another, whose every partition is owned elsewhere.
pub(super) fn wrong_volume(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.world.run_for(SECOND)?;
    stage.power_cut(R);
    stage.power_cut(M);
    stage.world.move_topics(R, M);
    stage.tell("the data volume of n1 is mounted on n3; n1 comes back without it");
    stage.world.start(M)?;
    stage.world.start(R)?;
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N22: a partition was given away by force; the old owner comes back with the only tail records.
pub(super) fn forced_move(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    let incarnation = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.world.run_for(SECOND)?;
    stage.power_cut(R);
    stage.tell("n1 is away for long; its partition is given to n3 by force, without its records");
    stage.move_partition(L, &orders(incarnation), None, M)?;
    stage.world.start(R)?;
    stage.until_current(R)?;
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N23: ownership went away and came back between the question and the act.
pub(super) fn flip_back(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    let incarnation = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.world.run_for(SECOND)?;
    stage.world.slow_notes(L, R, SECOND);
    stage.move_partition(L, &orders(incarnation), Some(R), M)?;
    stage.tell("n3 has copied the partition and owns it; what n2 answers to n1 takes a second");
    stage.question_is_out(R)?;
    stage.move_partition(L, &orders(incarnation), Some(M), R)?;
    stage.until_current(R)?;
    stage.tell("the partition moves back to n1, which takes 10 records more");
    match stage.produce(R, "orders", 10)? {
        10 => {}
        some => return Err(off_plot(format!("{some} of 10 records were acknowledged"))),
    }
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N2: as [`recreated`], and the leader that answered is deposed meanwhile: its successor commits
/// what makes the answer wrong.
pub(super) fn deposed_leader(stage: &mut Stage) -> Verdict {
    deleted_while_asking(stage)?;
    stage.lead(M)?;
    let second = stage.create(M, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.tell(format!("n3 leads now; orders is created again ({second}) and holds 20 records"));
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N17: the store of a node is put back from a backup that is older than its log and its data.
pub(super) fn store_from_backup(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    stage.create(L, "audit", &[L])?;
    stage.until_current(R)?;
    stage.world.run_for(2 * SECOND)?;
    let backup = stage.world.image(R);
    let incarnation = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.tell(format!("orders is created at {incarnation}; n1 holds its 20 records"));
    stage.power_cut(R);
    stage.world.restore(R, &backup, Part::Store);
    stage.tell("the store of n1 is put back from a backup of before that; log and data stay");
    meanwhile(stage)?;
    stage.start_unheard(R, M)?;
    stage.world.run_for(3 * SECOND)?;
    stage.hear(R);
    stage.until_current(R)?;
    stage.finish(3 * SECOND)
}
