//! What a command replays or shrinks: a seed or the file of a tape.

use super::ENVIRONMENT;
use holdfast_sim::campaign::Source;
use holdfast_sim::profile::Profile;
use holdfast_sim::tape::Tape;
use std::process::ExitCode;

/// Exit status of a command that makes no sense.
const USAGE: u8 = 2;

/// Reads `17`, `seed:17` or the path of a tape; reports what is wrong with it.
pub(crate) fn source(text: &str, profile: Profile) -> Result<Source, ExitCode> {
    if let Ok(seed) = text.strip_prefix("seed:").unwrap_or(text).parse() {
        return Ok(Source::Seed(seed, profile));
    }
    let read = std::fs::read_to_string(text).map_err(|e| {
        eprintln!("{text}: {e}; give a seed, or the file of a tape");
        ExitCode::from(ENVIRONMENT)
    })?;
    Tape::parse(&read).map(Source::Tape).map_err(|e| {
        eprintln!("{text}: {e}");
        ExitCode::from(USAGE)
    })
}
