//! `crash-explore`: power cuts at every moment of short histories of a log.

use super::{FAILED, print};
use clap::Args;
use holdfast_log::explore::{self, Bounds, Report, Violation};
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;

/// Cut the power at every moment of every short history of a log, with every legal outcome, and
/// recover from each.
#[derive(Args)]
pub(crate) struct CrashExplore {
    /// Steps of a history at most.
    #[arg(long, default_value_t = Bounds::default().ops, value_parser = clap::value_parser!(u32).range(0..=6))]
    ops: u32,
    /// Crashes inside a recovery, one behind the other, at most.
    #[arg(long, default_value_t = Bounds::default().depth, value_parser = clap::value_parser!(u32).range(0..=3))]
    depth: u32,
    /// Histories of up to this many steps are crashed inside their recoveries too.
    #[arg(long, default_value_t = Bounds::default().inside)]
    inside: u32,
    /// Outcomes of a moment that are all visited, at most; of more a sample is taken.
    #[arg(long, default_value_t = Bounds::default().outcomes)]
    outcomes: usize,
    /// Outcomes of each moment that are drawn besides.
    #[arg(long, default_value_t = Bounds::default().draws)]
    draws: usize,
    /// Seed of what is drawn.
    #[arg(long, default_value_t = Bounds::default().seed)]
    seed: u64,
    /// Print one JSON object to standard output.
    #[arg(long)]
    json: bool,
}

impl CrashExplore {
    pub(crate) fn execute(self) -> ExitCode {
        let bounds = Bounds {
            ops: self.ops,
            depth: self.depth,
            inside: self.inside,
            outcomes: self.outcomes,
            draws: self.draws,
            seed: self.seed,
        };
        let begun = Instant::now();
        let (report, violation) = explore::explore(bounds, &|disk| disk);
        let wall = begun.elapsed().as_secs_f64();
        let text = match self.json {
            true => as_json(&report, violation.as_ref(), wall),
            false => as_text(&report, violation.as_ref(), wall),
        };
        if let Err(code) = print(&text) {
            return code;
        }
        if violation.is_some() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
    }
}

/// Images in a second.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rate(report: &Report, wall: f64) -> f64 {
    (report.images as f64 / wall.max(1e-9)).round()
}

fn as_json(report: &Report, violation: Option<&Violation>, wall: f64) -> String {
    let found = violation.map(|v| {
        let steps: Vec<String> = v.sequence.iter().map(|s| format!("{s:?}")).collect();
        json!({ "start": format!("{:?}", v.start), "steps": steps, "before": v.next, "what": v.what })
    });
    let object = json!({
        "sequences": report.sequences, "points": report.points, "inner_points": report.inner_points,
        "whole": report.whole, "subsets": report.subsets, "sampled": report.sampled,
        "outcomes": report.outcomes, "images": report.images, "recoveries": report.recoveries,
        "wall_seconds": wall, "images_per_second": rate(report, wall), "violation": found,
    });
    format!("{object}\n")
}

fn as_text(report: &Report, violation: Option<&Violation>, wall: f64) -> String {
    let mut lines = vec![
        format!("histories       {:>12}", report.sequences),
        format!(
            "crash points    {:>12}   {} with every outcome, {} with every subset, {} sampled",
            report.points, report.whole, report.subsets, report.sampled
        ),
        format!("  in recoveries {:>12}", report.inner_points),
        format!("outcomes        {:>12}", report.outcomes),
        format!(
            "distinct images {:>12}   {:.0} a second, {wall:.1} s",
            report.images,
            rate(report, wall)
        ),
        format!("recoveries      {:>12}", report.recoveries),
    ];
    match violation {
        None => lines.push("everything acknowledged was there, and nothing unknown".to_owned()),
        Some(violation) => lines.push(format!("FAILED {violation}")),
    }
    lines.join("\n") + "\n"
}
