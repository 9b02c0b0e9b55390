//! `replay`: one seed or tape again.

use super::source::{Origin, source};
use super::trace::write_trace;
use super::{FAILED, seconds};
use clap::Args;
use holdfast_sim::campaign::{Source, Watch, run_source};
use holdfast_sim::tape::{Decision, Tape};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Run one seed or tape again.
#[derive(Args)]
pub(crate) struct Replay {
    /// A seed, or the file of a tape.
    source: String,
    #[command(flatten)]
    origin: Origin,
    /// Write the run to this file: as a page that draws it if the name ends in .html, as a still
    /// picture of what is most telling if it ends in .svg, else as one aligned line for each
    /// transition (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
}

impl Replay {
    pub(crate) fn execute(self) -> ExitCode {
        let Self { source: named, origin, trace } = self;
        let source = match source(&named, &origin) {
            Ok(source) => source,
            Err(code) => return code,
        };
        let of_tape = matches!(source, Source::Tape(_));
        let watch = Watch { trace: trace.is_some(), tape: of_tape, ..Watch::default() };
        let run = run_source(&source, watch);
        if let Source::Tape(tape) = &source
            && let Some(note) = unused(tape, &run.tape)
        {
            eprintln!("{named}: {note}");
        }
        if let Some(path) = trace
            && let Err(code) = write_trace(&path, &named, &run, &source)
        {
            return code;
        }
        for line in &run.story {
            println!("{line}");
        }
        println!(
            "{named}: {} events, {} acknowledged, {:.3} virtual seconds, hash {:016x}",
            run.summary.events,
            run.summary.acked,
            seconds(run.summary.virtual_micros),
            run.summary.hash
        );
        match run.violation {
            Some(violation) => {
                println!("FAILED {violation}");
                ExitCode::from(FAILED)
            }
            None => {
                println!("every property held");
                ExitCode::SUCCESS
            }
        }
    }
}

/// What to say of the decisions of a tape that the run did not make: nobody asked for them, or they
/// are calm. A tape may outlive what it once met, but a line that somebody mistyped looks the same.
fn unused(tape: &Tape, made: &Tape) -> Option<String> {
    let key = |d: &Decision| (d.place.clone(), d.name.clone(), d.repeat);
    let made: BTreeSet<_> = made.decisions.iter().map(key).collect();
    let idle: Vec<_> = tape.decisions.iter().filter(|d| !made.contains(&key(d))).collect();
    let first = idle.first()?;
    Some(format!(
        "{} of the {} decisions on it changed nothing: nobody asked for them, or they are calm; the first is `{}: {first}`",
        idle.len(),
        tape.decisions.len(),
        first.place,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_that_nobody_made_are_told_of() {
        let read = |lines: &str| Tape::parse(&format!("holdfast-tape 1\n{lines}")).expect("a tape");
        let tape = read("setup: nodes=5 nonsense=7\ncrash n1 0: kill=1\n");
        let said = unused(&tape, &read("setup: nodes=5\n")).expect("two are idle");
        assert!(said.starts_with("2 of the 3 decisions"), "{said}");
        assert!(said.contains("`setup: nonsense=7`"), "{said}");
        assert_eq!(unused(&tape, &tape), None);
    }
}
