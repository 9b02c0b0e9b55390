//! `replay`: one seed again.

use super::trace::write_trace;
use super::{FAILED, parse_profile, seconds};
use clap::Args;
use holdfast_sim::campaign;
use holdfast_sim::profile::Profile;
use std::process::ExitCode;

/// Run one seed again.
#[derive(Args)]
pub(crate) struct Replay {
    /// The seed.
    seed: u64,
    /// What the world is made of.
    #[arg(long, default_value = "default", value_parser = parse_profile)]
    profile: Profile,
    /// Write the run to this file, every transition of it: as a page that draws it if the name ends
    /// in .html, else as aligned lines (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
}

impl Replay {
    pub(crate) fn execute(self) -> ExitCode {
        let Self { seed, profile, trace } = self;
        let run = campaign::run_seed(seed, profile, trace.is_some());
        if let Some(path) = trace
            && let Err(code) = write_trace(&path, &run, profile)
        {
            return code;
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
                ExitCode::from(FAILED)
            }
            None => {
                println!("every property held");
                ExitCode::SUCCESS
            }
        }
    }
}
