//! `--trace FILE`: a run as text, as a page or as a still picture, by the ending of the file's name.

use super::{flag, seconds, write_file};
use holdfast_sim::campaign::Run;
use holdfast_sim::profile::Profile;
use holdfast_sim::trace::{Recording, html, svg, text};
use std::process::ExitCode;

/// Writes the trace of a run.
///
/// # Errors
/// The exit status, after saying why.
pub(crate) fn write_trace(path: &str, run: &Run, profile: Profile) -> Result<(), ExitCode> {
    let mut recording = run.trace.clone();
    describe(&mut recording, run, profile);
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
fn describe(recording: &mut Recording, run: &Run, profile: Profile) {
    let summary = &run.summary;
    recording.title = format!("seed {}", run.seed);
    let facts = [
        ("again", format!("holdfast-sim replay {}{}", run.seed, flag(profile))),
        ("virtual seconds", format!("{:.3}", seconds(summary.virtual_micros))),
        ("events", summary.events.to_string()),
        ("acknowledged", summary.acked.to_string()),
        ("hash", format!("{:016x}", summary.hash)),
    ];
    recording.facts = facts.map(|(name, value)| (name.to_owned(), value)).to_vec();
}
