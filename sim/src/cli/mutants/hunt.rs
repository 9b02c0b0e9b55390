//! Looking for a planted bug with a simulator that was built from it.

use holdfast_sim::mutants::Detect;
use serde_json::Value;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Distance between the ranges of seeds.
const RANGE: u64 = 1_000_000;
/// Most seeds that one process is given: it finishes them all before it reports.
const CHUNK: u64 = 32;
/// How long one process may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(300);

/// What saw a bug.
#[derive(Clone, Debug)]
pub(super) struct Sighting {
    /// The checker that fired; `abort` or `hang` if the program did not get to report.
    pub(super) property: String,
    /// Seeds until then; none where no seeds are drawn.
    pub(super) seeds: Option<u64>,
    /// Seconds until then.
    pub(super) seconds: f64,
    /// How to see it again: behind `holdfast-sim`, or as it is.
    pub(super) command: String,
}

/// Looks in the `n`-th range of seeds.
pub(super) fn hunt(
    program: &Path,
    detect: &Detect,
    n: u64,
    jobs: usize,
) -> Result<Option<Sighting>, String> {
    match detect {
        Detect::Run { profile, seeds } => {
            campaign(program, profile, n * RANGE..n * RANGE + seeds, jobs)
        }
        Detect::Explore { flags } => {
            let mut words = vec!["explore".to_owned(), "--json".to_owned()];
            words.extend(flags.iter().cloned());
            once(program, &words, |object| {
                let found = &object["violation"]["property"];
                Ok(found.as_str().map(|property| (property.to_owned(), None)))
            })
        }
        Detect::Scenario { words } => {
            let mut all = vec!["scenario".to_owned(), "run".to_owned(), "--json".to_owned()];
            all.extend(words.iter().cloned());
            once(program, &all, |object| {
                let failed = object["failed"].as_array().ok_or("no list of failed seeds")?;
                let first = failed.iter().min_by_key(|f| f["seed"].as_u64());
                Ok(first.map(|f| (verdict_of(f), f["seed"].as_u64().map(|seed| seed + 1))))
            })
        }
        Detect::Test { words } => Err(format!("no program runs the tests {}", words.join(" "))),
    }
}

/// What failing tests show: the expected one if it is among them.
pub(super) fn sighting_of(
    failed: &[String],
    expected: &[String],
    words: &[String],
    seconds: f64,
) -> Option<Sighting> {
    let bare = |name: &str| name.rsplit("::").next().unwrap_or(name).to_owned();
    let failed: Vec<String> = failed.iter().map(|name| bare(name)).collect();
    let shown = failed.iter().find(|name| expected.contains(name)).or(failed.first())?;
    let command = format!("cargo test -p {}", words.join(" "));
    Some(Sighting { property: shown.clone(), seeds: None, seconds, command })
}

/// The property that a scenario's seed fails: lost records are the ledger's, the rest is named in
/// its verdict (`FAILED property: evidence`).
fn verdict_of(failed: &Value) -> String {
    if failed["lost"].as_u64() > Some(0) {
        return holdfast_sim::broker::ledger::PROPERTY.to_owned();
    }
    let words = failed["verdict"].as_str().and_then(|v| v.strip_prefix("FAILED "));
    words.and_then(|w| w.split_once(": ")).map_or("unnamed", |(property, _)| property).to_owned()
}

/// A campaign in growing pieces, until a piece holds a seed that fails.
fn campaign(
    program: &Path,
    profile: &str,
    seeds: Range<u64>,
    jobs: usize,
) -> Result<Option<Sighting>, String> {
    let begun = Instant::now();
    let (mut from, mut size) = (seeds.start, 1);
    while from < seeds.end {
        let to = seeds.end.min(from + size);
        let words: Vec<String> =
            ["run", "--seeds", &format!("{from}..{to}"), "--profile", profile, "--json", "--jobs"]
                .into_iter()
                .map(str::to_owned)
                .chain([jobs.to_string()])
                .collect();
        let sighting = once(program, &words, |object| {
            let failed = object["failed"].as_array().ok_or("no list of failed seeds")?;
            let first = failed.iter().min_by_key(|f| f["seed"].as_u64());
            Ok(first.map(|f| {
                let property = f["property"].as_str().unwrap_or("unnamed").to_owned();
                (property, f["seed"].as_u64())
            }))
        })?;
        if let Some(seen) = sighting {
            let seed = seen.seeds.unwrap_or(from);
            return Ok(Some(Sighting {
                seeds: Some(seed - seeds.start + 1),
                seconds: begun.elapsed().as_secs_f64(),
                command: format!("replay {seed} --profile {profile}"),
                ..seen
            }));
        }
        from = to;
        size = (size * 2).min(CHUNK);
    }
    Ok(None)
}

/// What a report shows: the property and, where there is one, the seed.
type Shown = Option<(String, Option<u64>)>;

/// Runs the program once; `shows` reads its report.
fn once(
    program: &Path,
    words: &[String],
    shows: impl Fn(&Value) -> Result<Shown, &'static str>,
) -> Result<Option<Sighting>, String> {
    let begun = Instant::now();
    let ended = run(program, words)?;
    let sighting = |property: String, seeds| Sighting {
        property,
        seeds,
        seconds: begun.elapsed().as_secs_f64(),
        command: words.join(" "),
    };
    let Some((status, stdout)) = ended else { return Ok(Some(sighting("hang".into(), None))) };
    if status.code().is_none() {
        return Ok(Some(sighting("abort".into(), None)));
    }
    if !matches!(status.code(), Some(0 | 1)) {
        return Err(format!("{} ended with {status}", words.join(" ")));
    }
    let object =
        serde_json::from_slice(&stdout).map_err(|e| format!("{}: {e}", words.join(" ")))?;
    let shown = shows(&object).map_err(|e| format!("{}: {e}", words.join(" ")))?;
    Ok(shown.map(|(property, seeds)| sighting(property, seeds)))
}

/// Runs the program to its end; nothing if it took too long and was stopped.
fn run(program: &Path, words: &[String]) -> Result<Option<(ExitStatus, Vec<u8>)>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", program.display());
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut pipe = child.stdout.take().ok_or("no pipe to the program")?;
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).map(|_| bytes)
    });
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if begun.elapsed() > PATIENCE => {
                child.kill().map_err(failed)?;
                child.wait().map_err(failed)?;
                return Ok(None);
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let bytes = reader.join().map_err(|_| "the reader of the program's output ended badly")?;
    Ok(Some((status, bytes.map_err(failed)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expected_test_is_shown_before_another_that_fails_too() {
        let strings = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let shown = |failed: &[&str]| {
            let seen = sighting_of(&strings(failed), &strings(&["b"]), &strings(&["p", "b"]), 1.0);
            seen.map(|s| s.property)
        };
        assert_eq!(shown(&["a", "tests::b"]).as_deref(), Some("b"));
        assert_eq!(shown(&["a"]).as_deref(), Some("a"), "seen by another");
        assert_eq!(shown(&[]), None, "survived");
    }
}
