//! Counters and latency buckets of one node, rendered as Prometheus text.

use holdfast_fsm::guard::Keep;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Upper bounds of the latency buckets in microseconds.
const BOUNDS: [u64; 14] = [
    50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 409_600,
    1_638_400,
];

/// Events that are counted from zero on: what never happened shows, and a rate has a beginning.
const COUNTED: &[(&str, &str, &[&str])] = &[
    ("holdfast_http_refused_total", "reason", &["connections"]),
    ("holdfast_confirmations_total", "verdict", &["gone", "live", "unknown"]),
    ("holdfast_copies_total", "event", &["created", "trashed", "put_back", "reaped"]),
    ("holdfast_keeps_total", "reason", &Keep::CODES),
    ("holdfast_permits_total", "line", &["local", "leader"]),
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
}

impl Histogram {
    /// Notes one duration in microseconds.
    pub fn note(&self, micros: u64) {
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(micros, Ordering::Relaxed);
    }

    fn render(&self, name: &str, label: &str, out: &mut String) {
        let mut total = 0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS.iter().map(Some).chain([None])) {
            total += bucket.load(Ordering::Relaxed);
            let le = bound.map_or("+Inf".to_owned(), |b| seconds(*b));
            line(out, &format!("{name}_bucket{{{label}le=\"{le}\"}}"), total);
        }
        let labels = label.trim_end_matches(',');
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let sum = seconds(self.sum.load(Ordering::Relaxed));
        line(out, &format!("{name}_sum{labels}"), sum);
        line(out, &format!("{name}_count{labels}"), total);
    }
}

fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    if writeln!(out, "{name} {value}").is_err() {}
}

/// Everything that one node counts.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Rare events: metric name, label, label value.
    counted: Mutex<BTreeMap<(&'static str, &'static str, &'static str), u64>>,
    /// Time in the log lane by kind of job.
    jobs: Mutex<BTreeMap<&'static str, std::sync::Arc<Histogram>>>,
    /// Time from a call to its answer.
    pub calls: Histogram,
    sent_messages: AtomicU64,
    sent_bytes: AtomicU64,
    received_messages: AtomicU64,
    received_bytes: AtomicU64,
    /// Calls that ran into their deadline.
    pub write_timeouts: AtomicU64,
    /// Proposals passed on to the leader.
    pub forwarded: AtomicU64,
    /// Entries that the store already held when they were handed again.
    pub deduplicated: AtomicU64,
    /// Damaged entries of the log that other members gave back.
    pub repaired: AtomicU64,
    /// Bytes of the log that the scrub has verified.
    pub scrub_bytes: AtomicU64,
    /// Passes of the scrub over all sealed segments.
    pub scrub_passes: AtomicU64,
    /// Places that the scrub found not to verify, each counted once.
    pub scrub_damaged: AtomicU64,
    /// Inputs that the core loop has not taken yet.
    pub inbox_depth: AtomicU64,
    /// Open connections of the HTTP API.
    pub http_connections: AtomicU64,
}

impl Metrics {
    /// Counts one event.
    pub fn count(&self, name: &'static str, label: &'static str, value: &'static str) {
        debug_assert!(crate::exposition::is_known(name), "{name} is counted and not explained");
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        *counted.entry((name, label, value)).or_default() += 1;
    }

    /// A peer or its frame was refused.
    pub fn peer_rejected(&self, reason: &'static str) {
        self.count("holdfast_peer_rejected_total", "reason", reason);
    }

    /// A message or call was dropped.
    pub fn dropped(&self, reason: &'static str) {
        self.count("holdfast_dropped_total", "reason", reason);
    }

    /// Something happened that is counted by its name alone.
    pub fn event(&self, kind: &'static str) {
        self.count("holdfast_events_total", "kind", kind);
    }

