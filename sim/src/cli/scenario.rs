//! `scenario`: the named programs.

use super::run::Progress;
use super::source::parse_mode;
use super::trace::write_recording;
use super::{FAILED, parse_count, parse_seeds, print, seconds};
use clap::{Args, Subcommand};
use holdfast_sim::broker::Mode;
use holdfast_sim::scenario::{self, Report, Scenario};
use serde_json::{Value, json};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Exit status of a command line that names nothing.
const USAGE: u8 = 2;

/// List or run scenarios.
#[derive(Args)]
pub(crate) struct ScenarioCommand {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List every scenario with what it shows.
    List {
        /// Print a JSON array of `name`, `summary` and `loss`.
        #[arg(long)]
        json: bool,
    },
    /// Run a scenario; exit 1 if any seed loses data or breaks a property.
    Run(Run),
}

#[derive(Args)]
struct Run {
    /// The scenario; `list` names them.
    name: String,
    /// How the brokers make sure before they destroy: `on` is the product's guard.
    #[arg(long, default_value = "on", value_parser = parse_mode)]
    guard: Mode,
    /// One seed, told as a story.
    #[arg(long, default_value_t = 0, conflicts_with = "seeds")]
    seed: u64,
    /// Many seeds, half open.
    #[arg(long, value_parser = parse_seeds)]
    seeds: Option<Range<u64>>,
    /// Threads for many seeds; the result does not depend on it.
    #[arg(long, default_value_t = 1, value_parser = parse_count)]
    jobs: usize,
    /// Write the trace of one seed to this file: a page if it ends in .html, a picture if it ends
    /// in .svg, else one aligned line for each transition (`-` for standard output).
    #[arg(long, conflicts_with = "seeds")]
    trace: Option<String>,
    /// Print one JSON object to standard output.
    #[arg(long)]
    json: bool,
}

impl ScenarioCommand {
    pub(crate) fn execute(self) -> ExitCode {
        match self.command {
            Verb::List { json } => list(json),
            Verb::Run(run) => run.execute(),
        }
    }
}

fn list(json: bool) -> ExitCode {
    let text = if json {
        let all: Vec<Value> = scenario::ALL
            .iter()
            .map(|s| json!({ "name": s.name, "summary": s.summary, "loss": s.loss }))
            .collect();
        format!("{}\n", Value::from(all))
    } else {
        let width = scenario::ALL.iter().map(|s| s.name.len()).max().unwrap_or(0);
        let line = |s: &Scenario| {
            let loss = if s.loss { "loses data with the guard off" } else { "" };
            format!("{:<width$}  {:<30}  {}\n", s.name, loss, s.summary)
        };
        scenario::ALL.iter().map(line).collect()
    };
    print(&text).err().unwrap_or(ExitCode::SUCCESS)
}

impl Run {
    fn execute(self) -> ExitCode {
        let Some(scenario) = scenario::named(&self.name) else {
            eprintln!(
                "there is no scenario {:?}; `holdfast-sim scenario list` names them",
                self.name
            );
            return ExitCode::from(USAGE);
        };
        match self.seeds.clone() {
            None => self.one(scenario),
            Some(seeds) => self.many(scenario, seeds),
        }
    }

    fn one(&self, scenario: &Scenario) -> ExitCode {
        let report = scenario::run(scenario, self.guard, self.seed, self.trace.is_some());
        if let Some(path) = &self.trace
            && let Err(code) = self.write_trace(path, scenario, &report)
        {
            return code;
        }
        let text = if self.json {
            format!("{}\n", self.as_json(scenario, std::slice::from_ref(&report)))
        } else {
            self.as_story(scenario, &report)
        };
        if let Err(code) = print(&text) {
            return code;
        }
        if report.is_good() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
    }

    fn write_trace(
        &self,
        path: &str,
        scenario: &Scenario,
        report: &Report,
    ) -> Result<(), ExitCode> {
        let mut recording = report.trace.clone();
        let (name, guard) = (scenario.name, self.guard.name());
        recording.title = format!("{name}, guard {guard}: {}", report.verdict());
        recording.conclude(report.broken().as_ref());
        let again =
            format!("holdfast-sim scenario run {name} --guard {guard} --seed {}", self.seed);
        let facts = [("what", scenario.summary.to_owned()), ("again", again)];
        recording.facts = facts.map(|(name, value)| (name.to_owned(), value)).to_vec();
        write_recording(path, &recording)
    }

