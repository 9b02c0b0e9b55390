//! `explore`: exhaustive search in a small scope.

use super::{FAILED, print};
use clap::Args;
use holdfast_sim::explore::{self, Bounds, Report};
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;

/// Visit every state of a small cluster within bounds.
#[derive(Args)]
pub(crate) struct Explore {
    /// Members.
    #[arg(long, default_value_t = Bounds::default().nodes, value_parser = clap::value_parser!(u8).range(1..=4))]
    nodes: u8,
    /// Elections at most.
    #[arg(long, default_value_t = Bounds::default().terms)]
    terms: u64,
    /// Election timeouts at most, of followers, candidates and leaders that hear nobody.
    #[arg(long, default_value_t = Bounds::default().lapses, value_parser = clap::value_parser!(u8).range(0..=15))]
    lapses: u8,
    /// Commands at most.
    #[arg(long, default_value_t = Bounds::default().entries, value_parser = clap::value_parser!(u8).range(0..=15))]
    entries: u8,
    /// Crashes and failed writes at most.
    #[arg(long, default_value_t = Bounds::default().crashes, value_parser = clap::value_parser!(u8).range(0..=15))]
    crashes: u8,
    /// Messages at most that are lost to make room or arrive twice.
    #[arg(long, default_value_t = Bounds::default().losses, value_parser = clap::value_parser!(u8).range(0..=15))]
    losses: u8,
    /// Heartbeats at most, beyond what a leader sends on news.
    #[arg(long, default_value_t = Bounds::default().beats, value_parser = clap::value_parser!(u8).range(0..=15))]
    beats: u8,
    /// Linearizable reads at most.
    #[arg(long, default_value_t = Bounds::default().reads, value_parser = clap::value_parser!(u8).range(0..=15))]
    reads: u8,
    /// Messages in flight at most.
    #[arg(long, default_value_t = Bounds::default().flight)]
    flight: usize,
    /// Steps from the beginning at most.
    #[arg(long, default_value_t = Bounds::default().depth)]
    depth: u32,
    /// Distinct states at most.
    #[arg(long, default_value_t = Bounds::default().states)]
    states: usize,
    /// Print one JSON object to standard output.
    #[arg(long)]
    json: bool,
}

impl Explore {
    pub(crate) fn execute(self) -> ExitCode {
        let bounds = Bounds {
            nodes: self.nodes,
            terms: self.terms,
            lapses: self.lapses,
            entries: self.entries,
            crashes: self.crashes,
            losses: self.losses,
            beats: self.beats,
            reads: self.reads,
            flight: self.flight,
            depth: self.depth,
            states: self.states,
        };
        let begun = Instant::now();
        let mut last = begun;
        let report = explore::explore(&bounds, &mut |so_far, waiting| {
            if last.elapsed().as_secs() >= 2 {
                last = Instant::now();
                let (depth, distinct) = (so_far.depth, so_far.distinct);
                eprintln!("depth {depth}: {distinct} distinct states, {waiting} to expand");
            }
        });
        let wall = begun.elapsed().as_secs_f64();
        let text = if self.json { as_json(&report, wall) } else { as_text(&report, wall) };
        if let Err(code) = print(&text) {
            return code;
        }
        if report.found.is_some() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
    }
}

/// Steps in a second.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rate(report: &Report, wall: f64) -> f64 {
    (report.steps as f64 / wall.max(1e-9)).round()
}

fn as_json(report: &Report, wall: f64) -> String {
    let [locals, messages, outcomes] = report.sizes;
    let found = report.found.as_ref().map(|found| {
        json!({
            "property": found.violation.property, "evidence": found.violation.evidence,
            "path": found.path,
        })
    });
    let object = json!({
        "states": report.steps, "distinct": report.distinct, "depth": report.depth,
        "complete": report.complete, "cut": report.cut, "wall_seconds": wall,
        "states_per_second": rate(report, wall), "violation": found,
        "members": { "states": locals, "messages": messages, "steps": outcomes },
    });
    format!("{object}\n")
}

fn as_text(report: &Report, wall: f64) -> String {
    let [locals, messages, outcomes] = report.sizes;
    let end = if report.complete { "every state within the bounds" } else { "not all of them" };
    let mut lines = vec![
        format!(
            "states           {:>12}   {:.0} a second, {wall:.1} s",
            report.steps,
            rate(report, wall)
        ),
        format!("distinct         {:>12}   {end}", report.distinct),
        format!("depth            {:>12}", report.depth),
        format!("cut by a bound   {:>12}", report.cut),
        format!("of one member    {locals:>12}   with {messages} messages and {outcomes} steps"),
    ];
    match &report.found {
        None => lines.push("every property held in every state".to_owned()),
        Some(found) => {
            lines.push(format!("FAILED {}", found.violation));
            lines.extend(found.path.iter().cloned());
        }
    }
    lines.join("\n") + "\n"
}
