//! The start: log, snapshots and store are brought together, or the replica refuses.

use super::receive::missing_snapshot;
use crate::fault::{NEVER_OLDER, NO_REPLACEMENT, StopReason};
use crate::traits::{Applied, LogStore};
use crate::types::{Index, LogId, Recovered};

/// Compares what log, snapshots and store say, and redoes the base of a received snapshot whose
/// install was cut short (R25). Every crash point of an install ends in one of these rows:
///
/// - a snapshot above the base whose entry the log does not hold: the base is put there (again);
/// - a store behind the base: it is restored from the snapshot before anything is applied;
/// - a store ahead of its log: evidence of a lost log (R1); refused, nothing changed.
pub(super) fn reconcile<L: LogStore>(
    log: &mut L,
    applied: Applied,
) -> Result<Recovered, StopReason> {
    let mut recovered = log.recovered();
    if recovered.held.is_some() {
        // It proves too little to be compared with anything, and nothing of it may change.
        return Ok(recovered);
    }
    if let Some(meta) = recovered.snapshot.clone() {
        // A snapshot of the own state lies within the log and needs no base.
        let held = recovered.may_hold(meta.last);
        if meta.last.index > recovered.base.index && !held {
            log.reset(&meta).map_err(StopReason::Log)?;
            recovered = log.recovered();
            recovered.snapshot = Some(meta);
        }
    }
    let (last, base) = (applied.last, recovered.base);
    if last.index > recovered.last.index {
        return Err(StopReason::NeedsOperator(format!(
            "the store has applied {last}, but the log ends at {}: the log was lost or replaced by \
             an older one, and this member may have voted for what it no longer knows; put the log \
             back that this store was fed by, {NEVER_OLDER}. {NO_REPLACEMENT}",
            recovered.last
        )));
    }
    let contradicts =
        last.index >= base.index && last.index > Index(0) && !recovered.may_hold(last);
    if contradicts {
        return Err(contradiction(last, &recovered));
    }
    let covered = recovered.snapshot.as_ref().is_some_and(|meta| meta.last.index >= base.index);
    if last.index < base.index && !covered {
        return Err(missing_snapshot(last, base.index));
    }
    Ok(recovered)
}

fn contradiction(applied: LogId, recovered: &Recovered) -> StopReason {
    let held = recovered.term_at(applied.index).unwrap_or_default();
    StopReason::Diverged {
        at: applied.index,
        detail: format!(
            "the store has applied {applied}, but the log holds an entry of {held} there; log and \
             store do not belong together"
        ),
    }
}
