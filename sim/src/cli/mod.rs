//! The commands, one file for each, and what they share.

pub(crate) mod check_history;
pub(crate) mod crash_explore;
pub(crate) mod damage;
pub(crate) mod explore;
pub(crate) mod flip_every_byte;
pub(crate) mod mutants;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod scenario;
pub(crate) mod shrink;
pub(crate) mod source;
pub(crate) mod trace;

use holdfast_sim::profile::{PROFILES, Profile};
use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;

/// Exit status of a check that failed.
pub(crate) const FAILED: u8 = 1;
/// Exit status if the environment does not do its part (a file, standard output).
pub(crate) const ENVIRONMENT: u8 = 3;

/// Reads `A..B` (half open) or one seed.
pub(crate) fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |part: &str| {
        part.parse::<u64>().map_err(|e| {
            format!("{part:?}: {e}; write A..B with A below B, such as 0..100, or one seed")
        })
    };
    match text.split_once("..") {
        Some((low, high)) => {
            let seeds = number(low)?..number(high)?;
            match seeds.is_empty() {
                true => Err(format!("{text} holds no seed; write A..B with A below B")),
                false => Ok(seeds),
            }
        }
        None => number(text).map(|seed| seed..seed.saturating_add(1)),
    }
}

/// Reads how many of something there are to be; none of it makes no sense.
pub(crate) fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("0 is none; give 1 or more".to_owned()),
        Ok(count) => Ok(count),
        Err(e) => Err(format!("{e}; give 1 or more")),
    }
}

/// Reads the name of a profile.
pub(crate) fn parse_profile(name: &str) -> Result<Profile, String> {
    Profile::named(name).ok_or_else(|| format!("profiles are {}", PROFILES.join(", ")))
}

/// The flag that names a profile, as it is written behind a command.
pub(crate) fn flag(profile: Profile) -> &'static str {
    match profile {
        Profile::Default => "",
        Profile::Calm => " --profile calm",
        Profile::Load => " --profile load",
    }
}

/// Microseconds as seconds, for people.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(crate) fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Writes to standard output, or reports why not.
pub(crate) fn print(text: &str) -> Result<(), ExitCode> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| {
        eprintln!("standard output: {e}");
        ExitCode::from(ENVIRONMENT)
    })
}

/// Writes a file (`-` for standard output), or reports why not.
pub(crate) fn write_file(path: &str, text: &str) -> Result<(), ExitCode> {
    if path == "-" {
        return print(text);
    }
    std::fs::write(path, text).map_err(|e| {
        eprintln!("{path}: {e}");
        ExitCode::from(ENVIRONMENT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_counts_that_make_no_sense_are_answered_with_what_does() {
        assert_eq!(parse_seeds("3..5"), Ok(3..5));
        assert_eq!(parse_seeds("7"), Ok(7..8));
        for bad in ["abc", "1..x", "5..5", "-1", ""] {
            let why = parse_seeds(bad).expect_err(bad);
            assert!(why.contains("write A..B with A below B"), "{bad}: {why}");
        }
        assert_eq!(parse_count("2"), Ok(2));
        for bad in ["0", "x", "-1"] {
            let why = parse_count(bad).expect_err(bad);
            assert!(why.contains("1 or more"), "{bad}: {why}");
        }
    }
}
