//! Worlds that are hard on one thing: a snapshot that is restored, a leader that is stale, a disk
//! that is full. No broker is needed: the properties of every run are what they are held to, and
//! what was acknowledged must be there in the end, on every node.

use super::stage::{MILLI, SECOND, Stage, off_plot};
use crate::check::{Verdict, Violation};
use holdfast_consensus::job::{Call, Lane};
use holdfast_consensus::message::Outcome;
use holdfast_consensus::{Index, LogId};
use holdfast_fsm::Command;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

pub(super) fn put(number: u64) -> Command {
    let value = format!("{number:->120}").into();
    Command::KvPut { key: format!("k{}", number % 7).into(), value }
}

/// Writes through a node until so many are acknowledged, however often it must be tried.
pub(super) fn write(stage: &mut Stage, node: usize, count: u64) -> Result<LogId, Violation> {
    let (mut acknowledged, mut last) = (0, LogId::default());
    for attempt in 0..count * 20 {
        if acknowledged == count {
            return Ok(last);
        }
        match stage.world.propose(node, &put(attempt))? {
            Some(Outcome::Committed { at, .. }) => {
                acknowledged += 1;
                last = at;
            }
            _ => stage.world.run_for(100 * MILLI)?,
        }
    }
    Err(off_plot(format!("only {acknowledged} of {count} writes were acknowledged")))
}

/// Writes while it may well be refused; how many were acknowledged.
pub(super) fn try_to_write(stage: &mut Stage, node: usize, count: u64) -> Result<u64, Violation> {
    let mut acknowledged = 0;
    for number in 0..count {
        if let Some(Outcome::Committed { .. }) = stage.world.propose(node, &put(number))? {
            acknowledged += 1;
        }
        stage.world.run_for(20 * MILLI)?;
    }
    Ok(acknowledged)
}

/// A follower comes back behind everything that the log still holds, and is cut short at an
/// arbitrary operation of its disk, several times, while it installs a snapshot.
pub(super) fn snapshot_restore(stage: &mut Stage) -> Verdict {
    stage.world.set_snapshots(8, 0);
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 4)?;
    stage.power_cut(C);
    write(stage, A, 40)?;
    stage.tell(
        "n3 is down while the others write 40 entries and give up their logs behind a snapshot",
    );
    for round in 0..6 {
        let left = stage.world.draw(1, 160);
        stage.world.start(C)?;
        stage.world.disk(C).set_fuse(Some(left));
        let limit = stage.world.now() + SECOND;
        let blown = stage.world.run_until_true(|world| world.disk(C).is_blown(), limit)?;
        stage.tell_of(
            C,
            match blown {
                true => format!("is cut short after {left} operations of its disk (round {round})"),
                false => {
                    format!("did all it had to in fewer than {left} operations (round {round})")
                }
            },
        );
        stage.world.crash_losing_all(C);
        stage.world.run_for(100 * MILLI)?;
    }
    stage.world.start(C)?;
    stage.until_current(C)?;
    write(stage, A, 10)?;
    stage.finish(SECOND)
}

/// A leader stands still while another is elected and commits; it goes on with reads waiting.
pub(super) fn stale_leader(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 5)?;
    for round in 0..3 {
        // A round of its own is under way when it stops: the answers wait for it.
        let early = stage.world.call(A, Call::Barrier, 5 * SECOND)?;
        stage.world.pause(A);
        stage.tell_of(A, "stands still, and leads by its own words");
        stage
            .until("another leads", 10 * SECOND, |world| world.leader().is_some_and(|l| l != A))?;
        let leader = stage.world.leader().unwrap_or(B);
        let written = write(stage, leader, 3)?;
        stage.tell_of(leader, format!("leads, and has acknowledged {written}"));
        stage.world.resume(A);
        let read = stage.world.ask(A, Call::Barrier, 2 * SECOND)?;
        read_covers(stage, A, read.as_ref(), written.index)?;
        if let Some(Outcome::Ready { applied, .. }) = early.and_then(|t| stage.world.outcome(t)) {
            // It began before the write: any state from its own beginning on will do.
            let text = format!("answers the read that it was asked before with {applied}");
            stage.tell_of(A, text);
        }
        stage.until_current(A)?;
        stage.lead(A)?;
        stage.tell(format!("round {round} is over"));
    }
    stage.finish(SECOND)
}

