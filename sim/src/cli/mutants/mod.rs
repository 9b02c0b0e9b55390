//! `mutants`: plants each bug in a scratch copy, builds it, and demands that the simulator sees it.

mod hunt;
mod scratch;

use super::{ENVIRONMENT, FAILED, print};
use clap::Args;
use holdfast_sim::mutants::{Detect, Mutant, median};
use hunt::{Sighting, hunt};
use scratch::Scratch;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Where the patches are, in the workspace.
const PATCHES: &str = "sim/mutants";

/// Plant known bugs and see them caught.
#[derive(Args)]
pub(crate) struct Mutants {
    /// Only these, by the beginning of their names; all without any.
    names: Vec<String>,
    /// Only that every patch applies: nothing is built.
    #[arg(long)]
    check: bool,
    /// Only the set that is run after every change of the simulator.
    #[arg(long)]
    calibration: bool,
    /// Only each N-th, beginning with the K-th: K/N, with K from 0.
    #[arg(long, value_parser = parse_sample)]
    sample: Option<(usize, usize)>,
    /// Disjoint ranges of seeds that each is looked for in; figures are their medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=9))]
    ranges: u64,
    /// Threads of a campaign.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// The workspace; found from the current directory upwards without it.
    #[arg(long)]
    root: Option<PathBuf>,
    /// Where the scratch copy and its build are kept; `mutants` in the target directory without it.
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Print one JSON object to standard output.
    #[arg(long)]
    json: bool,
}

/// What became of one.
enum Fate {
    Killed { by: Sighting, expected: bool, ranges: usize },
    Survived { seen_in: usize },
    Broken(String),
}

/// How many seeds of each range showed a mutant at most, by how it was looked for (a campaign
/// without its own number of seeds).
type Used = BTreeMap<(Detect, u64), u64>;

/// One with its fate.
struct Row {
    mutant: Mutant,
    fate: Fate,
}

fn parse_sample(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    parts.filter(|(k, n): &(usize, usize)| k < n).ok_or_else(|| "write K/N, K below N".to_owned())
}

impl Mutants {
    pub(crate) fn execute(self) -> ExitCode {
        let trouble = |e: String| {
            eprintln!("{e}");
            ExitCode::from(ENVIRONMENT)
        };
        let root = match self.root.clone().map_or_else(find_root, Ok) {
            Ok(root) => root,
            Err(e) => return trouble(e),
        };
        let mutants = match self.chosen(&root) {
            Ok(mutants) => mutants,
            Err(e) => return trouble(e),
        };
        let result =
            if self.check { check(&root, &mutants) } else { self.hunt_all(&root, mutants) };
        match result {
            Ok(code) => code,
            Err(e) => trouble(e),
        }
    }

    /// The mutants that are asked for, by name.
    fn chosen(&self, root: &Path) -> Result<Vec<Mutant>, String> {
        let mut all = load(root)?;
        for name in &self.names {
            if !all.iter().any(|m| m.name.starts_with(name.as_str())) {
                return Err(format!("no mutant's name begins with {name}"));
            }
        }
        all.retain(|m| {
            let named = self.names.is_empty() || self.names.iter().any(|n| m.name.starts_with(n));
            named && (!self.calibration || m.calibrates())
        });
        if let Some((k, n)) = self.sample {
            all = all.into_iter().skip(k).step_by(n).collect();
        }
        Ok(all)
    }

