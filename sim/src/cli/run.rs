//! `run`: campaigns.

use super::shrink::{rendered, summary, within_time};
use super::{FAILED, flag, parse_count, parse_profile, parse_seeds, print, seconds};
use clap::Args;
use holdfast_consensus::marks::MARKS;
use holdfast_sim::campaign::{self, Source, Totals};
use holdfast_sim::check::Violation;
use holdfast_sim::profile::Profile;
use holdfast_sim::{faults, marks};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

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
    #[arg(long, default_value_t = 1, value_parser = parse_count)]
    jobs: usize,
    /// Print one JSON object to standard output.
    #[arg(long)]
    json: bool,
    /// Fail if a mark of the product was hit by no seed.
    #[arg(long)]
    require_marks: bool,
    /// Most seconds to shrink each of the first failures; 0 for none.
    #[arg(long, default_value_t = 20)]
    shrink_seconds: u64,
    /// How many failures are shrunk.
    #[arg(long, default_value_t = 2)]
    shrink: usize,
    /// Where the tapes of shrunk failures go.
    #[arg(long, default_value = "sim-tapes")]
    tapes: PathBuf,
}

/// A failure as it is reported.
struct Failure {
    seed: u64,
    violation: Violation,
    /// What `replay` takes to show it again.
    tape: String,
    /// What shrinking did, if it did anything.
    shrunk: Option<String>,
}

impl Run {
    pub(crate) fn execute(self) -> ExitCode {
        let begun = Instant::now();
        let progress = Progress::new(self.seeds.end - self.seeds.start);
        let show = |done, failed| progress.show(done, failed);
        let totals = campaign::run(self.seeds.clone(), self.profile, self.jobs, &show);
        let wall = begun.elapsed().as_secs_f64();
        let failures: Vec<Failure> = totals
            .failed
            .iter()
            .enumerate()
            .map(|(at, (seed, violation))| self.failure(*seed, violation, at < self.shrink))
            .collect();
        let text = match self.json {
            true => format!("{}\n", as_json(&totals, &failures, wall)),
            false => as_table(&totals, wall),
        };
        if let Err(code) = print(&text) {
            return code;
        }
        for Failure { seed, violation, tape, shrunk } in &failures {
            eprintln!("seed {seed} failed: {violation}");
            if let Some(shrunk) = shrunk {
                eprintln!("  {}", shrunk.replace('\n', "\n  "));
            }
            let flag = if shrunk.is_none() { flag(self.profile) } else { "" };
            eprintln!("  holdfast-sim replay {tape}{flag}");
        }
        let never = totals.never_hit();
        if self.require_marks && !never.is_empty() {
            eprintln!("no seed hit: {}", never.join(", "));
            return ExitCode::from(FAILED);
        }
        if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
    }

    /// Shrinks a failure and writes its tape, if that is wanted and possible.
    fn failure(&self, seed: u64, violation: &Violation, wanted: bool) -> Failure {
        let whole = Failure {
            seed,
            violation: violation.clone(),
            tape: format!("seed:{seed}"),
            shrunk: None,
        };
        // A run that differs from itself has no tape worth shrinking.
        if !wanted || self.shrink_seconds == 0 || violation.property == campaign::DETERMINISM {
            return whole;
        }
        let source = Source::Seed(seed, self.profile);
        let within = Duration::from_secs(self.shrink_seconds);
        let property = Some(violation.property.to_owned());
        let Ok(shrunk) = within_time(source.clone(), property, u64::MAX, within) else {
            return whole;
        };
        let path = self.tapes.join(format!("{}-{seed}.tape", violation.property));
        let written = std::fs::create_dir_all(&self.tapes)
            .and_then(|()| std::fs::write(&path, rendered(&shrunk, &source)));
        match written {
            Ok(()) => {
                let tape = path.display().to_string();
                Failure { tape, shrunk: Some(summary(&shrunk)), ..whole }
            }
            Err(e) => {
                eprintln!("{}: {e}; --tapes DIR names a directory for tapes", path.display());
                whole
            }
        }
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

/// A number of (longest) election timeouts, from thousandths.
fn timeouts(thousandths: u64) -> f64 {
    seconds(thousandths * 1000)
}

fn as_json(totals: &Totals, failures: &[Failure], wall: f64) -> Value {
    let sum = &totals.sum;
    let failed: Vec<Value> = failures
        .iter()
        .map(|Failure { seed, violation: v, tape, shrunk: _ }| {
            json!({ "seed": seed, "property": v.property, "evidence": v.evidence, "tape": tape })
        })
        .collect();
    let all = MARKS.iter().chain(marks::EVENTS);
    let marks: serde_json::Map<String, Value> =
        all.map(|m| ((*m).to_owned(), json!(totals.marks.get(m).copied().unwrap_or(0)))).collect();
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
        "marks": marks,
        "twice": totals.twice,
        "hashes": totals.hashes,
        "liveness": {
            "worst_silent_timeouts": timeouts(sum.slowest[0]),
            "worst_converge_timeouts": timeouts(sum.slowest[1]),
            "excused": sum.excused,
        },
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
    lines.push(format!(
        "election timeouts {:>11.1} without an answer, {:.1} until replicas agreed; excused {}",
        timeouts(sum.slowest[0]),
        timeouts(sum.slowest[1]),
        sum.excused
    ));
    for fault in faults::ALL {
        lines.push(format!("{:<16} {:>12}", fault.name(), sum.faults.of(fault)));
    }
    lines.push(format!("ran twice        {:>12} seeds, to compare", totals.twice));
    lines.push(format!(
        "marks            {:>12} hit, never: {}",
        totals.marks.len(),
        totals.never_hit().join(", ")
    ));
    lines.push(format!("hashes           {:>12} different", totals.hashes));
    lines.push(format!("trace hash       {:016x}", sum.hash));
    lines.join("\n") + "\n"
}
