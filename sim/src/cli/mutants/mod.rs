//! `mutants`: plants each bug in a scratch copy, builds it, and demands that the simulator sees it.

mod hunt;
mod report;
mod scratch;

use super::{ENVIRONMENT, FAILED, parse_count, print};
use clap::Args;
use holdfast_sim::mutants::{Detect, Mutant, median};
use hunt::{Sighting, hunt, sighting_of};
use report::Report;
use scratch::Scratch;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
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
    /// Only that they compile: nothing is looked for.
    #[arg(long, conflicts_with = "check")]
    compile: bool,
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
    #[arg(long, default_value_t = 1, value_parser = parse_count)]
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
    /// Print the table as the book holds it.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
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
        let result = match (self.check, self.compile) {
            (true, _) => check(&root, &mutants),
            (_, true) => self.compile_all(&root, mutants),
            _ => self.hunt_all(&root, mutants),
        };
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

    fn scratch(&self, root: &Path) -> Result<Scratch, String> {
        let at = self.scratch.clone().unwrap_or_else(|| target(root).join("mutants"));
        eprintln!("the scratch copy is in {}", at.display());
        Scratch::new(root, &at)
    }

    /// Plants each and lets the compiler look at it, without making a program.
    fn compile_all(&self, root: &Path, mut mutants: Vec<Mutant>) -> Result<ExitCode, String> {
        let mut scratch = self.scratch(root)?;
        mutants.sort_by_key(|mutant| (depth(mutant), mutant.name.clone()));
        let (mut broken, of) = (0, mutants.len());
        for mutant in mutants {
            if let Err(e) = scratch.plant(&mutant.patch).and_then(|()| scratch.compile()) {
                broken += 1;
                eprintln!("{}: {e}", mutant.name);
            }
        }
        scratch.restore()?;
        println!("{} of {of} mutants compile", of - broken);
        Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
    }

    fn hunt_all(&self, root: &Path, mutants: Vec<Mutant>) -> Result<ExitCode, String> {
        let begun = Instant::now();
        let mut scratch = self.scratch(root)?;
        eprintln!("building the simulator without a mutant");
        let program = scratch.build_unmutated()?;
        let (mut rows, used) = self.plant_all(&mut scratch, mutants)?;
        scratch.restore()?;
        let unclean = self.unmutated(&program, &scratch, &used)?;
        rows.sort_by(|a, b| a.mutant.name.cmp(&b.mutant.name));
        let report = Report { rows, unclean, wall: begun.elapsed().as_secs_f64() };
        let text = match (self.json, self.markdown) {
            (true, _) => format!("{}\n", report.as_json()),
            (_, true) => report.as_markdown(),
            _ => report.as_table(),
        };
        print(&text).map_or_else(Ok, |()| {
            Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
        })
    }

    /// Builds one after the other, and looks for each while the next is being built.
    fn plant_all(
        &self,
        scratch: &mut Scratch,
        mut mutants: Vec<Mutant>,
    ) -> Result<(Vec<Row>, Used), String> {
        // What is planted in a lower crate is built together: it costs the builds above it too.
        mutants.sort_by_key(|mutant| (depth(mutant), mutant.name.clone()));
        let of = mutants.len();
        let (built, waiting) = sync_channel::<(Mutant, Built)>(1);
        thread::scope(|scope| {
            let hunter = scope.spawn(|| self.hunt_built(waiting, of));
            let planted = plant_each(scratch, mutants, built);
            let hunted = hunter.join().map_err(|_| "the thread that looks ended badly")?;
            planted.and(hunted)
        })
    }

    /// Looks for each that was built.
    fn hunt_built(
        &self,
        waiting: Receiver<(Mutant, Built)>,
        of: usize,
    ) -> Result<(Vec<Row>, Used), String> {
        let (mut rows, mut used) = (Vec::new(), Used::new());
        for (mutant, built) in waiting {
            let fate = match built {
                Built::Broken(why) => Fate::Broken(why),
                Built::Program(program) => self.fate(&program, &mutant, &mut used)?,
                Built::Tested(seen) => {
                    used.entry((mutant.detect.clone(), 0)).or_insert(1);
                    judge(&mutant, seen.into_iter().collect(), 1)
                }
            };
            eprint!("{:>3} of {of}: {}", rows.len() + 1, report::line(&mutant, &fate));
            rows.push(Row { mutant, fate });
        }
        Ok((rows, used))
    }

    /// What the simulator reports without any mutant on the seeds that mutants were seen with, and
    /// in the searches, scenarios and tests: nothing, or the sightings mean nothing.
    fn unmutated(
        &self,
        program: &Path,
        scratch: &Scratch,
        used: &Used,
    ) -> Result<Vec<Sighting>, String> {
        let jobs = thread::available_parallelism().map_or(1, usize::from).max(self.jobs);
        let mut seen = Vec::new();
        for ((detect, n), seeds) in used {
            eprintln!("without a mutant, range {n}: {detect:?}");
            seen.extend(match detect {
                Detect::Test { words } => {
                    let begun = Instant::now();
                    let failed = scratch.test(words)?;
                    sighting_of(&failed, &[], words, begun.elapsed().as_secs_f64())
                }
                Detect::Run { profile, .. } => {
                    let whole = Detect::Run { profile: profile.clone(), seeds: *seeds };
                    hunt(program, &whole, *n, jobs)?
                }
                Detect::Explore { .. } | Detect::Scenario { .. } => {
                    hunt(program, detect, *n, jobs)?
                }
            });
        }
        Ok(seen)
    }

    /// Only campaigns have ranges: the rest is the same each time.
    fn ranges_of(&self, detect: &Detect) -> std::ops::Range<u64> {
        match detect {
            Detect::Run { .. } => 0..self.ranges,
            Detect::Explore { .. } | Detect::Scenario { .. } | Detect::Test { .. } => 0..1,
        }
    }

    fn fate(&self, program: &Path, mutant: &Mutant, used: &mut Used) -> Result<Fate, String> {
        let ranges = self.ranges_of(&mutant.detect);
        let of = ranges.clone().count();
        let mut seen = Vec::new();
        for n in ranges {
            let sighting = hunt(program, &mutant.detect, n, self.jobs)?;
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
        Ok(judge(mutant, seen, of))
    }
}

