//! `run`: campaigns.

use super::{FAILED, flag, parse_profile, parse_seeds, print, seconds};
use clap::Args;
use holdfast_sim::campaign::{self, Totals};
use holdfast_sim::faults;
use holdfast_sim::profile::Profile;
use serde_json::{Value, json};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

/// Run many seeds.
#[derive(Args)]
pub(crate) struct Run {
    /// The seeds, half open.
    #[arg(long, default_value = "0..100", value_parser = parse_seeds)]
    seeds: Range<u64>,
    /// What the worlds are made of.
    #[arg(long, default_value = "default", value_parser = parse_profile)]
    profile: Profile,
    /// Threads; the result does not depend on it.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Print one JSON object to standard output.
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(crate) fn execute(self) -> ExitCode {
        let Self { seeds, profile, jobs, json } = self;
        let begun = Instant::now();
        let progress = Progress::new(seeds.end - seeds.start);
        let totals =
            campaign::run(seeds, profile, jobs, &|done, failed| progress.show(done, failed));
        let wall = begun.elapsed().as_secs_f64();
        let text =
            if json { format!("{}\n", as_json(&totals, wall)) } else { as_table(&totals, wall) };
        if let Err(code) = print(&text) {
            return code;
        }
        for (seed, violation) in &totals.failed {
            let flag = flag(profile);
            eprintln!("seed {seed} failed: {violation}\n  holdfast-sim replay {seed}{flag}");
        }
        if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
    }
}

/// Prints progress to standard error, at most twice a second and only in runs longer than two.
pub(crate) struct Progress {
    begun: Instant,
    last: Mutex<Instant>,
    of: u64,
}

impl Progress {
    /// Of so many.
    pub(crate) fn new(of: u64) -> Self {
        let begun = Instant::now();
        Self { begun, last: Mutex::new(begun), of }
    }

    /// So many are done and failed.
    pub(crate) fn show(&self, done: u64, failed: u64) {
        let now = Instant::now();
        if now.duration_since(self.begun).as_secs() < 2 {
            return;
        }
        let Ok(mut last) = self.last.lock() else { return };
        if now.duration_since(*last).as_millis() < 500 && done < self.of {
            return;
        }
        *last = now;
        eprintln!("{done} of {} seeds, {failed} failed", self.of);
    }
}

fn as_json(totals: &Totals, wall: f64) -> Value {
    let sum = &totals.sum;
    let failed: Vec<Value> = totals
        .failed
        .iter()
        .map(|(seed, v)| {
            json!({
                "seed": seed, "property": v.property, "evidence": v.evidence,
                "tape": format!("seed:{seed}"),
            })
        })
        .collect();
    let counts: serde_json::Map<String, Value> =
        faults::ALL.iter().map(|f| (f.name().to_owned(), json!(sum.faults.of(*f)))).collect();
    json!({
        "seeds": totals.seeds,
        "failed": failed,
        "events": sum.events,
        "acked": sum.acked,
        "acked_min": totals.acked_min,
        "idle": totals.idle,
        "operations": sum.operations,
        "reads": sum.reads,
        "virtual_seconds": seconds(sum.virtual_micros),
        "wall_seconds": wall,
        "faults": counts,
        "disk": {
            "log": { "writes": sum.log.writes, "syncs": sum.log.syncs },
            "store": { "writes": sum.store.writes, "syncs": sum.store.syncs },
        },
        "snapshots": {
            "taken": sum.snapshots[0], "installed": sum.snapshots[1], "compactions": sum.snapshots[2],
        },
        "replayed": sum.replayed,
        "trace_hash": format!("{:016x}", sum.hash),
    })
}

fn as_table(totals: &Totals, wall: f64) -> String {
    let sum = &totals.sum;
    let mut lines = vec![
        format!("seeds            {:>12}   failed {}", totals.seeds, totals.failed.len()),
        format!("events           {:>12}", sum.events),
        format!(
            "acknowledged     {:>12}   fewest in a seed {}, {} idle",
            sum.acked, totals.acked_min, totals.idle
        ),
        format!("reads checked    {:>12}", sum.reads),
        format!("virtual seconds  {:>12.1}   wall seconds {wall:.1}", seconds(sum.virtual_micros)),
        format!("log              {:>12} writes {:>10} syncs", sum.log.writes, sum.log.syncs),
        format!("store            {:>12} writes {:>10} syncs", sum.store.writes, sum.store.syncs),
        format!(
            "snapshots        {:>12} taken {:>11} installed {:>8} compactions",
            sum.snapshots[0], sum.snapshots[1], sum.snapshots[2]
        ),
        format!("replayed entries {:>12}", sum.replayed),
    ];
    for fault in faults::ALL {
        lines.push(format!("{:<16} {:>12}", fault.name(), sum.faults.of(fault)));
    }
    lines.push(format!("trace hash       {:016x}", sum.hash));
    lines.join("\n") + "\n"
}
