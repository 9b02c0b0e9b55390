//! Who answers, and who does not (SCENARIOS 6): leaders of a minority, nodes whose questions come to
//! nothing, and a world in which a name means something new.

use super::four::{age, meanwhile};
use super::stage::{SECOND, Stage};
use super::waits::copied_to;
use crate::check::Verdict;

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

/// N7 and N4: a leader hangs with the node that asks it, cut off from the rest, which goes on
/// without them. Back again it still takes itself for the leader, and the asker does so too.
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
        stage.world.pause(*node);
    }
    split(stage, off);
    stage.tell_of(leader, "leads, and hangs, cut off from the majority");
    stage.until("the majority has a leader", 10 * SECOND, move |world| {
        world.leader().is_some_and(|now| now != leader)
    })?;
    let next = stage.world.leader().unwrap_or(M);
    moving.ends(stage, next)?;
    stage.tell("the majority ends a move to n1, which holds the only copy now");
    stage.tell_of(leader, "goes on, and takes itself for the leader; the sweep of n1 is first");
    if leader != R {
        stage.world.resume(leader);
    }
    stage.world.resume_sweeping(R)?;
    stage.world.run_for(3 * SECOND)?;
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
