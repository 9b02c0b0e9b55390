//! Who answers, and who does not (SCENARIOS 6): leaders of a minority, nodes whose questions come to
//! nothing, and a world in which a name means something new.

use super::four::{age, meanwhile};
use super::stage::{SECOND, Stage, off_plot};
use super::waits::copied_to;
use crate::check::Verdict;
use crate::world::World;
use crate::world::anew::Past;
use crate::world::clocks::TRUE_RATE;
use holdfast_fsm::command::{AssignPartition, PartitionRef, SetTarget};
use holdfast_fsm::{Answer, Command};

const R: usize = 0;
const L: usize = 1;
const M: usize = 2;

/// Cuts these nodes off from all others, in both directions; they hear each other.
fn split(stage: &mut Stage, off: &[usize]) {
    let all = stage.world.names().len();
    for node in off {
        for other in (0..all).filter(|other| !off.contains(other)) {
            stage.world.cut(*node, other);
            stage.world.cut(other, *node);
        }
    }
}

/// Takes back [`split`].
fn join(stage: &mut Stage, off: &[usize]) {
    let all = stage.world.names().len();
    for node in off {
        for other in (0..all).filter(|other| !off.contains(other)) {
            stage.world.mend(*node, other);
            stage.world.mend(other, *node);
        }
    }
}

/// N7 and N4: a leader and the node that asks it are cut off from the rest, on a host whose clocks
/// run slow: when the others have long gone on without them, both still take it for the leader.
pub(super) fn minority_leader(stage: &mut Stage) -> Verdict {
    stage.replace_nodes(&["n1", "n2", "n3", "n4", "n5"]);
    minority(stage, &[R, L])
}

/// N7: as [`minority_leader`], and the leader of the minority asks itself.
pub(super) fn minority_self(stage: &mut Stage) -> Verdict {
    minority(stage, &[R])
}

