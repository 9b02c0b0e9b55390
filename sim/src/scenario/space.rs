//! Worlds whose disks are full for longer than anybody waits, and one whose syncs fail.

use super::focus::{put, try_to_write, write};
use super::stage::{MILLI, SECOND, Stage};
use crate::check::{Verdict, Violation};
use holdfast_consensus::fault::Refusal;
use holdfast_consensus::job::Call;
use holdfast_consensus::message::Outcome;
use holdfast_fsm::Command;
use holdfast_log::mem_disk::{Op, SECTOR};

const A: usize = 0;
const ALL: [usize; 3] = [0, 1, 2];
/// Writes that are tried until the log has no room left for another.
const TRIES: u64 = 600;
/// How long the disks stay full: longer than a store is retried after another fault, and than the
/// attempts to reopen a failed log would last.
const LONG: u64 = 180 * SECOND;

fn broken(why: impl Into<String>) -> Violation {
    Violation::new("full-disk", why)
}

/// R45: all disks are full for minutes. Writes are refused by name; reads, votes and deletes are
/// served; nobody stops; a node that restarts comes back without a free byte; and everything goes
/// on by itself once there is space.
pub(super) fn full_for_long(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 5)?;
    stage.world.run_for(2 * SECOND)?;
    for node in ALL {
        let disk = stage.world.disk(node);
        // What this disk wants for a name, even for one that takes the place of another.
        disk.set_budget(Some(disk.used() + SECTOR as u64));
    }
    stage.tell("no disk has a free byte");
    let refused = until_refused(stage)?;
    stage.tell(format!("after {refused} more writes a write is refused with disk_full"));
    stage.world.run_for(LONG)?;
    for node in ALL {
        let Some(status) = stage.world.status(node) else {
            return Err(broken(format!("n{} stopped on its full disk", node + 1)));
        };
        if status.no_space.is_none() {
            return Err(broken(format!("n{} does not say that its disk is full", node + 1)));
        }
    }
    served(stage)?;
    let dies = stage.world.leader().unwrap_or(A);
    stage.power_cut(dies);
    stage.until("full disks elect another leader", 20 * SECOND, |world| {
        world.leader().is_some_and(|leader| leader != dies)
    })?;
    let disk = stage.world.disk(dies);
    disk.set_budget(Some(disk.used() + SECTOR as u64));
    stage.world.start(dies)?;
    if !stage.world.is_running(dies) {
        return Err(broken(format!("n{} does not start on its full disk", dies + 1)));
    }
    stage.tell_of(dies, "starts on its full disk");
    stage.world.run_for(5 * SECOND)?;
    for node in ALL {
        stage.world.disk(node).set_budget(None);
    }
    stage.tell("there is space again");
    stage.until("the alarms end", 20 * SECOND, |world| {
        ALL.iter().all(|n| world.status(*n).is_some_and(|s| s.no_space.is_none()))
    })?;
    write(stage, A, 10)?;
    stage.finish(SECOND)
}

/// R45: a member has been full for long, and holds nothing that it was sent and cannot write: it
/// votes when the leader dies, for one that is full as well.
pub(super) fn full_one_by_one(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 5)?;
    stage.world.run_for(2 * SECOND)?;
    for node in [2, 1] {
        let disk = stage.world.disk(node);
        disk.set_budget(Some(disk.used() + SECTOR as u64));
        let acknowledged = try_to_write(stage, A, 150)?;
        let n = node + 1;
        stage.tell(format!("n{n} is full; of 150 writes {acknowledged} are acknowledged"));
    }
    let disk = stage.world.disk(A);
    disk.set_budget(Some(disk.used() + SECTOR as u64));
    let dies = stage.world.leader().unwrap_or(A);
    stage.tell(format!("no disk has a free byte; n{} leads and dies", dies + 1));
    stage.power_cut(dies);
    stage.until("full disks elect another leader", 20 * SECOND, |world| {
        world.leader().is_some_and(|leader| leader != dies)
    })?;
    for node in ALL {
        stage.world.disk(node).set_budget(None);
    }
    stage.world.start(dies)?;
    write(stage, A, 10)?;
    stage.finish(SECOND)
}

/// Writes until one is refused by name; how many were acknowledged.
fn until_refused(stage: &mut Stage) -> Result<u64, Violation> {
    let mut acknowledged = 0;
    for number in 0..TRIES {
        match stage.world.propose(A, &put(number))? {
            Some(Outcome::Committed { .. }) => acknowledged += 1,
            Some(Outcome::NotCommitted(Refusal::DiskFull)) => return Ok(acknowledged),
            _ => stage.world.run_for(100 * MILLI)?,
        }
    }
    Err(broken(format!("{TRIES} writes to full disks, and none was refused with disk_full")))
}

/// Reads are answered, and what frees space is taken.
fn served(stage: &mut Stage) -> Verdict {
    let read = stage.world.ask(A, Call::Barrier, 5 * SECOND)?;
    if !matches!(read, Some(Outcome::Ready { .. })) {
        return Err(broken(format!("a read at n1 is answered with {read:?}")));
    }
    let freed = stage.world.propose(A, &Command::KvDelete { key: "k0".into() })?;
    let how = match freed {
        Some(Outcome::Committed { .. }) => "is taken",
        // What is left of the last segment is for votes,
        Some(Outcome::NotCommitted(Refusal::DiskFull)) => "is refused by name",
        // on the followers too, and the leader cannot know that of them.
        Some(Outcome::Unknown(Refusal::Deadline)) => "waits for space on a majority",
        other => return Err(broken(format!("a delete is answered with {other:?}"))),
    };
    stage.tell(format!("meanwhile a read is answered and a delete {how}"));
    Ok(())
}

/// B36, R12: a sync fails once, and every later one of that file succeeds without writing what the
/// failed one was to write. Then the power goes, everywhere at once. The leader and a follower
/// together, so that a majority would lose what it acknowledged.
pub(super) fn failed_sync(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 5)?;
    for round in 0..4 {
        let leader = stage.world.leader().unwrap_or(A);
        let follower = (leader + 1) % ALL.len();
        let before = [leader, follower].map(|n| stage.world.disk(n).counts().failed);
        for node in [leader, follower] {
            stage.world.disk(node).fail_next(Op::Sync, "log/");
        }
        for number in 0..3 {
            // Acknowledged or not: what was is demanded in the end.
            stage.world.propose(leader, &put(number))?;
        }
        let after = [leader, follower].map(|n| stage.world.disk(n).counts().failed);
        if before.iter().zip(&after).any(|(before, after)| before == after) {
            return Err(broken("no sync failed: the scenario shows nothing"));
        }
        let written = write(stage, leader, 3)?;
        stage.tell(format!(
            "round {round}: a sync failed at n{} and n{}; {written} is acknowledged, and the power goes",
            leader + 1,
            follower + 1
        ));
        for node in ALL {
            stage.world.crash_losing_all(node);
        }
        for node in ALL {
            stage.world.start(node)?;
        }
        stage.world.run_until_serving()?;
    }
    stage.finish(SECOND)
}
