//! Damage below what was synced, on one member, on a majority and on everybody (R14, R15; FAST 2018,
//! "Protocol-Aware Recovery for Consensus-Based Storage"). What some member still has whole comes
//! back to all; what nobody has whole stops the cluster, and is never made up.

use super::focus::{put, write};
use super::stage::{SECOND, Stage, off_plot};
use crate::check::{Verdict, Violation};
use crate::world::World;
use holdfast_consensus::Index;
use holdfast_consensus::job::Call;
use holdfast_consensus::message::Outcome;
use holdfast_consensus::replica::ReplicaStatus;
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

/// Damages the entries at these indexes in the log of a node.
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
    let whole = |world: &World| {
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

/// Entries of one member rot in a segment that is full, while it runs and nobody reads them. Without
/// a scrub nobody notices; with one they are found and come back, and it goes on to find the next.
pub(super) fn scrub(stage: &mut Stage) -> Verdict {
    opening(stage)?;
    write(stage, A, 20)?;
    // Nothing of the old segments is in the memory of a process that starts.
    stage.power_cut(B);
    stage.world.start(B)?;
    stage.world.run_until_serving()?;
    stage.world.run_for(SECOND)?;
    damage(stage, B, &[5, 9])?;
    stage.world.run_for(30 * SECOND)?;
    demand(stage, "scrub-off", |holes, status| {
        let seen = status.is_some_and(|s| s.damaged.is_some());
        holes == [Index(5), Index(9)] && !seen
    })?;
    stage.tell("without a scrub nobody knows: the next start would miss two entries");
    stage.world.scrub_every(SECOND / 10);
    comes_back(stage)?;
    stage.tell("with a scrub they were found, and the others gave them back");
    damage(stage, B, &[7])?;
    comes_back(stage)?;
    stage.tell("it goes on, and found the next one");
    write(stage, B, 5)?;
    stage.finish(SECOND)
}

/// Demands something of the entries that the disk of the second node has lost, as a start would
/// see it, and of what that node says of itself.
fn demand(
    stage: &Stage,
    property: &'static str,
    right: impl Fn(&[Index], Option<&ReplicaStatus>) -> bool,
) -> Verdict {
    let unreadable = |e| off_plot(format!("the log cannot be looked at: {e}"));
    let report = inspect::verify(&stage.world.disk(B)).map_err(unreadable)?;
    let holes: Vec<Index> = report.holes.iter().map(|hole| hole.index).collect();
    let status = stage.world.status(B);
    if right(&holes, status.as_ref()) {
        return Ok(());
    }
    let known = status.and_then(|status| status.damaged);
    Err(Violation::new(property, format!("missing on disk: {holes:?}; known: {known:?}")))
}

/// Demands that the second node notices what its disk has lost, and gets it back.
fn comes_back(stage: &mut Stage) -> Verdict {
    let limit = stage.world.now() + PATIENCE;
    let notices = |world: &World| world.status(B).is_some_and(|s| s.damaged.is_some());
    if !stage.world.run_until_true(notices, limit)? {
        return demand(stage, "scrub-on", |_, _| false);
    }
    repaired(stage)?;
    demand(stage, "scrub-on", |holes, _| holes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::Mode;
    use crate::choices::Choices;

    #[test]
    fn without_a_scrub_nothing_comes_back() {
        let mut stage = Stage::new(Mode::On, Choices::new(1), false);
        opening(&mut stage).expect("the cluster serves");
        damage(&mut stage, B, &[5]).expect("an entry");
        let verdict = comes_back(&mut stage).expect_err("nobody looks");
        assert_eq!(verdict.property, "scrub-on", "{verdict}");
    }
}
