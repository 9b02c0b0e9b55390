//! `holdfast-sim`: campaigns and replays of the simulated world.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the command line reads the wall clock and writes files; none of it reaches a world"
)]

use clap::{Parser, Subcommand};
use holdfast_sim::campaign::{self, Totals};
use holdfast_sim::faults;
use holdfast_sim::profile::{PROFILES, Profile};
use serde_json::{Value, json};
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

/// The simulated world of Holdfast: campaigns over seeds, and replays of one.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run many seeds; exit 1 if a property did not hold in any of them.
    Run {
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
    },
    /// Run one seed again and say what happened.
    Replay {
        /// The seed.
        seed: u64,
        /// What the world is made of.
        #[arg(long, default_value = "default", value_parser = parse_profile)]
        profile: Profile,
        /// Write one aligned line for each transition to this file (`-` for standard output).
        #[arg(long)]
        trace: Option<String>,
    },
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |part: &str| part.parse::<u64>().map_err(|e| format!("{part:?}: {e}"));
    match text.split_once("..") {
        Some((low, high)) => {
            let seeds = number(low)?..number(high)?;
            match seeds.is_empty() {
                true => Err(format!("{text} holds no seed; write A..B with A below B")),
                false => Ok(seeds),
            }
        }
        None => number(text).map(|seed| seed..seed.saturating_add(1)),
    }
}

fn parse_profile(name: &str) -> Result<Profile, String> {
    Profile::named(name).ok_or_else(|| format!("profiles are {}", PROFILES.join(", ")))
}

fn main() -> ExitCode {
    campaign::catch_panics();
    match Arguments::parse().command {
        Verb::Run { seeds, profile, jobs, json } => run(seeds, profile, jobs, json),
        Verb::Replay { seed, profile, trace } => replay(seed, profile, trace.as_deref()),
    }
}

/// Prints progress to standard error, at most twice a second and only in runs longer than two.
struct Progress {
    begun: Instant,
    last: Mutex<Instant>,
    of: u64,
}

impl Progress {
    fn show(&self, done: u64, failed: u64) {
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

fn run(seeds: Range<u64>, profile: Profile, jobs: usize, json: bool) -> ExitCode {
    let begun = Instant::now();
    let progress = Progress { begun, last: Mutex::new(begun), of: seeds.end - seeds.start };
    let totals = campaign::run(seeds, profile, jobs, &|done, failed| progress.show(done, failed));
    let wall = begun.elapsed().as_secs_f64();
    let text = if json { format!("{}\n", as_json(&totals, wall)) } else { as_table(&totals, wall) };
    if let Err(e) = std::io::stdout().write_all(text.as_bytes()) {
        eprintln!("standard output: {e}");
        return ExitCode::from(3);
    }
    for (seed, violation) in &totals.failed {
        eprintln!("seed {seed} failed: {violation}\n  holdfast-sim replay {seed}{}", flag(profile));
    }
    if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn flag(profile: Profile) -> &'static str {
    match profile {
        Profile::Default => "",
        Profile::Calm => " --profile calm",
        Profile::Load => " --profile load",
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
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
        format!("acknowledged     {:>12}   fewest in a seed {}", sum.acked, totals.acked_min),
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

fn replay(seed: u64, profile: Profile, trace: Option<&str>) -> ExitCode {
    let run = campaign::run_seed(seed, profile, trace.is_some());
    if let Some(path) = trace {
        let text = run.trace.join("\n") + "\n";
        let written = match path {
            "-" => std::io::stdout().write_all(text.as_bytes()),
            path => std::fs::write(path, text),
        };
        if let Err(e) = written {
            eprintln!("{path}: {e}");
            return ExitCode::from(3);
        }
    }
    println!(
        "seed {seed}: {} events, {} acknowledged, {:.3} virtual seconds, hash {:016x}",
        run.summary.events,
        run.summary.acked,
        seconds(run.summary.virtual_micros),
        run.summary.hash
    );
    match run.violation {
        Some(violation) => {
            println!("FAILED {violation}");
            ExitCode::from(1)
        }
        None => {
            println!("every property held");
            ExitCode::SUCCESS
        }
    }
}