/// What came of building a mutant.
enum Built {
    /// A simulator to look with.
    Program(PathBuf),
    /// Its tests ran at once: they need the copy that it is planted in.
    Tested(Option<Sighting>),
    /// It does not apply or does not build.
    Broken(String),
}

/// Builds each, and hands it over. Ends early if nobody takes them any more: who took them failed.
fn plant_each(
    scratch: &mut Scratch,
    mutants: Vec<Mutant>,
    built: SyncSender<(Mutant, Built)>,
) -> Result<(), String> {
    for (n, mutant) in mutants.into_iter().enumerate() {
        // At most three are there at once: one that is looked for, one that waits, one in work.
        let ready = build(scratch, &mutant, &format!("planted-{}", n % 3))?;
        if built.send((mutant, ready)).is_err() {
            break;
        }
    }
    Ok(())
}

fn build(scratch: &mut Scratch, mutant: &Mutant, program: &str) -> Result<Built, String> {
    if let Err(e) = scratch.plant(&mutant.patch) {
        return Ok(Built::Broken(format!("does not apply: {e}")));
    }
    let begun = Instant::now();
    let built = match &mutant.detect {
        Detect::Test { words } => scratch.test(words).map(|failed| {
            let seconds = begun.elapsed().as_secs_f64();
            Built::Tested(sighting_of(&failed, &mutant.properties, words, seconds))
        }),
        _ => scratch.build_as(program).map(Built::Program),
    };
    Ok(built.unwrap_or_else(|e| Built::Broken(format!("does not build: {e}"))))
}

/// How far up the crates the lowest file is that it changes.
fn depth(mutant: &Mutant) -> usize {
    const CRATES: [&str; 4] = ["consensus/", "log/", "fsm/", "sim/"];
    let of = |path: &str| CRATES.iter().position(|c| path.starts_with(c)).unwrap_or(CRATES.len());
    mutant.patch.paths().map(of).min().unwrap_or(CRATES.len())
}

/// What the sightings in so many ranges amount to.
fn judge(mutant: &Mutant, seen: Vec<Sighting>, of: usize) -> Fate {
    if seen.len() * 2 <= of {
        return Fate::Survived { seen_in: seen.len() };
    }
    let as_expected = |s: &&Sighting| mutant.properties.contains(&s.property);
    let expected = seen.iter().any(|s| as_expected(&s));
    let shown = seen.iter().find(as_expected).or(seen.first()).cloned();
    let Some(mut by) = shown else { return Fate::Survived { seen_in: 0 } };
    by.seconds = median(seen.iter().map(|s| s.seconds).collect()).unwrap_or(by.seconds);
    by.seeds = median(seen.iter().filter_map(|s| s.seeds).collect());
    Fate::Killed { by, expected, ranges: seen.len() }
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
