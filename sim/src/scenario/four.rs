//! The four losses (SCENARIOS 1 to 4), as they happened.
//!
//! In each of them a node comes back with a state that is older than its data: its store is as of
//! its last checkpoint, S, its log is whole, and what is committed behind S it has yet to learn.
//! In the first three the link is one-way for a while: it hears a leader, but its answers are
//! lost, so that it learns nothing while it believes that it has nothing to learn.

use super::stage::{MILLI, SECOND, Stage, off_plot};
use crate::check::Verdict;
use holdfast_consensus::job::Lane;

/// The node that comes back.
const R: usize = 0;
/// The node that leads.
const L: usize = 1;
/// The third.
const M: usize = 2;

/// So many records are.
fn are(records: u64) -> String {
    match records {
        1 => "1 record is".to_owned(),
        some => format!("{some} records are"),
    }
}

/// Everybody runs and R owns what it is to own.
fn opening(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.create(L, "audit", &[L])?;
    age(stage)
}

/// R is restarted so that its store is as of now after its next crash, and L leads.
pub(super) fn age(stage: &mut Stage) -> Verdict {
    stage.until_current(R)?;
    stage.world.run_for(2 * SECOND)?;
    stage.no_more_checkpoints();
    stage.world.crash(R, false);
    stage.world.start(R)?;
    stage.world.run_until_serving()?;
    stage.lead(L)?;
    stage.until_current(R)?;
    // The watermark of the quiet cluster becomes durable; nothing behind it will.
    stage.world.run_for(3 * SECOND)?;
    let applied = stage.world.status(R).map_or(0, |status| status.applied.last.index.0);
    stage.tell_of(R, format!("has its last checkpoint behind it: S is at most {applied}"));
    Ok(())
}

/// While R is down the others go on, under a new leader, so that R hears of more than it has.
pub(super) fn meanwhile(stage: &mut Stage) -> Verdict {
    stage.create(L, "later", &[M])?;
    stage.lead(M)?;
    stage.create(M, "latest", &[M])?;
    stage.world.run_for(500 * MILLI)
}

/// R comes back, hears the leader and is not heard.
fn comes_back(stage: &mut Stage) -> Verdict {
    stage.start_unheard(R, M)?;
    let applied = stage.world.status(R).map_or(0, |status| status.applied.last.index.0);
    let committed = stage.world.committed_index();
    stage.tell_of(R, format!("is back with its state of {applied}; committed is {committed}"));
    stage.world.run_for(3 * SECOND)?;
    stage.tell_of(R, "is heard again, and catches up");
    stage.hear(R);
    stage.until_current(R)
}

/// SCENARIOS 1: topic created behind S, its data written, the node restarted; the sweep of the
/// start finds a directory of a topic that the old state does not know.
pub(super) fn orphan_sweep(stage: &mut Stage) -> Verdict {
    opening(stage)?;
    let incarnation = stage.create(L, "orders", &[R])?;
    stage.until_current(R)?;
    stage.tell(format!("orders is created at {incarnation}, n1 owns its partition"));
    let records = stage.produce_all(R, "orders", 20)?;
    stage.tell(format!("{} acknowledged by n1, the only node that holds them", are(records)));
    stage.power_cut(R);
    meanwhile(stage)?;
    comes_back(stage)?;
    stage.finish(5 * SECOND)
}

/// SCENARIOS 2: the child is attached anew behind S; the old state knows the old attachment, finds
/// the cursor's file to be of another, anchors at the tail and overwrites it.
pub(super) fn stale_cursor(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.create(L, "orders", &[R])?;
    stage.create(L, "retry", &[R])?;
    let dead = stage.attach(L, "retry", "orders", 20 * SECOND)?;
    age(stage)?;
    stage.detach(L, "retry")?;
    let live = stage.attach(L, "retry", "orders", 20 * SECOND)?;
    stage.until_current(R)?;
    stage.tell(format!(
        "retry is detached ({dead}) and attached again ({live}) with a delay of 20 s"
    ));
    let attached = stage.world.now();
    stage.until("the cursor runs", SECOND, |world| world.has_cursor(R, "retry", live))?;
    let records = stage.produce_all(R, "orders", 60)?;
    stage.tell(format!(
        "{} acknowledged; the child is owed what comes in, after a delay",
        are(records)
    ));
    if stage.world.now() > attached + 900 * MILLI {
        return Err(off_plot("the power must be cut before the watermark is durable"));
    }
    stage.power_cut(R);
    meanwhile(stage)?;
    comes_back(stage)?;
    stage.finish(25 * SECOND)
}

/// SCENARIOS 3: records of a topic behind S are accepted for an owner that cannot be reached; the
/// dispatcher of the restarted node takes the topic for deleted and moves its checkpoint past them.
pub(super) fn discarded_records(stage: &mut Stage) -> Verdict {
    opening(stage)?;
    stage.world.cut(R, L);
    stage.create(L, "orders", &[L])?;
    stage.until_current(R)?;
    let records = stage.produce_all(R, "orders", 20)?;
    stage.tell(format!(
        "{} answered 202 by n1, which is not the owner, n2, and keeps them in its own log until it gets them there", are(records)
    ));
    stage.power_cut(R);
    meanwhile(stage)?;
    comes_back(stage)?;
    stage.finish(5 * SECOND)
}

/// SCENARIOS 4: two of three nodes lose their power; the one that comes back first has a whole log
/// and wins, while its state is still at S. The third answers slowly: nothing is committed yet in
/// the new term.
pub(super) fn fresh_leader(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.create(L, "orders", &[R])?;
    stage.create(L, "retry", &[R])?;
    let dead = stage.attach(L, "retry", "orders", 20 * SECOND)?;
    age(stage)?;
    // M misses what follows: it cannot win against R.
    stage.world.isolate(M);
    stage.detach(L, "retry")?;
    let live = stage.attach(L, "retry", "orders", 20 * SECOND)?;
    stage.until_current(R)?;
    stage.tell(format!(
        "retry is detached ({dead}) and attached again ({live}) with a delay of 20 s"
    ));
    stage.until("the cursor runs", SECOND, |world| world.has_cursor(R, "retry", live))?;
    let records = stage.produce_all(R, "orders", 60)?;
    stage.tell(format!(
        "{} acknowledged; the child is owed what comes in, after a delay",
        are(records)
    ));
    stage.power_cut(R);
    stage.power_cut(L);
    stage.world.rejoin(M);
    stage.world.run_for(300 * MILLI)?;
    stage.world.start(R)?;
    stage.until("n1 leads", 10 * SECOND, |world| world.leader() == Some(R))?;
    stage.world.stall_lane(M, Lane::Log);
    let (term, applied) = stage
        .world
        .status(R)
        .map_or((0, 0), |status| (status.hard.term.0, status.applied.last.index.0));
    let committed = stage.world.committed_index();
    stage.tell_of(
        R,
        format!("leads in term {term} with its state of {applied}; committed is {committed}"),
    );
    stage.world.run_for(SECOND)?;
    stage.tell("the disk of n3 is quick again, and n2 comes back");
    stage.world.free_lane(M, Lane::Log);
    stage.world.start(L)?;
    stage.until_current(R)?;
    stage.finish(25 * SECOND)
}
