//! Turns the replica's events into log lines and counters.

use crate::metrics::Metrics;
use holdfast_consensus::event::{Event, RoleKind};
use holdfast_consensus::{MemberId, Membership};
use std::sync::atomic::Ordering;

/// Reports an event. `names` is the configuration in force.
pub(super) fn report(event: &Event, names: &Membership, metrics: &Metrics) {
    let name = |member: &MemberId| names.name_of(*member);
    match event {
        Event::Role { role, term } => {
            metrics.event("role_change");
            let word = role.as_str();
            // A node without a quorum asks again and again; the warning of whom it waits for,
            // about once a second, says it all.
            if *role == RoleKind::PreCandidate {
                tracing::debug!(role = word, term = term.0, "this node is {word}");
            } else {
                tracing::info!(role = word, term = term.0, "this node is {word}");
            }
        }
        Event::Leader { leader: Some(leader), term } => {
            tracing::info!(term = term.0, "the leader is {}", name(leader));
        }
        Event::Leader { leader: None, term } => {
            tracing::info!(term = term.0, "no leader is known");
        }
        Event::VoteGranted { to, term } => {
            tracing::debug!(term = term.0, "voted for {}", name(to));
        }
        Event::SteppedDown { term, why } => {
            metrics.event("stepped_down");
            tracing::warn!(term = term.0, ?why, "gave up leadership: {why:?}");
        }
        Event::WaitingForQuorum { missing, since } => {
            let missing: Vec<_> = missing.iter().map(name).collect();
            tracing::warn!(
                seconds = since / 1_000_000,
                "no quorum: waiting for {}",
                missing.join(", ")
            );
        }
        Event::Truncated { from, last } => {
            metrics.event("truncated");
            tracing::info!("cut entries {from} to {last}, which another leader replaced");
        }
        Event::Applied { skipped, .. } => {
            metrics.deduplicated.fetch_add(*skipped, Ordering::Relaxed);
        }
        Event::Dropped { reason } => metrics.dropped(reason),
        Event::Mark(mark) => metrics.count("holdfast_marks_total", "mark", mark),
        Event::Committed { .. } | Event::Durable { .. } | Event::Membership { .. } => {}
        other => storage(other, &name, metrics),
    }
}

fn storage(event: &Event, name: &dyn Fn(&MemberId) -> String, metrics: &Metrics) {
    match event {
        Event::Checkpointed { through } => {
            metrics.event("checkpoint");
            tracing::debug!("the store is durable through {through}");
        }
        Event::SnapshotTaken { last, bytes } => {
            metrics.event("snapshot_taken");
            tracing::info!(bytes, "took a snapshot at {last}");
        }
        Event::SnapshotFailed { why } => {
            metrics.event("snapshot_failed");
            tracing::error!("a snapshot could not be taken: {why}; the next interval tries again");
        }
        Event::TransferBegan { peer, sending, .. } => {
            metrics.event("transfer_began");
            let verb = if *sending { "sending a snapshot to" } else { "receiving a snapshot from" };
            tracing::info!("{verb} {}", name(peer));
        }
        Event::TransferEnded { peer, ok, .. } => {
            metrics.event(if *ok { "transfer_done" } else { "transfer_failed" });
            tracing::info!("snapshot transfer with {} {}", name(peer), outcome(*ok));
        }
        Event::Installed { last } => {
            metrics.event("snapshot_installed");
            tracing::info!("installed a snapshot at {last}");
        }
        Event::Damaged { first, last, count } => {
            metrics.event("damaged");
            tracing::error!(
                "{count} entries of the log, {first} to {last}, do not verify; fetching them from \
                 other members: keep those running, and replace this disk soon"
            );
        }
        Event::Repaired { count, left } => {
            metrics.event("repaired");
            metrics.repaired.fetch_add(*count as u64, Ordering::Relaxed);
            tracing::warn!("{count} damaged entries of the log are back; {left} are left");
        }
        Event::Compacted { first } => {
            metrics.event("compacted");
            tracing::debug!("the log now begins at {first}");
        }
        Event::LogReopened { fault } => {
            metrics.event("log_reopened");
            tracing::error!("reopened the log after a fault: {fault}");
        }
        Event::StoreReopened { fault, applied } => {
            metrics.event("store_reopened");
            tracing::error!("reopened the store at {applied} after a fault: {fault}");
        }
        Event::Headroom { low: true } => {
            metrics.event("headroom_low");
            tracing::error!("the disk is full; free some space, this node goes on by itself");
        }
        Event::Headroom { low: false } => {
            metrics.event("headroom_back");
            tracing::info!("the disk has space again");
        }
        other => tracing::debug!("{other:?}"),
    }
}

fn outcome(ok: bool) -> &'static str {
    if ok { "is complete" } else { "ended early" }
}