    fn hunt_all(&self, root: &Path, mutants: Vec<Mutant>) -> Result<ExitCode, String> {
        let begun = Instant::now();
        let at = self.scratch.clone().unwrap_or_else(|| target(root).join("mutants"));
        let mut scratch = Scratch::new(root, &at)?;
        eprintln!("building the simulator without a mutant in {}", at.display());
        let program = scratch.build_unmutated()?;
        let (mut rows, mut used, of) = (Vec::new(), Used::new(), mutants.len());
        for mutant in mutants {
            eprintln!("{} of {of}: {}", rows.len() + 1, mutant.name);
            let fate = self.fate(&mut scratch, &mutant, &mut used)?;
            eprint!("{}", line(&mutant, &fate));
            rows.push(Row { mutant, fate });
        }
        scratch.restore()?;
        let unclean = self.unmutated(&program, &used)?;
        let wall = begun.elapsed().as_secs_f64();
        let text = match self.json {
            true => format!("{}\n", as_json(&rows, &unclean, wall)),
            false => as_table(&rows, &unclean, wall),
        };
        print(&text).map_or_else(Ok, |()| {
            let all = rows.iter().all(|row| matches!(row.fate, Fate::Killed { .. }));
            let good = all && unclean.is_empty();
            Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
        })
    }

    /// What the simulator reports without any mutant on the seeds that mutants were seen with, and
    /// in the searches and scenarios: nothing, or the sightings mean nothing.
    fn unmutated(&self, program: &Path, used: &Used) -> Result<Vec<Sighting>, String> {
        let mut seen = Vec::new();
        for ((detect, n), seeds) in used {
            let detect = match detect {
                Detect::Run { profile, .. } => {
                    Detect::Run { profile: profile.clone(), seeds: *seeds }
                }
                other => other.clone(),
            };
            eprintln!("without a mutant, range {n}: {detect:?}");
            seen.extend(hunt(program, &detect, *n, self.jobs)?);
        }
        Ok(seen)
    }

    /// Only campaigns have ranges: the rest is the same each time.
    fn ranges_of(&self, detect: &Detect) -> std::ops::Range<u64> {
        match detect {
            Detect::Run { .. } => 0..self.ranges,
            Detect::Explore { .. } | Detect::Scenario { .. } => 0..1,
        }
    }

    fn fate(
        &self,
        scratch: &mut Scratch,
        mutant: &Mutant,
        used: &mut Used,
    ) -> Result<Fate, String> {
        if let Err(e) = scratch.plant(&mutant.patch) {
            return Ok(Fate::Broken(format!("does not apply: {e}")));
        }
        let program = match scratch.build() {
            Ok(program) => program,
            Err(e) => return Ok(Fate::Broken(format!("does not build: {e}"))),
        };
        let ranges = self.ranges_of(&mutant.detect);
        let of = ranges.clone().count();
        let mut seen = Vec::new();
        for n in ranges {
            let sighting = hunt(&program, &mutant.detect, n, self.jobs)?;
            if let Some(sighting) = &sighting {
                let plan = match &mutant.detect {
                    Detect::Run { profile, .. } => {
                        Detect::Run { profile: profile.clone(), seeds: 0 }
                    }
                    other => other.clone(),
                };
                let most = used.entry((plan, n)).or_insert(0);
                *most = (*most).max(sighting.seeds.unwrap_or(1));
            }
            seen.extend(sighting);
        }
        if seen.len() * 2 <= of {
            return Ok(Fate::Survived { seen_in: seen.len() });
        }
        let as_expected = |s: &&Sighting| mutant.properties.contains(&s.property);
        let expected = seen.iter().any(|s| as_expected(&s));
        let shown = seen.iter().find(as_expected).or(seen.first()).cloned();
        let Some(mut by) = shown else { return Ok(Fate::Survived { seen_in: 0 }) };
        by.seconds = median(seen.iter().map(|s| s.seconds).collect()).unwrap_or(by.seconds);
        by.seeds = median(seen.iter().filter_map(|s| s.seeds).collect());
        Ok(Fate::Killed { by, expected, ranges: seen.len() })
    }
}

