//! What a command replays or shrinks: a seed or the file of a tape.

use super::{ENVIRONMENT, parse_profile};
use clap::Args;
use holdfast_sim::broker::Mode;
use holdfast_sim::campaign::Source;
use holdfast_sim::profile::Profile;
use holdfast_sim::scenario;
use holdfast_sim::tape::{Play, Tape};
use std::process::ExitCode;

/// Exit status of a command that makes no sense.
const USAGE: u8 = 2;

/// What the seed or the tape is of.
#[derive(Args)]
pub(crate) struct Origin {
    /// What the world of a seed is made of.
    #[arg(long, default_value = "default", value_parser = parse_profile)]
    pub(crate) profile: Profile,
    /// The seed is one of this scenario (`scenario list` names them).
    #[arg(long, value_parser = parse_scenario, conflicts_with = "profile")]
    scenario: Option<&'static str>,
    /// How the brokers of a scenario make sure before they destroy, whatever its tape says; `on` is
    /// the product's guard, and what a seed is run with.
    #[arg(long, value_parser = parse_mode)]
    guard: Option<Mode>,
}

/// Reads the name of a mode.
pub(crate) fn parse_mode(name: &str) -> Result<Mode, String> {
    Mode::named(name).ok_or_else(|| format!("the guard is {}", Mode::NAMES.join(", ")))
}

fn parse_scenario(name: &str) -> Result<&'static str, String> {
    let found = scenario::named(name).map(|found| found.name);
    found.ok_or_else(|| "no such scenario; `holdfast-sim scenario list` names them".to_owned())
}

/// Reads `17`, `seed:17` or the path of a tape; reports what is wrong with it.
pub(crate) fn source(text: &str, origin: &Origin) -> Result<Source, ExitCode> {
    let senseless = |why: &str| {
        eprintln!("{text}: {why}");
        ExitCode::from(USAGE)
    };
    if let Ok(seed) = text.strip_prefix("seed:").unwrap_or(text).parse() {
        let mode = origin.guard.unwrap_or(Mode::On);
        return match origin.scenario.and_then(|name| Play::of(name, mode)) {
            Some(play) => Ok(Source::Play(seed, play)),
            None if origin.guard.is_some() => {
                Err(senseless("a campaign has no --guard; name a --scenario, or leave it out"))
            }
            None => Ok(Source::Seed(seed, origin.profile)),
        };
    }
    if origin.scenario.is_some() {
        return Err(senseless("a tape names its scenario itself; leave --scenario out"));
    }
    let read = std::fs::read_to_string(text).map_err(|e| {
        eprintln!("{text}: {e}; give a seed, or the file of a tape");
        ExitCode::from(ENVIRONMENT)
    })?;
    let mut tape = Tape::parse(&read).map_err(|e| {
        eprintln!("{text}: {e}");
        ExitCode::from(USAGE)
    })?;
    match (&mut tape.play, origin.guard) {
        (Some(play), Some(guard)) => *play = play.guarded(guard),
        (None, Some(_)) => return Err(senseless("this tape is of no scenario; leave --guard out")),
        (_, None) => {}
    }
    Ok(Source::Tape(tape))
}
