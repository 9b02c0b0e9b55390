//! Mutants: real bugs of other implementations, planted in ours one at a time, to prove that the
//! simulator sees them.
//!
//! A mutant is a file `sim/mutants/NAME.patch`: a header, then a unified diff against the present
//! sources. The header says where the bug was found (`source`), what it does (`what`), which checker
//! must fire (`property`), and how it is looked for (`detect`):
//!
//! - `run PROFILE SEEDS`: a campaign, up to so many seeds in each range;
//! - `explore FLAGS...`: the exhaustive search within these bounds;
//! - `scenario NAME FLAGS...`: a scenario, over up to the seeds in `--seeds`;
//! - `test PACKAGE WORDS...`: tests of a package, for a step behind which another one stands, so
//!   that no schedule shows it alone. The properties are the names of the tests that must fail.

pub mod patch;

use patch::Patch;
use std::collections::BTreeMap;

/// The set that is run first after every change of the simulator: bugs that it must see in seconds.
pub const CALIBRATION: [&str; 8] = [
    "b01-vote-before-durable",
    "b02-vote-cleared-in-term",
    "b04-old-grant-counted",
    "b13-median-of-even-groups",
    "b17-tail-not-cut-on-disk",
    "b21-append-below-the-base",
    "b64-read-before-own-term",
    "b65-read-without-a-round",
];

/// How a mutant is looked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detect {
    /// A campaign of a profile, up to so many seeds.
    Run {
        /// The profile.
        profile: String,
        /// Seeds in each range.
        seeds: u64,
    },
    /// The exhaustive search with these flags.
    Explore {
        /// Flags as they are written.
        flags: Vec<String>,
    },
    /// A scenario with these flags.
    Scenario {
        /// Its name and flags as they are written.
        words: Vec<String>,
    },
    /// Tests of a package in the scratch copy: seen if they fail.
    Test {
        /// The package and what else `cargo test` is told, as it is written.
        words: Vec<String>,
    },
}

/// A bug to plant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Name of the file without its ending.
    pub name: String,
    /// Where the bug was found.
    pub source: String,
    /// The checkers that must fire, any one of them.
    pub properties: Vec<String>,
    /// How it is looked for.
    pub detect: Detect,
    /// What it does.
    pub what: String,
    /// The change.
    pub patch: Patch,
}

impl Mutant {
    /// Reads a file.
    ///
    /// # Errors
    /// What is missing or not understood.
    pub fn read(name: &str, text: &str) -> Result<Self, String> {
        let begin = text.find("--- ").ok_or("no diff")?;
        let (head, diff) = text.split_at(begin);
        let mut fields: BTreeMap<&str, String> = BTreeMap::new();
        let mut last = None;
        for line in head.lines().filter(|line| !line.trim().is_empty()) {
            let field = line.split_once(": ").filter(|(key, _)| FIELDS.contains(key));
            match (field, last) {
                (Some((key, value)), _) => {
                    fields.insert(key, value.trim().to_owned());
                    last = Some(key);
                }
                // A line without a key goes on with the one before.
                (None, Some(key)) => {
                    let value = fields.entry(key).or_default();
                    *value = format!("{value} {}", line.trim());
                }
                (None, None) => return Err(format!("no field: {line}")),
            }
        }
        let mut field = |key: &str| fields.remove(key).ok_or_else(|| format!("no {key}"));
        Ok(Self {
            name: name.to_owned(),
            source: field("source")?,
            properties: field("property")?.split(" or ").map(|p| p.trim().to_owned()).collect(),
            detect: Detect::read(&field("detect")?)?,
            what: field("what")?,
            patch: Patch::read(diff)?,
        })
    }

    /// True if it belongs to the calibration set.
    #[must_use]
    pub fn calibrates(&self) -> bool {
        CALIBRATION.contains(&self.name.as_str())
    }
}

/// Fields of a header.
const FIELDS: [&str; 4] = ["source", "property", "detect", "what"];

impl Detect {
    fn read(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace().map(str::to_owned);
        match words.next().as_deref() {
            Some("run") => {
                let profile = words.next().ok_or("run names no profile")?;
                let seeds = words.next().and_then(|n| n.parse().ok());
                let seeds = seeds.filter(|n| *n > 0).ok_or("run names no number of seeds")?;
                Ok(Self::Run { profile, seeds })
            }
            Some("explore") => Ok(Self::Explore { flags: words.collect() }),
            Some("scenario") => Ok(Self::Scenario { words: words.collect() }),
            Some("test") => {
                let words: Vec<String> = words.collect();
                // Without a filter a test would count that has nothing to do with the step.
                if words.len() < 2 {
                    Err("test names no tests".into())
                } else {
                    Ok(Self::Test { words })
                }
            }
            _ => Err(format!("nothing to detect it with: {text}")),
        }
    }
}

/// The middle one of some figures, if there are any (of two, the larger).
#[must_use]
pub fn median<T: Copy + PartialOrd>(mut figures: Vec<T>) -> Option<T> {
    figures.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    figures.get(figures.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "source: B02 (somewhere)\nproperty: election-safety or panic\n\
        detect: run default 40\nwhat: forgets its vote\n  each time\n\
        --- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n-a\n+b\n";

    #[test]
    fn a_header_is_read() {
        let mutant = Mutant::read("b02-vote-cleared-in-term", TEXT).expect("well formed");
        assert_eq!(mutant.properties, ["election-safety", "panic"]);
        assert_eq!(mutant.detect, Detect::Run { profile: "default".into(), seeds: 40 });
        assert_eq!(mutant.what, "forgets its vote each time");
        assert!(mutant.calibrates());
        assert!(!Mutant { name: "b02-vote".into(), ..mutant }.calibrates());
    }

    #[test]
    fn a_header_that_lacks_something_is_refused() {
        for field in FIELDS {
            let without: Vec<&str> = TEXT.lines().filter(|line| !line.starts_with(field)).collect();
            assert!(Mutant::read("x", &without.join("\n")).is_err(), "{field}");
        }
        assert!(Mutant::read("x", &TEXT.replace("default 40", "default")).is_err());
        assert!(Mutant::read("x", &TEXT.replace("run default", "guess")).is_err());
        let test = |words| Mutant::read("x", &TEXT.replace("run default 40", words));
        assert!(test("test holdfast-fsm").is_err(), "everything may fail for anything");
        let words = vec!["holdfast-fsm".to_owned(), "a_step".to_owned()];
        assert_eq!(test("test holdfast-fsm a_step").map(|m| m.detect), Ok(Detect::Test { words }));
        assert!(Mutant::read("x", "source: a\n").is_err());
    }

    #[test]
    fn the_median_of_three_is_the_middle_one() {
        assert_eq!(median(vec![9, 1, 4]), Some(4));
        assert_eq!(median(vec![2.5]), Some(2.5));
        assert_eq!(median::<u64>(vec![]), None);
    }
}