/// Every mutant of the workspace, by name.
fn load(root: &Path) -> Result<Vec<Mutant>, String> {
    let folder = root.join(PATCHES);
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|ending| ending != "patch") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        all.push(Mutant::read(&name, &text).map_err(|e| format!("{name}: {e}"))?);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Applies every patch in memory.
fn check(root: &Path, mutants: &[Mutant]) -> Result<ExitCode, String> {
    let mut broken = 0;
    for mutant in mutants {
        if let Err(e) = mutant.patch.apply(&|path| scratch::read(root, path)) {
            broken += 1;
            eprintln!("{}: {e}", mutant.name);
        }
    }
    println!("{} of {} patches apply", mutants.len() - broken, mutants.len());
    Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn find_root() -> Result<PathBuf, String> {
    let here = std::env::current_dir().map_err(|e| format!("the current directory: {e}"))?;
    let root = here.ancestors().find(|dir| dir.join(PATCHES).is_dir()).map(Path::to_owned);
    root.ok_or_else(|| format!("no {PATCHES} here or above; name the workspace with --root"))
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// One line of the table.
fn line(mutant: &Mutant, fate: &Fate) -> String {
    let name = &mutant.name;
    match fate {
        Fate::Killed { by, expected, ranges } => {
            let seen = if *expected { String::new() } else { "seen by ".to_owned() };
            let seeds = by.seeds.map_or_else(|| "-".to_owned(), |n| n.to_string());
            format!(
                "{name:<36} killed    {:<34} {seeds:>6} {:>7.1} s  {ranges}x\n",
                format!("{seen}{}", by.property),
                by.seconds
            )
        }
        Fate::Survived { seen_in } => {
            format!(
                "{name:<36} SURVIVED  expected {} (seen in {seen_in} ranges)\n",
                mutant.properties.join(" or ")
            )
        }
        Fate::Broken(why) => format!("{name:<36} BROKEN    {why}\n"),
    }
}

fn counts(rows: &[Row]) -> [usize; 4] {
    let count = |f: &dyn Fn(&Fate) -> bool| rows.iter().filter(|row| f(&row.fate)).count();
    [
        count(&|fate| matches!(fate, Fate::Killed { expected: true, .. })),
        count(&|fate| matches!(fate, Fate::Killed { expected: false, .. })),
        count(&|fate| matches!(fate, Fate::Survived { .. })),
        count(&|fate| matches!(fate, Fate::Broken(_))),
    ]
}

fn as_table(rows: &[Row], unclean: &[Sighting], wall: f64) -> String {
    let mut text =
        format!("{:<36} {:<9} {:<34} {:>6} {:>9}\n", "mutant", "fate", "checker", "seeds", "time");
    for row in rows {
        text += &line(&row.mutant, &row.fate);
    }
    let [killed, otherwise, survived, broken] = counts(rows);
    text += &format!(
        "{} mutants: {killed} killed, {otherwise} seen by another checker, {survived} survived, {broken} broken; {wall:.0} s\n",
        rows.len()
    );
    if unclean.is_empty() {
        text += "without a mutant: every property held on the same seeds\n";
    }
    for s in unclean {
        text += &format!("without a mutant: {} FAILED in {}\n", s.property, s.command);
    }
    text
}

fn as_json(rows: &[Row], unclean: &[Sighting], wall: f64) -> Value {
    let [killed, otherwise, survived, broken] = counts(rows);
    let show = |row: &Row| {
        let mut object = json!({
            "name": row.mutant.name, "source": row.mutant.source, "what": row.mutant.what,
            "expected": row.mutant.properties,
        });
        let more = match &row.fate {
            Fate::Killed { by, expected, .. } => json!({
                "fate": "killed", "checker": by.property, "as_expected": expected,
                "seeds": by.seeds, "seconds": by.seconds, "again": by.command,
            }),
            Fate::Survived { seen_in } => json!({ "fate": "survived", "ranges": seen_in }),
            Fate::Broken(why) => json!({ "fate": "broken", "why": why }),
        };
        if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
            object.extend(more);
        }
        object
    };
    let unclean: Vec<Value> =
        unclean.iter().map(|s| json!({ "property": s.property, "again": s.command })).collect();
    json!({
        "mutants": rows.iter().map(show).collect::<Vec<_>>(),
        "killed": killed, "seen_by_another": otherwise, "survived": survived, "broken": broken,
        "unmutated_failures": unclean, "wall_seconds": wall,
    })
}
