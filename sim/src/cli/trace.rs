//! `--trace FILE`: a run as text, as a page or as a still picture, by the ending of the file's name.

use super::{flag, seconds, write_file};
use holdfast_sim::campaign::{Run, Source};
use holdfast_sim::trace::{Recording, html, svg, text};
use std::process::ExitCode;

/// Writes the trace of a run of `named`, a seed or the file of a tape.
///
/// # Errors
/// The exit status, after saying why.
pub(crate) fn write_trace(
    path: &str,
    named: &str,
    run: &Run,
    source: &Source,
) -> Result<(), ExitCode> {
    let mut recording = run.trace.clone();
    describe(&mut recording, named, run, source);
    write_recording(path, &recording)
}

/// Writes a recording in the form that the name of the file asks for.
///
/// # Errors
/// The exit status, after saying why.
pub(crate) fn write_recording(path: &str, recording: &Recording) -> Result<(), ExitCode> {
    let text = match path.rsplit_once('.') {
        Some((_, "html" | "htm")) => html::write(recording),
        Some((_, "svg")) => svg::write(recording),
        _ => text::write(recording),
    };
    write_file(path, &text)
}

/// What a reader wants to know of the run.
fn describe(recording: &mut Recording, named: &str, run: &Run, source: &Source) {
    let summary = &run.summary;
    // A tape names its profile itself.
    let (kind, flags) = match source {
        Source::Seed(_, profile) => ("seed", flag(*profile).to_owned()),
        Source::Tape(_) => ("tape", String::new()),
        Source::Play(_, play) => {
            let (name, guard) = (play.scenario().name, play.guard.name());
            ("seed", format!(" --scenario {name} --guard {guard}"))
        }
    };
    recording.title = match source.play() {
        Some(play) => {
            let (name, guard) = (play.scenario().name, play.guard.name());
            format!("{name} with the guard {guard}, {kind} {named}")
        }
        None => format!("{kind} {named}"),
    };
    let facts = [
        ("again", format!("holdfast-sim replay {named}{flags}")),
        ("virtual seconds", format!("{:.3}", seconds(summary.virtual_micros))),
        ("events", summary.events.to_string()),
        ("acknowledged", summary.acked.to_string()),
        ("hash", format!("{:016x}", summary.hash)),
    ];
    recording.facts = facts.map(|(name, value)| (name.to_owned(), value)).to_vec();
}