fn minority(stage: &mut Stage, off: &[usize]) -> Verdict {
    let leader = off[off.len() - 1];
    stage.open()?;
    stage.lead(leader)?;
    let moving = copied_to(stage, R, M)?;
    for node in off {
        stage.world.clock_at(*node, TRUE_RATE / 50);
    }
    split(stage, off);
    stage.tell_of(leader, "leads, with clocks that run slow, cut off from the majority");
    let elected = |world: &World| {
        let best = (0..world.names().len()).filter(|node| !off.contains(node)).find(|node| {
            world.status(*node).is_some_and(|status| status.leader == Some(world.member(*node)))
        });
        best.is_some()
    };
    stage.until("the majority has a leader", 10 * SECOND, elected)?;
    let next = stage.world.leader().unwrap_or(M);
    moving.ends(stage, next)?;
    stage.tell("the majority ends a move to n1, which holds the copy that counts now");
    let believed = stage.world.status(R).and_then(|status| status.leader);
    if believed != Some(stage.world.member(leader)) {
        return Err(off_plot("n1 has lost its leader already"));
    }
    stage.tell_of(leader, "still takes itself for the leader, and n1 sweeps");
    stage.world.sweep_now(R)?;
    moving.is_let_go(stage)?;
    stage.tell_of(M, "has let its copy go");
    stage.take_stock()?;
    stage.world.run_for(SECOND)?;
    for node in off {
        stage.world.clock_at(*node, TRUE_RATE);
    }
    stage.world.run_for(SECOND)?;
    join(stage, off);
    stage.until_current(R)?;
    stage.world.run_for(3 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N26: as the sweep of the start, with the link broken the other way round: what the node asks
/// arrives, and every answer is lost.
pub(super) fn unanswered(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.create(L, "audit", &[L])?;
    age(stage)?;
    stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.tell("orders is created, and n1 holds its 20 records");
    stage.power_cut(R);
    meanwhile(stage)?;
    stage.world.start(R)?;
    stage.until("n1 is connected", 3 * SECOND, |world| world.is_connected(R, M))?;
    for other in [L, M] {
        stage.world.cut(other, R);
    }
    stage.tell("n1 is back with its old state; what it asks arrives, and every answer is lost");
    stage.world.run_for(4 * SECOND)?;
    for other in [L, M] {
        stage.world.mend(other, R);
    }
    stage.until_current(R)?;
    stage.finish(3 * SECOND)
}

/// N24: the parent of a cursor is deleted and created anew while its node is down. The offsets of
/// the new one start at 0; the cursor's file counts in the old one.
pub(super) fn parent_recreated(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    stage.create(L, "orders", &[R])?;
    stage.create(L, "retry", &[R])?;
    let old = stage.attach(L, "retry", "orders", SECOND)?;
    stage.until_current(R)?;
    stage.until("the cursor runs", SECOND, |world| world.has_cursor(R, "retry", old))?;
    stage.produce_all(R, "orders", 60)?;
    stage.world.run_for(3 * SECOND)?;
    stage.power_cut(R);
    stage.delete(L, "orders")?;
    let again = stage.create(L, "orders", &[R])?;
    let new = stage.attach(L, "retry", "orders", SECOND)?;
    stage.tell(format!(
        "retry has had 60 records of orders; orders is deleted, created again ({again}), and feeds \
         retry anew ({new})"
    ));
    stage.world.start(R)?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 30)?;
    stage.tell("n1 is back, and takes 30 records for the new orders");
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N18: the whole cluster is put back to an export from before a topic. Its leader says truthfully
/// that there is no such topic, and its data lie there.
pub(super) fn older_cluster(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    stage.create(L, "audit", &[L])?;
    stage.until_current(R)?;
    stage.world.run_for(2 * SECOND)?;
    let past = stage.world.backup(L)?;
    stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.tell("orders is created, and n1 holds its 20 records");
    stage.world.run_for(SECOND)?;
    stage.world.put_back(&past)?;
    stage.tell("log and store of all nodes are put back from an export of before; the data stay");
    serve_again(stage)
}

/// N19: log and store of all nodes are lost, and they form a new cluster, which knows nothing, owns
/// nothing, and is right about that in every answer.
pub(super) fn rival_cluster(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.tell("n1 holds the 20 records of orders");
    stage.world.run_for(SECOND)?;
    stage.world.put_back(&Past::default())?;
    stage.tell(
        "log and store of all nodes are lost; they form a new cluster on the data of the old",
    );
    serve_again(stage)
}

fn serve_again(stage: &mut Stage) -> Verdict {
    stage.world.start_all();
    stage.world.run_until_serving()?;
    stage.until("somebody leads", 10 * SECOND, |world| world.leader().is_some())?;
    let leader = stage.world.leader().unwrap_or(L);
    stage.create(leader, "later", &[leader])?;
    stage.until_current(R)?;
    stage.world.run_for(4 * SECOND)?;
    stage.finish(3 * SECOND)
}

/// N20: an orchestrator takes a process that hangs for dead, and starts another on its directory.
pub(super) fn two_processes(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.world.pause(R);
    stage.tell_of(R, "hangs, and is taken for dead");
    stage.world.run_for(3 * SECOND)?;
    stage.world.start_beside(R)?;
    stage.world.resume(R);
    stage.world.run_for(SECOND)?;
    stage.world.start_beside(R)?;
    stage.power_cut(R);
    stage.world.start(R)?;
    stage.until_current(R)?;
    stage.finish(3 * SECOND)
}

/// N30: n2 takes n1 for dead, and gives its partition to n3 by what it saw before n1 owned it.
pub(super) fn dead_mark(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(L)?;
    let incarnation = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.produce_all(R, "orders", 20)?;
    stage.tell("n2 takes n1 for dead, and the partition for one that nobody owns yet");
    let to = PartitionRef { topic: "orders".to_owned(), incarnation, partition: 0 };
    let owner = stage.owner(M);
    let assign = AssignPartition { to: to.clone(), owner: owner.clone() };
    let assigned = stage.commit(L, &Command::AssignPartition(assign))?;
    stage.tell(format!("it is assigned to n3: {assigned:?}"));
    // The view from before the assignment: the topic was there.
    let moved = SetTarget { of: to, placed: incarnation, target: owner };
    let moved = stage.commit(L, &Command::SetTarget(moved))?;
    stage.tell(format!("it is moved to n3: {moved:?}"));
    if let Answer::MoveStarted { incarnation: moving } = moved {
        stage.complete_move(L, &super::variants::orders(incarnation), moving, 20, false)?;
    }
    stage.until_current(R)?;
    stage.world.run_for(3 * SECOND)?;
    let records = stage.produce(R, "orders", 10)?;
    if records != 10 {
        return Err(off_plot(format!("{records} of 10 records were acknowledged")));
    }
    stage.finish(3 * SECOND)
}