    /// Messages were handed to a socket.
    pub fn sent(&self, messages: usize, bytes: usize) {
        self.sent_messages.fetch_add(messages as u64, Ordering::Relaxed);
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A message came off a socket.
    pub fn received(&self, bytes: usize) {
        self.received_messages.fetch_add(1, Ordering::Relaxed);
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A job took this many microseconds in its lane.
    pub fn job(&self, kind: &'static str, micros: u64) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = std::sync::Arc::clone(jobs.entry(kind).or_default());
        drop(jobs);
        histogram.note(micros);
    }

    /// Everything counted so far, as Prometheus text.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        let plain: [(&str, &AtomicU64); 13] = [
            ("holdfast_forwarded_proposals_total", &self.forwarded),
            ("holdfast_write_timeouts_total", &self.write_timeouts),
            ("holdfast_deduplicated_entries_total", &self.deduplicated),
            ("holdfast_repaired_entries_total", &self.repaired),
            ("holdfast_log_scrub_bytes_total", &self.scrub_bytes),
            ("holdfast_log_scrub_passes_total", &self.scrub_passes),
            ("holdfast_log_scrub_damaged_total", &self.scrub_damaged),
            ("holdfast_peer_sent_messages_total", &self.sent_messages),
            ("holdfast_peer_sent_bytes_total", &self.sent_bytes),
            ("holdfast_peer_received_messages_total", &self.received_messages),
            ("holdfast_peer_received_bytes_total", &self.received_bytes),
            ("holdfast_inbox_depth", &self.inbox_depth),
            ("holdfast_http_connections", &self.http_connections),
        ];
        for (name, value) in plain {
            line(&mut out, name, value.load(Ordering::Relaxed));
        }
        line(&mut out, "holdfast_log_lines_lost_total", crate::stderr::lost_lines());
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, label, values) in COUNTED {
            for value in *values {
                counted.entry((name, label, value)).or_default();
            }
        }
        for ((name, label, value), count) in counted.iter() {
            line(&mut out, &format!("{name}{{{label}=\"{value}\"}}"), count);
        }
        drop(counted);
        self.calls.render("holdfast_call_seconds", "", &mut out);
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, histogram) in jobs.iter() {
            let label = format!("job=\"{kind}\",");
            histogram.render("holdfast_job_seconds", &label, &mut out);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_each_duration_in_every_bucket_at_or_above_it() {
        let metrics = Metrics::default();
        metrics.job("persist", 100);
        metrics.job("persist", 101);
        metrics.job("persist", 9_000_000);
        let text = metrics.render();
        for wanted in [
            "holdfast_job_seconds_bucket{job=\"persist\",le=\"0.000050\"} 0",
            "holdfast_job_seconds_bucket{job=\"persist\",le=\"0.000100\"} 1",
            "holdfast_job_seconds_bucket{job=\"persist\",le=\"0.000200\"} 2",
            "holdfast_job_seconds_bucket{job=\"persist\",le=\"+Inf\"} 3",
            "holdfast_job_seconds_sum{job=\"persist\"} 9.000201",
            "holdfast_job_seconds_count{job=\"persist\"} 3",
        ] {
            assert!(text.contains(wanted), "{wanted} not in\n{text}");
        }
    }

    #[test]
    fn what_never_happened_is_counted_as_zero_and_every_metric_is_explained() {
        let metrics = Metrics::default();
        metrics.job("persist", 1);
        metrics.event("repaired");
        metrics.dropped("calls_full");
        metrics.peer_rejected("token");
        let text = metrics.render();
        for wanted in [
            "holdfast_permits_total{line=\"local\"} 0",
            "holdfast_permits_total{line=\"leader\"} 0",
            "holdfast_keeps_total{reason=\"unknown\"} 0",
            "holdfast_confirmations_total{verdict=\"gone\"} 0",
        ] {
            assert!(text.lines().any(|line| line == wanted), "{wanted} not in\n{text}");
        }
        let text = crate::exposition::expose(&text);
        let mut known = std::collections::BTreeSet::new();
        for line in text.lines() {
            match line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next()) {
                Some(name) => assert!(known.insert(name.to_owned()), "{name} twice"),
                None if line.starts_with('#') => {}
                None => {
                    let name = line.split(['{', ' ']).next().expect("a name");
                    let of = |known: &String| name.starts_with(known.as_str());
                    assert!(known.iter().any(of), "{line} is not explained");
                }
            }
        }
    }

    #[test]
    fn counted_events_carry_their_label() {
        let metrics = Metrics::default();
        metrics.peer_rejected("token");
        metrics.peer_rejected("token");
        assert!(metrics.render().contains("holdfast_peer_rejected_total{reason=\"token\"} 2"));
    }
}
