//! Damage below what was synced, on one member, on a majority and on everybody (R14, R15; FAST 2018,
//! "Protocol-Aware Recovery for Consensus-Based Storage"). What some member still has whole comes
//! back to all; what nobody has whole stops the cluster, and is never made up.

use super::focus::{put, write};
use super::stage::{SECOND, Stage, off_plot};
use crate::check::{Verdict, Violation};
use holdfast_consensus::job::Call;
use holdfast_consensus::message::Outcome;
use holdfast_log::inspect;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const ALL: [usize; 3] = [A, B, C];

/// How long members may take to repair one another.
const PATIENCE: u64 = 15 * SECOND;

/// Twenty acknowledged writes, proved durable on every disk.
fn opening(stage: &mut Stage) -> Verdict {
    stage.open()?;
    stage.lead(A)?;
    write(stage, A, 20)?;
    stage.world.run_for(2 * SECOND)
}

/// Damages the entries at these indexes in the log of a node without power.
fn damage(stage: &mut Stage, node: usize, indexes: &[u64]) -> Verdict {
    let unreadable = |e| off_plot(format!("the log cannot be looked at: {e}"));
    let records = inspect::records(&stage.world.disk(node)).map_err(unreadable)?;
    let mut hit = Vec::new();
    for record in records {
        let record = record.map_err(unreadable)?;
        let entry = record.kind == "entry" || record.kind == "repair";
        if entry && record.ok && indexes.contains(&record.index.0) {
            hit.push((record.file, record.offset + record.len - 9));
        }
    }
    if hit.len() < indexes.len() {
        return Err(off_plot(format!("{} of {} entries were found", hit.len(), indexes.len())));
    }
    for (file, offset) in hit {
        stage.world.flip(node, &file, offset, 3)?;
    }
    stage.tell_of(node, format!("has lost the entries {indexes:?} of its log"));
    Ok(())
}

/// Damages both copies of the newest segment's header: nothing tells where its records belong.
fn lose_proof(stage: &mut Stage, node: usize) -> Verdict {
    let files = stage.world.disk(node).files();
    let newest = files.into_keys().rfind(|path| path.starts_with("log/0"));
    let newest = newest.ok_or_else(|| off_plot("there is no segment"))?;
    for offset in [48, 4096 + 48] {
        stage.world.flip(node, &newest, offset, 3)?;
    }
    stage.tell_of(node, "has lost the header of its newest segment");
    Ok(())
}

fn all_down(stage: &mut Stage) {
    for node in ALL {
        stage.power_cut(node);
    }
}

/// Demands that everybody serves again with nothing damaged: each entry is whole somewhere.
fn repaired(stage: &mut Stage) -> Verdict {
    let limit = stage.world.now() + PATIENCE;
    let whole = |world: &crate::world::World| {
        let whole = |node: usize| world.status(node).is_some_and(|s| s.damaged.is_none());
        world.is_serving() && ALL.into_iter().all(whole)
    };
    match stage.world.run_until_true(whole, limit)? {
        true => {
            stage.tell("everybody has everything back, and serves");
            Ok(())
        }
        false => Err(Violation::new(
            "progress",
            format!(
                "not repaired within {} s although every entry is whole somewhere",
                PATIENCE / SECOND
            ),
        )),
    }
}

/// Demands that nobody leads, takes a write or answers a read.
fn stands_still(stage: &mut Stage) -> Result<String, Violation> {
    stage.world.run_for(PATIENCE)?;
    let wrong = |what: String| Violation::new("serves-what-is-lost", what);
    if let Some(leader) = stage.world.leader() {
        return Err(wrong(format!("n{} leads", leader + 1)));
    }
    let mut reasons = Vec::new();
    for node in ALL {
        let command = put(99).encode(None).map_err(|e| off_plot(e.to_string()))?;
        let write = stage.world.ask(node, Call::Propose { command }, SECOND)?;
        if matches!(write, Some(Outcome::Committed { .. })) {
            return Err(wrong(format!("n{} takes a write: {write:?}", node + 1)));
        }
        let read = stage.world.ask(node, Call::Barrier, SECOND)?;
        if matches!(read, Some(Outcome::Ready { .. })) {
            return Err(wrong(format!("n{} answers a read: {read:?}", node + 1)));
        }
        let why = match stage.world.status(node) {
            Some(status) => status.not_ready.ok_or_else(|| wrong("it says it is ready".into()))?,
            None => "is down".to_owned(),
        };
        stage.tell_of(node, why.clone());
        reasons.push(why);
    }
    reasons.into_iter().next().ok_or_else(|| off_plot("nobody is there"))
}

/// One member has lost three entries: it starts, and the others give them back.
pub(super) fn one(stage: &mut Stage) -> Verdict {
    opening(stage)?;
    stage.power_cut(B);
    damage(stage, B, &[5, 9, 14])?;
    stage.world.start(B)?;
    repaired(stage)?;
    write(stage, B, 5)?;
    stage.finish(SECOND)
}

/// A majority is damaged: first at the same entries, which the third has whole, then at different
/// ones.
pub(super) fn majority(stage: &mut Stage) -> Verdict {
    opening(stage)?;
    all_down(stage);
    damage(stage, B, &[5, 9])?;
    damage(stage, C, &[5, 9])?;
    stage.world.start_all();
    repaired(stage)?;
    write(stage, A, 5)?;
    stage.world.run_for(2 * SECOND)?;
    all_down(stage);
    damage(stage, A, &[6, 12])?;
    damage(stage, C, &[7, 11])?;
    stage.world.start_all();
    repaired(stage)?;
    write(stage, C, 5)?;
    stage.finish(SECOND)
}

/// Every copy of the log is damaged somewhere, and each entry is whole on two members: nobody has a
/// whole log, nobody may stand, and everything must come back.
pub(super) fn disjoint(stage: &mut Stage) -> Verdict {
    opening(stage)?;
    all_down(stage);
    for node in ALL {
        let mine: Vec<u64> = (3..=20).filter(|index| index % 3 == node as u64).collect();
        damage(stage, node, &mine)?;
    }
    stage.world.start_all();
    repaired(stage)?;
    write(stage, B, 5)?;
    stage.finish(SECOND)
}

/// An acknowledged entry is damaged on every member: nobody can give it back, and nobody makes it
/// up. The cluster stands still and says why.
pub(super) fn everywhere(stage: &mut Stage) -> Verdict {
    opening(stage)?;
    all_down(stage);
    for node in ALL {
        damage(stage, node, &[7])?;
    }
    stage.world.start_all();
    let why = stands_still(stage)?;
    stage.stands_still(why);
    Ok(())
}

/// Two of three members prove too little and are held: the third promises nothing alone.
pub(super) fn held_majority(stage: &mut Stage) -> Verdict {
    opening(stage)?;
    all_down(stage);
    lose_proof(stage, A)?;
    lose_proof(stage, B)?;
    stage.world.start_all();
    let why = stands_still(stage)?;
    stage.stands_still(why);
    Ok(())
}