fn read_covers(stage: &mut Stage, node: usize, read: Option<&Outcome>, floor: Index) -> Verdict {
    match read {
        Some(Outcome::Ready { applied, .. }) if *applied < floor => Err(Violation::new(
            "reads",
            format!("a read at n{} is answered at {applied}, {floor} was acknowledged", node + 1),
        )),
        Some(Outcome::Ready { applied, .. }) => {
            let text = format!("answers a read at {applied}, which covers {floor}");
            stage.tell_of(node, text);
            Ok(())
        }
        other => {
            stage.tell_of(node, format!("does not answer a read: {other:?}"));
            Ok(())
        }
    }
}

fn fill(stage: &mut Stage, node: usize) {
    let left = stage.world.draw(0, 60_000);
    let disk = stage.world.disk(node);
    disk.set_budget(Some(disk.used() + left));
    stage.tell_of(node, format!("has {left} bytes of its disk left"));
}

fn free(stage: &mut Stage, node: usize) {
    stage.world.disk(node).set_budget(None);
    stage.tell_of(node, "has space again");
}

/// The leader's disk fills up under writes, and has space again.
pub(super) fn full_leader(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 5)?;
    fill(stage, A);
    // Each waits for the state of n1, which stands still, for as long as it may.
    let some = try_to_write(stage, A, 40)? + try_to_write(stage, B, 160)?;
    stage.tell(format!("{some} of 200 writes through n1 and n2 are acknowledged meanwhile"));
    free(stage, A);
    write(stage, B, 10)?;
    stage.finish(SECOND)
}

/// Two of three disks fill up.
pub(super) fn full_majority(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 5)?;
    fill(stage, A);
    fill(stage, B);
    let some = try_to_write(stage, A, 300)?;
    stage.tell(format!("{some} of 300 writes are acknowledged meanwhile"));
    free(stage, A);
    free(stage, B);
    write(stage, A, 10)?;
    stage.finish(SECOND)
}

/// Disks fill up while snapshots are taken and sent.
pub(super) fn full_snapshot(stage: &mut Stage) -> Verdict {
    stage.world.set_snapshots(6, 0);
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 4)?;
    stage.power_cut(C);
    write(stage, A, 30)?;
    fill(stage, A);
    fill(stage, C);
    stage.world.start(C)?;
    let some = try_to_write(stage, A, 100)?;
    stage.tell(format!("{some} of 100 writes are acknowledged while n3 is to install a snapshot"));
    free(stage, A);
    free(stage, C);
    stage.finish(SECOND)
}

/// There is no space to write a vote down.
pub(super) fn full_vote(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 5)?;
    for node in [B, C] {
        let disk = stage.world.disk(node);
        disk.set_budget(Some(disk.used()));
        stage.tell_of(node, "has not a byte of its disk left");
    }
    stage.power_cut(A);
    stage.world.run_for(5 * SECOND)?;
    let leader = stage.world.leader();
    stage.tell(format!(
        "after 5 s without n1, {} leads",
        match leader {
            Some(node) => format!("n{}", node + 1),
            None => "nobody".to_owned(),
        }
    ));
    free(stage, B);
    free(stage, C);
    stage.world.start(A)?;
    write(stage, B, 10)?;
    stage.finish(SECOND)
}

/// A node restarts while its disk is full to the last byte.
pub(super) fn full_restart(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 20)?;
    for node in [A, B, C] {
        stage.power_cut(node);
        let disk = stage.world.disk(node);
        disk.set_budget(Some(disk.used()));
        stage.tell_of(node, "has not a byte of its disk left");
    }
    for node in [A, B, C] {
        let started = stage.world.start(node);
        stage.tell_of(
            node,
            match stage.world.is_running(node) {
                true => "starts on its full disk",
                false => "does not start on its full disk",
            },
        );
        started?;
    }
    stage.world.run_for(5 * SECOND)?;
    for node in [A, B, C] {
        free(stage, node);
    }
    stage.finish(SECOND)
}

/// The store of a node stands still while its log goes on: it falls behind and catches up.
pub(super) fn slow_store(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(A)?;
    stage.world.stall_lane(B, Lane::Apply);
    write(stage, A, 20)?;
    let applied = stage.world.status(B).map_or(Index(0), |status| status.applied.last.index);
    stage.tell_of(B, format!("has applied {applied} while its store stands still"));
    stage.world.free_lane(B, Lane::Apply);
    stage.until_current(B)?;
    stage.finish(SECOND)
}
