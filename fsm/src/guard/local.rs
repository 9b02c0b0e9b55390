//! The first line, step by step. Each step is a function that can be removed by one line, and has
//! a test that fails without it.

use super::standing::{AppliedCaughtUp, Standing, awake, identified};
use super::{Claim, Evidence, Keep, Verdict};
use crate::records::{Assignment, CopyStamp, Stamp, Tombstone};
use crate::view::{Trust, View};

/// What the own state says to the claim, if it may be believed and grants it.
pub(super) fn first_line(
    claim: &Claim,
    view: &View,
    standing: &Standing,
) -> Result<(Evidence, Verdict), Keep> {
    let evidence = believed(claim, view, standing)?;
    let verdict = judge(claim, &evidence)?;
    granted(claim, &verdict)?;
    Ok((evidence, verdict))
}

/// Whether it makes sense to ask the leader: the replica is current, and its own state does not
/// speak against the claim already. What cannot change back may be unknown here; the rest must be
/// seen here too.
pub(super) fn may_ask(claim: &Claim, view: &View, standing: &Standing) -> Result<(), Keep> {
    let evidence = believed(claim, view, standing)?;
    AppliedCaughtUp::check(standing, evidence.applied)?;
    match judge(claim, &evidence) {
        Err(Keep::Unknown { .. }) if claim.is_monotone() => Ok(()),
        Err(keep) => Err(keep),
        Ok(verdict) => granted(claim, &verdict),
    }
}

/// Reads the state, and checks everything that must hold before it is believed (R29, R30).
pub(super) fn believed(claim: &Claim, view: &View, standing: &Standing) -> Result<Evidence, Keep> {
    awake(standing)?;
    identified(standing)?;
    let evidence = view.evidence(claim).map_err(|e| Keep::Unreadable(e.to_string()))?;
    trusted(&evidence)?;
    own_cluster(claim, &evidence, standing)?;
    same_epoch(standing.state_epoch, evidence.state_epoch)?;
    own_volume(claim, standing)?;
    Ok(evidence)
}

/// A store that nobody has walked since it was opened, or that was rebuilt, proves nothing (R30).
fn trusted(evidence: &Evidence) -> Result<(), Keep> {
    match evidence.trust {
        Trust::Walked => Ok(()),
        Trust::Unwalked => Err(Keep::Unwalked),
        Trust::Rebuilt => Err(Keep::Rebuilt),
    }
}

/// Store, data plane and thing are of one cluster (N19).
fn own_cluster(claim: &Claim, evidence: &Evidence, standing: &Standing) -> Result<(), Keep> {
    let mine = evidence.cluster;
    for found in [claim.subject().cluster, standing.cluster] {
        if found != mine {
            return Err(Keep::OtherCluster { found, mine });
        }
    }
    Ok(())
}

/// What was established in another state epoch proves nothing in this one (R8, N18).
pub(super) const fn same_epoch(found: u64, mine: u64) -> Result<(), Keep> {
    if found == mine { Ok(()) } else { Err(Keep::OtherEpoch { found, mine }) }
}

/// A copy from another disk is quarantined, whatever the metadata say (R33, N21).
fn own_volume(claim: &Claim, standing: &Standing) -> Result<(), Keep> {
    let Some(copy) = claim.copy() else { return Ok(()) };
    if !copy.is_consistent() {
        return Err(Keep::BadStamp("its parts do not belong together".to_owned()));
    }
    if copy.volume != standing.volume {
        return Err(Keep::OtherVolume { found: copy.volume, mine: standing.volume });
    }
    Ok(())
}

/// Only the verdict that a claim needs grants it.
pub(super) fn granted(claim: &Claim, verdict: &Verdict) -> Result<(), Keep> {
    if claim.is_granted_by(verdict) {
        return Ok(());
    }
    match *verdict {
        Verdict::Live { incarnation } | Verdict::Moved { incarnation, .. } => {
            Err(Keep::Live { incarnation })
        }
        Verdict::Gone { .. } => Err(Keep::NotAttached { incarnation: claim.subject().incarnation }),
        Verdict::Unknown => Err(Keep::LeaderUnknown),
    }
}

/// What a state says to a claim: pure, the same for the own state and the leader's.
///
/// # Errors
/// [`Keep`] if it says neither that the claim holds nor what lives instead.
pub fn judge(claim: &Claim, evidence: &Evidence) -> Result<Verdict, Keep> {
    match claim {
        Claim::Gone(stamp) => gone(stamp, evidence),
        Claim::CopyGone(copy) => copy_gone(copy, evidence),
        Claim::MovedAway { copy, length } => moved_away(copy, *length, evidence),
        Claim::Current { attachment, file } => current(attachment, file.as_ref(), evidence),
    }
}

