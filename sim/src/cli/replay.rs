//! `replay`: one seed or tape again.

use super::source::{Origin, source};
use super::trace::write_trace;
use super::{FAILED, seconds};
use clap::Args;
use holdfast_sim::campaign::{Watch, run_source};
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
        let run = run_source(&source, Watch { trace: trace.is_some(), ..Watch::default() });
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
