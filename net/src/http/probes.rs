//! `/livez`, `/readyz` and `/metrics`: answered from what the node published, without a round trip.

use crate::node::{Node, Published};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use holdfast_consensus::event::RoleKind;
use std::fmt::Write;
use std::sync::Arc;

/// Process-local: a node without a quorum is alive, and restarting it would not help.
pub(super) async fn live() -> &'static str {
    "alive\n"
}

pub(super) async fn ready(State(node): State<Arc<Node>>) -> impl IntoResponse {
    let published = node.published();
    match published.not_ready() {
        // It serves reads and votes, and passes writes on: nobody is helped by taking it out.
        None => match published.disk_full() {
            None => (StatusCode::OK, "ready\n".to_owned()),
            Some(alarm) => (StatusCode::OK, format!("ready, with an alarm: {alarm}\n")),
        },
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
    }
}

pub(super) async fn metrics(State(node): State<Arc<Node>>) -> impl IntoResponse {
    let mut text = gauges(&node.published());
    for (peer, urgent, bulk) in node.peers().queued() {
        for (lane, bytes) in [("urgent", urgent), ("bulk", bulk)] {
            gauge(
                &mut text,
                &format!("holdfast_peer_queue_bytes{{peer=\"{peer}\",lane=\"{lane}\"}}"),
                bytes as u64,
            );
        }
    }
    let report = node.report();
    for (name, value) in [
        ("holdfast_copies_live", report.live),
        ("holdfast_copies_kept", report.kept.len()),
        ("holdfast_copies_quarantined", report.quarantined()),
        ("holdfast_trash_entries", report.in_trash),
        ("holdfast_create_gate_open", usize::from(report.gate_open)),
    ] {
        gauge(&mut text, name, value as u64);
    }
    text.push_str(&node.metrics().render());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], crate::exposition::expose(&text))
}

fn gauge(out: &mut String, name: &str, value: u64) {
    // Writing to a string cannot fail.
    if writeln!(out, "{name} {value}").is_err() {}
}

fn gauges(published: &Published) -> String {
    let mut out = String::new();
    gauge(&mut out, "holdfast_ready", u64::from(published.not_ready().is_none()));
    let Some(status) = &published.replica else { return out };
    let leads = status.role == RoleKind::Leader;
    for (name, value) in [
        ("holdfast_term", status.hard.term.0),
        ("holdfast_is_leader", u64::from(leads)),
        ("holdfast_leader_known", u64::from(status.leader.is_some())),
        ("holdfast_first_log_index", status.first.0),
        ("holdfast_last_log_index", status.last.index.0),
        ("holdfast_durable_log_index", status.durable.index.0),
        ("holdfast_last_applied_index", status.applied.last.index.0),
        ("holdfast_checkpoint_index", status.applied.durable.index.0),
        ("holdfast_commit_index", status.commit.0),
        ("holdfast_snapshot_index", status.snapshot.0),
        ("holdfast_disk_full", u64::from(status.no_space.is_some())),
        ("holdfast_damaged_entries", status.damaged.as_ref().map_or(0, |d| d.count as u64)),
        ("holdfast_held", u64::from(status.held.is_some())),
    ] {
        gauge(&mut out, name, value);
    }
    for peer in &status.peers {
        let name = status.membership.name_of(peer.member);
        let lag = status.last.index.0.saturating_sub(peer.match_index.0);
        gauge(&mut out, &format!("holdfast_peer_lag_entries{{peer=\"{name}\"}}"), lag);
    }
    out
}
