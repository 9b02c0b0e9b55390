//! `flip-every-byte`: one flipped bit at every byte of one member's log.

use super::{FAILED, parse_count, print};
use clap::Args;
use holdfast_sim::check::Violation;
use holdfast_sim::flips::{Bench, Ending};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Flip a bit at every byte of a small log of several segments, one at a time, on one member of a
/// cluster of three, and run the cluster each time.
#[derive(Args)]
pub(crate) struct FlipEveryByte {
    /// Flip every so many bytes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    stride: u64,
    /// The first byte.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many flips at most.
    #[arg(long)]
    count: Option<u64>,
    /// Seed of the cluster.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = parse_count)]
    jobs: usize,
    /// Print one JSON object to standard output.
    #[arg(long)]
    json: bool,
}

/// What the flips amounted to.
#[derive(Default)]
struct Report {
    endings: BTreeMap<Ending, u64>,
    violations: Vec<Violation>,
}

impl Report {
    fn of(&self, ending: Ending) -> u64 {
        self.endings.get(&ending).copied().unwrap_or(0)
    }

    fn flips(&self) -> u64 {
        self.endings.values().sum::<u64>() + self.violations.len() as u64
    }
}

impl FlipEveryByte {
    pub(crate) fn execute(self) -> ExitCode {
        let begun = Instant::now();
        let bench = match Bench::new(self.seed) {
            Ok(bench) => bench,
            Err(violation) => {
                eprintln!("the cluster cannot be made: {violation}");
                return ExitCode::from(FAILED);
            }
        };
        let report = self.sweep(&bench);
        let wall = begun.elapsed().as_secs_f64();
        let text = match self.json {
            true => self.as_json(&bench, &report, wall),
            false => as_text(&bench, &report, wall),
        };
        if let Err(code) = print(&text) {
            return code;
        }
        if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
    }

    fn sweep(&self, bench: &Bench) -> Report {
        let (next, report) = (AtomicU64::new(0), Mutex::new(Report::default()));
        let work = || {
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let number = self.from.saturating_add(turn.saturating_mul(self.stride));
                if number >= bench.places() || self.count.is_some_and(|count| turn >= count) {
                    return;
                }
                let ending = bench.flip(number);
                let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                match ending {
                    Ok(ending) => *report.endings.entry(ending).or_default() += 1,
                    Err(violation) => {
                        eprintln!("{violation}");
                        report.violations.push(violation);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(work);
            }
        });
        report.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn as_json(&self, bench: &Bench, report: &Report, wall: f64) -> String {
        let (entries, acked) = bench.size();
        let broken: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
        let object = json!({
            "files": bench.files().len(), "bytes": bench.places(), "entries": entries,
            "acknowledged": acked, "stride": self.stride, "flips": report.flips(),
            "harmless": report.of(Ending::Harmless), "repaired": report.of(Ending::Repaired),
            "held": report.of(Ending::Held), "refused": report.of(Ending::Refused),
            "violations": broken, "wall_seconds": wall,
        });
        format!("{object}\n")
    }
}

fn as_text(bench: &Bench, report: &Report, wall: f64) -> String {
    let (entries, acked) = bench.size();
    let mut lines = vec![
        format!(
            "a log of {entries} entries in {} files, {} bytes; {acked} acknowledged writes",
            bench.files().len(),
            bench.places()
        ),
        format!("flips     {:>9}   {wall:.1} s", report.flips()),
        format!("harmless  {:>9}", report.of(Ending::Harmless)),
        format!("repaired  {:>9}", report.of(Ending::Repaired)),
        format!("held      {:>9}", report.of(Ending::Held)),
        format!("refused   {:>9}", report.of(Ending::Refused)),
    ];
    lines.push(match report.violations.len() {
        0 => "no acknowledged entry was lost, and no wrong one served".to_owned(),
        count => format!("FAILED {count} times"),
    });
    lines.join("\n") + "\n"
}