    fn as_story(&self, scenario: &Scenario, report: &Report) -> String {
        let mut lines = vec![format!("{} with the guard {}", scenario.name, self.guard.name())];
        lines.push(scenario.summary.to_owned());
        lines.push(String::new());
        lines.extend(report.story.iter().cloned());
        lines.push(String::new());
        for lost in report.lost.iter().take(5) {
            lines.push(format!(
                "lost: record {} of {} partition {} (incarnation {}), {}",
                lost.id, lost.place.topic, lost.place.partition, lost.place.incarnation, lost.how
            ));
        }
        if report.lost.len() > 5 {
            lines.push(format!("... and {} more", report.lost.len() - 5));
        }
        lines.push(format!(
            "{} records due, {} events, {:.1} virtual seconds",
            report.due,
            report.summary.events,
            seconds(report.summary.virtual_micros)
        ));
        lines.push(report.verdict());
        lines.join("\n") + "\n"
    }

    fn many(&self, scenario: &'static Scenario, seeds: Range<u64>) -> ExitCode {
        let progress = Progress::new(seeds.end - seeds.start);
        let begun = Instant::now();
        let reports = run_all(scenario, self.guard, seeds.clone(), self.jobs, &progress);
        let wall = begun.elapsed().as_secs_f64();
        let bad: Vec<&Report> = reports.iter().filter(|report| !report.is_good()).collect();
        let lost: usize = reports.iter().map(|report| report.lost.len()).sum();
        let verdict = match (bad.first(), lost) {
            (None, _) => unharmed(&reports).to_owned(),
            (Some(first), 0) => first.verdict(),
            (Some(_), lost) => format!("LOST {lost}"),
        };
        let text = if self.json {
            format!("{}\n", self.as_json(scenario, &reports))
        } else {
            let losing = reports.iter().filter(|report| !report.lost.is_empty()).count();
            format!(
                "{} with the guard {}: {} seeds, {losing} lost data, {} broke another property, {wall:.1} s\n{verdict}\n",
                scenario.name,
                self.guard.name(),
                reports.len(),
                bad.len() - losing.min(bad.len()),
            )
        };
        if let Err(code) = print(&text) {
            return code;
        }
        for report in bad.iter().take(10) {
            eprintln!(
                "seed {}: {}\n  holdfast-sim scenario run {} --guard {} --seed {}",
                report.seed,
                report.verdict(),
                scenario.name,
                self.guard.name(),
                report.seed
            );
        }
        if bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
    }

    fn as_json(&self, scenario: &Scenario, reports: &[Report]) -> Value {
        let failed: Vec<Value> = reports
            .iter()
            .filter(|report| !report.is_good())
            .map(|report| json!({ "seed": report.seed, "lost": report.lost.len(), "verdict": report.verdict() }))
            .collect();
        let lost: usize = reports.iter().map(|report| report.lost.len()).sum();
        json!({
            "name": scenario.name,
            "guard": self.guard.name(),
            "seeds": reports.len(),
            "due": reports.iter().map(|report| report.due).sum::<usize>(),
            "lost": lost,
            "failed": failed,
            "verdict": match failed.is_empty() {
                true => unharmed(reports).to_owned(),
                false if lost > 0 => format!("LOST {lost}"),
                false => "FAILED".to_owned(),
            },
        })
    }
}

/// The verdict where nothing is lost and nothing is broken.
fn unharmed(reports: &[Report]) -> &'static str {
    match reports.iter().any(|report| report.stands_still.is_some()) {
        true => "STANDS STILL",
        false => "KEPT",
    }
}

fn run_all(
    scenario: &'static Scenario,
    mode: Mode,
    seeds: Range<u64>,
    jobs: usize,
    progress: &Progress,
) -> Vec<Report> {
    let next = AtomicU64::new(seeds.start);
    let bad = AtomicU64::new(0);
    let reports = Mutex::new(Vec::new());
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds.end {
            return;
        }
        let report = scenario::run(scenario, mode, seed, false);
        if !report.is_good() {
            bad.fetch_add(1, Ordering::Relaxed);
        }
        let mut all = reports.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(report);
        progress.show(all.len() as u64, bad.load(Ordering::Relaxed));
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(work);
        }
    });
    let mut reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    reports.sort_by_key(|report| report.seed);
    reports
}