/// Positive evidence alone: a missing row proves nothing (R29, N1, N16).
fn gone(stamp: &Stamp, evidence: &Evidence) -> Result<Verdict, Keep> {
    if is_live(stamp, evidence) {
        return Ok(Verdict::Live { incarnation: stamp.incarnation });
    }
    match tombstone_of(stamp, evidence) {
        Some(tombstone) => {
            same_epoch(tombstone.epoch, evidence.state_epoch)?;
            Ok(Verdict::Gone { deleted_at: tombstone.deleted_at })
        }
        None if stamp.epoch != evidence.state_epoch => {
            Err(Keep::OtherEpoch { found: stamp.epoch, mine: evidence.state_epoch })
        }
        None => Err(Keep::Unknown { incarnation: stamp.incarnation, applied: evidence.applied }),
    }
}

/// The tombstone of exactly this stamp: not of its name, not of its incarnation alone (N25).
fn tombstone_of<'a>(stamp: &Stamp, evidence: &'a Evidence) -> Option<&'a Tombstone> {
    evidence.tombstones.iter().find(|tombstone| tombstone.stamp == *stamp)
}

/// True if exactly this lives, in whatever epoch it was made (R8).
fn is_live(stamp: &Stamp, evidence: &Evidence) -> bool {
    let topic = evidence.topic.as_ref().is_some_and(|topic| topic.stamp == *stamp);
    let link = evidence.link.as_ref().is_some_and(|link| link.stamp == *stamp);
    let placed = evidence.assignment.as_ref().is_some_and(|row| places(row, stamp));
    topic || link || placed
}

/// True if this is the placement in force, or the move under way.
fn places(row: &Assignment, stamp: &Stamp) -> bool {
    row.stamp == *stamp || row.target.as_ref().is_some_and(|target| target.stamp == *stamp)
}

fn copy_gone(copy: &CopyStamp, evidence: &Evidence) -> Result<Verdict, Keep> {
    match gone(&copy.topic, evidence) {
        Ok(Verdict::Live { .. }) => gone(&copy.placed, evidence),
        verdict => verdict,
    }
}

/// The four conditions of R33.
fn moved_away(copy: &CopyStamp, length: u64, evidence: &Evidence) -> Result<Verdict, Keep> {
    let row = evidence.assignment.as_ref().ok_or(Keep::NoOwner)?;
    of_the_same_topic(copy, row)?;
    newer_placement(copy, row)?;
    another_owner(copy, row)?;
    long_enough(length, row)?;
    not_forced(copy, row)?;
    Ok(Verdict::Moved { incarnation: row.stamp.incarnation, length: row.length })
}

fn of_the_same_topic(copy: &CopyStamp, row: &Assignment) -> Result<(), Keep> {
    same_epoch(copy.placed.epoch, row.stamp.epoch)?;
    if row.topic == copy.topic && row.partition == copy.partition {
        return Ok(());
    }
    Err(Keep::NoOwner)
}

/// Ownership may come back; a placement never does (N23).
fn newer_placement(copy: &CopyStamp, row: &Assignment) -> Result<(), Keep> {
    let (placed, mine) = (row.stamp.incarnation, copy.placed.incarnation);
    if placed > mine { Ok(()) } else { Err(Keep::NotNewer { placed, mine }) }
}

fn another_owner(copy: &CopyStamp, row: &Assignment) -> Result<(), Keep> {
    if row.owner.volume == copy.volume { Err(Keep::OwnPartition) } else { Ok(()) }
}

/// The owner holds at least what would be destroyed, and has said so in the log.
const fn long_enough(length: u64, row: &Assignment) -> Result<(), Keep> {
    if row.length >= length {
        return Ok(());
    }
    Err(Keep::Shorter { reported: row.length, mine: length })
}

/// A copy from before a forced move may hold the only tail (N22).
fn not_forced(copy: &CopyStamp, row: &Assignment) -> Result<(), Keep> {
    match row.forced_at {
        Some(at) if at > copy.placed.incarnation => Err(Keep::Forced { at }),
        _ => Ok(()),
    }
}

/// Which attachment is in force. A file of a newer one means that this replica is behind (R36).
fn current(attachment: &Stamp, file: Option<&Stamp>, evidence: &Evidence) -> Result<Verdict, Keep> {
    if let Some(file) = file {
        older_file(attachment, file)?;
    }
    match &evidence.link {
        Some(link) if link.stamp == *attachment => {
            Ok(Verdict::Live { incarnation: attachment.incarnation })
        }
        _ => Err(Keep::NotAttached { incarnation: attachment.incarnation }),
    }
}

fn older_file(attachment: &Stamp, file: &Stamp) -> Result<(), Keep> {
    let comparable = (file.cluster, file.group) == (attachment.cluster, attachment.group);
    if !comparable || file.kind != attachment.kind || file.name != attachment.name {
        return Err(Keep::BadStamp("the file is of another attachment".to_owned()));
    }
    same_epoch(file.epoch, attachment.epoch)?;
    let (file, mine) = (file.incarnation, attachment.incarnation);
    if file > mine { Err(Keep::Behind { file, mine }) } else { Ok(()) }
}
