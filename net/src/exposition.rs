//! What each metric is: its kind and one line of help, and the Prometheus text format (version
//! 0.0.4), in which all samples of a metric stand together behind its `HELP` and `TYPE` lines.

use std::collections::BTreeMap;

/// Name, kind and help of every metric, in the order in which they are shown.
const FAMILIES: &[(&str, &str, &str)] = &[
    ("holdfast_ready", "gauge", "1 if the node serves, as /readyz says"),
    ("holdfast_term", "gauge", "Current term"),
    ("holdfast_is_leader", "gauge", "1 if this node leads"),
    ("holdfast_leader_known", "gauge", "1 if a leader is known"),
    ("holdfast_first_log_index", "gauge", "First entry that the log holds"),
    ("holdfast_last_log_index", "gauge", "Last entry of the log"),
    ("holdfast_durable_log_index", "gauge", "Last entry that is durable here"),
    ("holdfast_last_applied_index", "gauge", "Last entry that the store has applied"),
    ("holdfast_checkpoint_index", "gauge", "Last entry that the store holds durably"),
    ("holdfast_commit_index", "gauge", "Last entry that is known committed"),
    ("holdfast_snapshot_index", "gauge", "Last entry of the newest snapshot"),
    ("holdfast_disk_full", "gauge", "1 while the log finds no space"),
    ("holdfast_damaged_entries", "gauge", "Entries of the log that do not verify"),
    ("holdfast_held", "gauge", "1 while the log proves too little for this member to vote"),
    ("holdfast_peer_lag_entries", "gauge", "Entries that a member is behind this leader"),
    ("holdfast_peer_queue_bytes", "gauge", "Bytes that wait for a peer"),
    ("holdfast_copies_live", "gauge", "Copies of partitions that live"),
    ("holdfast_copies_kept", "gauge", "Copies kept for another reason than that they live"),
    ("holdfast_copies_quarantined", "gauge", "Copies that a person must look at"),
    ("holdfast_trash_entries", "gauge", "Copies in the trash"),
    ("holdfast_create_gate_open", "gauge", "1 once the first sweep lets copies be made"),
    ("holdfast_forwarded_proposals_total", "counter", "Proposals passed on to the leader"),
    ("holdfast_write_timeouts_total", "counter", "Calls that ran into their deadline"),
    ("holdfast_deduplicated_entries_total", "counter", "Entries that the store already held"),
    ("holdfast_repaired_entries_total", "counter", "Damaged entries that others gave back"),
    ("holdfast_peer_sent_messages_total", "counter", "Messages handed to sockets"),
    ("holdfast_peer_sent_bytes_total", "counter", "Bytes handed to sockets"),
    ("holdfast_peer_received_messages_total", "counter", "Messages that arrived"),
    ("holdfast_peer_received_bytes_total", "counter", "Bytes that arrived"),
    ("holdfast_inbox_depth", "gauge", "Inputs that the core loop has not taken yet"),
    ("holdfast_http_connections", "gauge", "Open HTTP connections"),
    ("holdfast_http_refused_total", "counter", "HTTP connections refused, by reason"),
    ("holdfast_confirmations_total", "counter", "Answers to /v1/confirm, by verdict"),
    ("holdfast_copies_total", "counter", "What was done with copies of partitions"),
    ("holdfast_dropped_total", "counter", "Messages and calls that were dropped"),
    ("holdfast_events_total", "counter", "Events of the replica"),
    ("holdfast_keeps_total", "counter", "Copies kept at a sweep, by reason"),
    ("holdfast_log_lines_lost_total", "counter", "Log lines that could not be written"),
    ("holdfast_log_scrub_bytes_total", "counter", "Bytes of sealed segments verified again"),
    ("holdfast_log_scrub_passes_total", "counter", "Passes over all sealed segments"),
    ("holdfast_log_scrub_damaged_total", "counter", "Damaged places found by verifying again"),
    ("holdfast_marks_total", "counter", "Rare branches that were taken"),
    ("holdfast_peer_rejected_total", "counter", "Peers and frames refused, by reason"),
    ("holdfast_permits_total", "counter", "Permits to let a copy go, by the line that proved it"),
    ("holdfast_call_seconds", "histogram", "Time from a call to its answer"),
    ("holdfast_job_seconds", "histogram", "Time of a job in its lane"),
];

/// The name of the metric that a sample line belongs to.
fn family(sample: &str) -> &str {
    let name = sample.split(['{', ' ']).next().unwrap_or_default();
    let parts = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
    let histogram =
        |name: &&str| FAMILIES.iter().any(|(n, kind, _)| n == name && *kind == "histogram");
    parts.filter(histogram).unwrap_or(name)
}

/// Sample lines in any order, put in order behind what their metrics are. A metric that is not listed
/// here is shown without.
#[must_use]
pub fn expose(samples: &str) -> String {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for sample in samples.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        groups.entry(family(sample)).or_default().push(sample);
    }
    let mut out = String::with_capacity(samples.len() * 2);
    let mut show = |lines: Vec<&str>| lines.iter().for_each(|line| out.extend([line, "\n"]));
    for &(name, kind, help) in FAMILIES {
        if let Some(samples) = groups.remove(name) {
            show(vec![&format!("# HELP {name} {help}"), &format!("# TYPE {name} {kind}")]);
            show(samples);
        }
    }
    groups.into_values().for_each(show);
    out
}

/// True if the kind of this metric is known.
#[must_use]
pub fn is_known(name: &str) -> bool {
    FAMILIES.iter().any(|(known, ..)| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_together_behind_what_they_are() {
        let text = expose(
            "holdfast_job_seconds_bucket{job=\"a\",le=\"+Inf\"} 1\nholdfast_held 0\nholdfast_job_seconds_sum{job=\"a\"} 2\nx_total 3\n",
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "# TYPE holdfast_held gauge");
        assert_eq!(lines[2], "holdfast_held 0");
        assert_eq!(lines[4], "# TYPE holdfast_job_seconds histogram");
        assert!(lines[5].starts_with("holdfast_job_seconds_bucket"));
        assert!(lines[6].starts_with("holdfast_job_seconds_sum"));
        assert_eq!(lines[7], "x_total 3", "shown, though nobody says what it is");
        assert!(is_known("holdfast_held") && !is_known("x_total"));
    }

    #[test]
    fn a_name_is_listed_once() {
        let mut names: Vec<_> = FAMILIES.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
