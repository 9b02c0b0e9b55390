//! The liveness budget of the guard (SCENARIOS 5): a guard that never lets go is a bug too.
//!
//! In a healthy cluster an orphan goes within 60 s of the start, an accepted record of a deleted
//! topic within three passes of the dispatcher, and a cursor is anchored within 2 s of its
//! attachment; also after a change of leaders, on a single node, in a cluster that writes nothing,
//! and with a member that is away for good. Without a quorum nothing goes, and all of it goes on
//! within 10 s of its return. The budget is demanded with the guard on.

use super::stage::{MILLI, SECOND, Stage};
use crate::broker::layout;
use crate::broker::ledger::Place;
use crate::broker::{Mode, wants};
use crate::check::{Verdict, Violation};
use crate::world::World;
use holdfast_consensus::Micros;

/// Name of the property.
const PROPERTY: &str = "guard-liveness";

const R: usize = 0;
const L: usize = 1;
const M: usize = 2;

/// From the start of a node until its orphans are gone.
const ORPHAN: Micros = 60 * SECOND;
/// From an attachment until its cursor runs.
const ANCHOR: Micros = 2 * SECOND;
/// From the return of a quorum until everything goes on.
const RESUME: Micros = 10 * SECOND;

/// Three passes of the dispatcher, and the time that an answer takes.
fn discard() -> Micros {
    let pass = wants::TASKS.iter().find(|(task, _)| *task == wants::Task::Dispatch);
    pass.map_or(0, |(_, pause)| 3 * pause) + 100 * MILLI
}

fn first(topic: &str, incarnation: u64) -> Place {
    Place { topic: topic.to_owned(), incarnation, partition: 0 }
}

fn has_directory(world: &World, node: usize, place: &Place) -> bool {
    layout::is_there(&world.disk(node), place).unwrap_or(true)
}

/// Demands that it is true within a time, with the guard on.
fn within(
    stage: &mut Stage,
    what: &str,
    limit: Micros,
    done: impl FnMut(&World) -> bool,
) -> Verdict {
    let began = stage.world.now();
    let so = stage.world.run_until_true(done, began + limit)?;
    let took = (stage.world.now() - began) / MILLI;
    if so {
        stage.tell(format!("{what}: after {took} ms, of {} ms", limit / MILLI));
        return Ok(());
    }
    match stage.mode {
        Mode::On => Err(Violation::new(PROPERTY, format!("{what}: not within {took} ms"))),
        _ => {
            stage.tell(format!("{what}: not within {took} ms"));
            Ok(())
        }
    }
}

/// A topic of R is deleted while R is down; R starts, and its directory goes.
fn orphan(stage: &mut Stage, through: usize, topic: &str) -> Verdict {
    let incarnation = stage.create(through, topic, &[R])?;
    let place = first(topic, incarnation);
    let made = place.clone();
    stage
        .until("the directory is there", 2 * SECOND, move |world| has_directory(world, R, &made))?;
    stage.power_cut(R);
    stage.delete(through, topic)?;
    stage.world.run_for(2 * SECOND)?;
    stage.world.start(R)?;
    within(stage, "an orphan goes", ORPHAN, move |world| !has_directory(world, R, &place))
}

/// A child is attached, and its cursor runs.
fn anchor(stage: &mut Stage, through: usize, child: &str, parent: &str) -> Verdict {
    let attachment = stage.attach(through, child, parent, SECOND)?;
    let child = child.to_owned();
    within(stage, "a cursor is anchored", ANCHOR, move |world| {
        world.has_cursor(R, &child, attachment)
    })
}

/// A record is accepted for an owner that cannot be reached, and its topic is deleted.
fn discarded(stage: &mut Stage, through: usize) -> Verdict {
    stage.world.cut(R, L);
    stage.world.cut(L, R);
    stage.create(through, "short-lived", &[L])?;
    stage.until_current(R)?;
    stage.produce_all(R, "short-lived", 5)?;
    stage.delete(through, "short-lived")?;
    stage.until_current(R)?;
    let gone = within(stage, "accepted records of a deleted topic go", discard(), |world| {
        world.accepted_records(R) == 0
    });
    stage.world.mend(R, L);
    stage.world.mend(L, R);
    gone
}

/// Three nodes.
pub(super) fn budget(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(M)?;
    stage.create(M, "orders", &[R])?;
    stage.create(M, "retry", &[R])?;
    anchor(stage, M, "retry", "orders")?;
    discarded(stage, M)?;
    orphan(stage, M, "old")?;
    stage.tell("n2 leads from now on");
    stage.until_current(R)?;
    stage.lead(L)?;
    orphan(stage, L, "older")?;
    stage.detach(L, "retry")?;
    anchor(stage, L, "retry", "orders")?;
    stage.tell("n3 is away for good");
    stage.power_cut(M);
    let incarnation = stage.create(L, "oldest", &[R])?;
    let place = first("oldest", incarnation);
    let made = place.clone();
    stage.until("the copy is there", 2 * SECOND, move |world| has_directory(world, R, &made))?;
    stage.delete(L, "oldest")?;
    within(stage, "a copy goes", ORPHAN, move |world| !has_directory(world, R, &place))?;
    without_quorum(stage)?;
    stage.world.start(M)?;
    stage.finish(3 * SECOND)
}

/// Without a quorum nothing goes; when it returns, everything goes on. N3 is down already.
fn without_quorum(stage: &mut Stage) -> Verdict {
    let incarnation = stage.create(L, "last", &[R])?;
    let place = first("last", incarnation);
    let made = place.clone();
    stage
        .until("the directory is there", 2 * SECOND, move |world| has_directory(world, R, &made))?;
    stage.world.start(M)?;
    stage.power_cut(R);
    stage.delete(L, "last")?;
    stage.world.run_for(SECOND)?;
    stage.power_cut(L);
    stage.power_cut(M);
    stage.world.start(R)?;
    stage.tell("n1 is alone");
    let alone = place.clone();
    let limit = stage.world.now() + 15 * SECOND;
    let went = stage.world.run_until_true(|world| !has_directory(world, R, &alone), limit)?;
    if went && stage.mode == Mode::On {
        let what = "the directory went without a quorum that could know";
        return Err(Violation::new(PROPERTY, what));
    }
    stage.tell("n2 comes back");
    stage.world.start(L)?;
    within(stage, "with a quorum the orphan goes", RESUME, move |world| {
        !has_directory(world, R, &place)
    })
}

/// A single node: everything is its own to know.
pub(super) fn budget_alone(stage: &mut Stage) -> Verdict {
    stage.replace_nodes(&["n1"]);
    stage.open()?;
    stage.create(R, "orders", &[R])?;
    stage.create(R, "retry", &[R])?;
    anchor(stage, R, "retry", "orders")?;
    let incarnation = stage.create(R, "old", &[R])?;
    let place = first("old", incarnation);
    let made = place.clone();
    stage
        .until("the directory is there", 2 * SECOND, move |world| has_directory(world, R, &made))?;
    stage.delete(R, "old")?;
    stage.power_cut(R);
    stage.world.start(R)?;
    within(stage, "an orphan goes", ORPHAN, move |world| !has_directory(world, R, &place))?;
    stage.produce_all(R, "orders", 5)?;
    stage.finish(5 * SECOND)
}
