//! `shrink`: the smallest run that still fails.

use super::source::{Origin, source};
use super::{FAILED, write_file};
use clap::Args;
use holdfast_sim::campaign::Source;
use holdfast_sim::check::Violation;
use holdfast_sim::shrink::{Shrunk, Size, Task, shrink};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Find a small tape on which the same property fails.
#[derive(Args)]
pub(crate) struct Shrink {
    /// A seed, or the file of a tape.
    source: String,
    #[command(flatten)]
    origin: Origin,
    /// Write the tape to this file (`-` for standard output).
    #[arg(long, default_value = "-")]
    out: String,
    /// Most time.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Most runs: the result is the same on every machine that reaches them in time.
    #[arg(long, default_value_t = 20_000)]
    runs: u64,
    /// The property that must fail; without it, whichever fails.
    #[arg(long)]
    property: Option<String>,
}

impl Shrink {
    pub(crate) fn execute(self) -> ExitCode {
        let source = match source(&self.source, &self.origin) {
            Ok(source) => source,
            Err(code) => return code,
        };
        let within = Duration::from_secs(self.seconds);
        let shrunk = match within_time(source.clone(), self.property, self.runs, within) {
            Ok(shrunk) => shrunk,
            Err(why) => {
                eprintln!("{}: {why}", self.source);
                return ExitCode::from(FAILED);
            }
        };
        eprintln!("{}", summary(&shrunk));
        match write_file(&self.out, &rendered(&shrunk, &source)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(code) => code,
        }
    }
}

/// Shrinks for at most so long, with progress on standard error once it takes over two seconds.
pub(crate) fn within_time(
    source: Source,
    property: Option<String>,
    runs: u64,
    within: Duration,
) -> Result<Shrunk, holdfast_sim::shrink::NotFailing> {
    let begun = Instant::now();
    let mut said = begun;
    let mut go_on = |runs: u64, best: Size| {
        let now = Instant::now();
        if now.duration_since(begun).as_secs() >= 2 && now.duration_since(said).as_millis() >= 500 {
            said = now;
            eprintln!("{runs} runs, {} events, {} decisions", best.events, best.decisions);
        }
        now.duration_since(begun) < within
    };
    shrink(Task { source, property, check: None, runs, go_on: &mut go_on })
}

/// What shrinking did, in a line.
pub(crate) fn summary(shrunk: &Shrunk) -> String {
    format!(
        "{} events shrunk to {} in {} runs ({} decisions, {} nodes, {} transitions)\n{}",
        shrunk.from.events,
        shrunk.size.events,
        shrunk.runs,
        shrunk.size.decisions,
        shrunk.size.nodes,
        shrunk.size.transitions,
        shrunk.violation
    )
}

/// One line of at most three hundred characters.
fn in_short(text: &str) -> String {
    let text = text.replace('\n', " ");
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}

/// The tape with a header that says what it shows and where it was found.
pub(crate) fn rendered(shrunk: &Shrunk, source: &Source) -> String {
    let mut tape = shrunk.tape.clone();
    let Violation { property, evidence } = &shrunk.violation;
    tape.header = vec![format!("property {property}"), format!("showed {}", in_short(evidence))];
    match source {
        Source::Seed(seed, profile) => {
            tape.header.push(format!("found by seed {seed} of profile {}", profile.name()));
        }
        Source::Play(seed, play) => {
            tape.header.push(format!("found by seed {seed} of scenario {}", play.scenario().name));
        }
        Source::Tape(from) => tape.header.extend(from.header.iter().skip(2).cloned()),
    }
    tape.render()
}
