//! Turns the replica's events into log lines and counters.

use crate::metrics::Metrics;
use holdfast_consensus::event::{Cut, Event, RoleKind};
use holdfast_consensus::{Index, MemberId, Membership};
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
            tracing::warn!(term = term.0, "gave up leadership: {}", why.as_str());
        }
        Event::WaitingForQuorum { missing, since } => {
            let missing: Vec<_> = missing.iter().map(name).collect();
            tracing::warn!(
                seconds = since / 1_000_000,
                "no quorum: waiting for {}",
                missing.join(", ")
            );
        }
        Event::Truncated { from, last, why } => {
            metrics.event("truncated");
            tracing::info!("{}", cut(*from, *last, *why));
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
                "{} from other members: keep those running, and replace this disk soon",
                damaged(*first, *last, *count)
            );
        }
        Event::Repaired { count, left } => {
            metrics.event("repaired");
            metrics.repaired.fetch_add(*count as u64, Ordering::Relaxed);
            let what = if *count == 1 { "entry is" } else { "entries are" };
            tracing::warn!("{count} damaged {what} back; {left} left");
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

/// What does not verify, for people.
fn damaged(first: Index, last: Index, count: usize) -> String {
    match count {
        1 => format!("entry {first} of the log does not verify; fetching it"),
        _ => format!("{count} entries of the log, {first} to {last}, do not verify; fetching them"),
    }
}

/// What became of a suffix of the log, for people.
fn cut(from: Index, last: Index, why: Cut) -> String {
    let what = match from == last {
        true => format!("entry {from}"),
        false => format!("entries {from} to {last}"),
    };
    match why {
        Cut::Replaced => format!("cut {what}, which another leader replaced"),
        Cut::Snapshot => format!("cut {what}, which a snapshot replaced"),
        Cut::NoSpace => format!(
            "gave up {what}, which found no space on the disk; nobody was told that they are durable here, and \
             they come again if others hold them"
        ),
    }
}

fn outcome(ok: bool) -> &'static str {
    if ok { "is complete" } else { "ended early" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_says_who_or_what_took_the_entries() {
        let words = |why| cut(Index(6), Index(8), why);
        assert_eq!(words(Cut::Replaced), "cut entries i6 to i8, which another leader replaced");
        assert!(words(Cut::Snapshot).contains("a snapshot replaced"));
        let space = words(Cut::NoSpace);
        assert!(space.contains("found no space") && !space.contains("replaced"), "{space}");
        assert!(cut(Index(6), Index(6), Cut::Replaced).starts_with("cut entry i6,"));
    }

    #[test]
    fn one_entry_is_one_entry() {
        assert!(damaged(Index(6), Index(6), 1).starts_with("entry i6 of the log does not"));
        assert!(damaged(Index(6), Index(9), 2).starts_with("2 entries of the log, i6 to i9, do"));
    }
}
