//! The house rules of Holdfast, as tests over the sources of every crate. A breach is reported as
//! `file:line: rule: what`. Each rule has a fixture under `house/` that it must refuse, at exactly
//! the lines the fixture names, and all of them must accept `house/passing.txt`.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "these tests read the sources of the workspace from disk"
)]

#[path = "house/source.rs"]
mod source;

use source::{Source, peek, peek_back};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
/// The only file that may hold unsafe code.
const MAP_MODULE: &str = "log/src/map.rs";
/// Crates in which clippy forbids clocks, environment, chance and files.
const DETERMINISTIC: [&str; 4] = ["consensus", "log", "fsm", "sim"];
/// Which of our crates each may depend on.
const MAY_DEPEND: [(&str, &[&str]); 6] = [
    ("consensus", &[]),
    ("log", &["consensus"]),
    ("fsm", &["consensus", "log"]),
    ("net", &["consensus", "log", "fsm"]),
    ("sim", &["consensus", "log", "fsm"]),
    ("fuzz", &["consensus", "log", "fsm"]),
];
/// Packages with a workspace of their own: their sources keep the rules, their manifests cannot
/// inherit anything.
const APART: [&str; 2] = ["book/compare", "log/adapters"];
/// Lint groups that nobody may switch off, not even with a reason.
const GROUPS: [&str; 9] = [
    "warnings",
    "unused",
    "all",
    "correctness",
    "suspicious",
    "complexity",
    "perf",
    "style",
    "missing_docs",
];

/// A breach: line and what was found.
type Breach = (usize, String);

enum Check {
    Rust(fn(&Source) -> Vec<Breach>),
    Manifest(fn(&Source) -> Vec<Breach>),
}

/// Every rule, by the name of its fixture.
const RULES: [(&str, Check); 13] = [
    ("ascii", Check::Rust(ascii)),
    ("file_length", Check::Rust(file_length)),
    ("function_length", Check::Rust(function_length)),
    ("unwrap", Check::Rust(no_unwrap)),
    ("stub", Check::Rust(no_stubs)),
    ("ignored_test", Check::Rust(no_ignored_tests)),
    ("root_forbids_unsafe", Check::Rust(root_forbids_unsafe)),
    ("unsafe", Check::Rust(unsafe_only_in_the_map)),
    ("blanket", Check::Rust(no_blankets)),
    ("exception", Check::Rust(exceptions_stand_at_the_edge)),
    ("direction", Check::Manifest(direction)),
    ("manifest", Check::Manifest(manifest_inherits)),
    ("lint_level", Check::Manifest(no_level_is_lowered)),
];

fn ascii(source: &Source) -> Vec<Breach> {
    let lines = source.text.lines().enumerate();
    let found = lines.filter_map(|(n, line)| line.chars().find(|c| !c.is_ascii()).map(|c| (n, c)));
    found.map(|(n, c)| (n + 1, format!("{c:?} is not ASCII"))).collect()
}

fn file_length(source: &Source) -> Vec<Breach> {
    match source.text.lines().count() {
        n if n > FILE_LINES_MAX => vec![(n, format!("{n} lines, at most {FILE_LINES_MAX}"))],
        _ => Vec::new(),
    }
}

fn function_length(source: &Source) -> Vec<Breach> {
    let lengths = source.functions().into_iter().map(|span| {
        let first = source.line_of(span.start);
        (first, source.line_of(span.end - 1) - first + 1)
    });
    lengths
        .filter(|(_, lines)| *lines > FUNCTION_LINES_MAX)
        .map(|(at, lines)| (at, format!("{lines} lines, at most {FUNCTION_LINES_MAX}")))
        .collect()
}

/// Words of the code that satisfy a condition, as breaches.
fn flag(source: &Source, what: &str, wrong: impl Fn(usize, &str) -> bool) -> Vec<Breach> {
    let words = source.words().into_iter().filter(|(at, word)| wrong(*at, word));
    words.map(|(at, word)| (source.line_of(at), format!("`{word}`: {what}"))).collect()
}

fn no_unwrap(source: &Source) -> Vec<Breach> {
    let bytes = source.code.as_bytes();
    flag(source, "handle the error, or `expect` with the invariant that excludes it", |at, word| {
        let called = matches!(peek_back(bytes, at), Some(b'.' | b':'));
        called && matches!(word, "unwrap" | "unwrap_unchecked") && !source.in_test(at)
    })
}

fn no_stubs(source: &Source) -> Vec<Breach> {
    let bytes = source.code.as_bytes();
    flag(source, "finish it or leave it out", |at, word| {
        let invoked = peek(bytes, at + word.len()).is_some_and(|(_, b)| b == b'!');
        invoked && matches!(word, "todo" | "unimplemented" | "dbg")
    })
}

/// The attributes whose text holds one of these words, with that word.
fn attributed<'a>(source: &'a Source, words: &[&'a str]) -> Vec<(usize, bool, &'a str, &'a str)> {
    let mut found = Vec::new();
    for attribute in source.attributes() {
        let text = &source.code[attribute.span.clone()];
        let names: Vec<_> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for word in words.iter().filter(|word| names.contains(word)) {
            found.push((source.line_of(attribute.span.start), attribute.inner, *word, text));
        }
    }
    found
}

fn no_ignored_tests(source: &Source) -> Vec<Breach> {
    let found = attributed(source, &["ignore"]).into_iter();
    found.map(|(at, ..)| (at, "a slow test is a command, not an ignored test".into())).collect()
}

fn root_forbids_unsafe(source: &Source) -> Vec<Breach> {
    let parts: Vec<_> = source.path.split('/').collect();
    let root = match parts[..] {
        ["log", ..] => false,
        [_, "src", "lib.rs" | "main.rs"] | [_, "src", "bin", _] | [_, "fuzz_targets", _] => true,
        _ => false,
    };
    let forbids = attributed(source, &["forbid"]).iter().any(|(.., text)| {
        text.chars().filter(|c| !c.is_whitespace()).eq("#![forbid(unsafe_code)]".chars())
    });
    if root && !forbids {
        return vec![(1, "a crate root says #![forbid(unsafe_code)]".into())];
    }
    Vec::new()
}

fn unsafe_only_in_the_map(source: &Source) -> Vec<Breach> {
    if source.path == MAP_MODULE {
        return Vec::new();
    }
    flag(source, &format!("only {MAP_MODULE} may hold code marked `unsafe`"), |_, word| {
        word == "unsafe"
    })
}

fn no_blankets(source: &Source) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (line, inner, word, text) in attributed(source, &["allow", "expect"]) {
        let names: Vec<_> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        // What test files share is not used by each of them, so there an expectation cannot hold.
        if word == "allow" && inner && !source.in_test(0) {
            breaches.push((line, "an inner `allow` covers too much: expect it where it is".into()));
        } else if !names.contains(&"reason") {
            breaches.push((line, format!("`{word}` without a reason")));
        } else if let Some(group) = names.iter().find(|name| GROUPS.contains(name)) {
            breaches.push((line, format!("`{group}` is a whole group of lints")));
        }
    }
    breaches
}

/// The modules that touch the real world, and tests, may say so; nothing else may.
fn exceptions_stand_at_the_edge(source: &Source) -> Vec<Breach> {
    let (krate, rest) = source.path.split_once('/').unwrap_or_default();
    let edge = match krate {
        "log" => source.path == MAP_MODULE || rest.starts_with("src/disk/real"),
        "sim" => rest == "src/main.rs" || rest.starts_with("src/cli"),
        _ => false,
    };
    if edge || source.in_test(0) || !DETERMINISTIC.contains(&krate) {
        return Vec::new();
    }
    let words = ["disallowed_methods", "disallowed_types"];
    let found = attributed(source, &words).into_iter();
    found.map(|(at, _, word, _)| (at, format!("{word} is expected outside the edge"))).collect()
}

/// The lines of a manifest that declare dependencies, with their numbers.
fn dependency_lines(source: &Source) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (n, line) in source.text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') {
            inside = line.trim_matches(['[', ']']).ends_with("dependencies")
                || line.contains("dependencies.");
        }
        if inside && (!line.starts_with('[') || line.contains("dependencies.")) && !line.is_empty()
        {
            found.push((n + 1, line));
        }
    }
    found
}

fn direction(source: &Source) -> Vec<Breach> {
    let (krate, _) = source.path.split_once('/').unwrap_or_default();
    let Some((_, may)) = MAY_DEPEND.iter().find(|(name, _)| *name == krate) else {
        return Vec::new();
    };
    let mut breaches = Vec::new();
    for (at, line) in dependency_lines(source) {
        for (_, tail) in line.match_indices("holdfast-").map(|(i, m)| (i, &line[i + m.len()..])) {
            let end = tail.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(tail.len());
            if !may.contains(&&tail[..end]) {
                breaches.push((at, format!("{krate} may not depend on {}", &tail[..end])));
            }
        }
    }
    breaches
}

fn manifest_inherits(source: &Source) -> Vec<Breach> {
    if !source.path.contains('/') {
        return Vec::new();
    }
    let mut breaches = Vec::new();
    for (at, line) in dependency_lines(source) {
        // A table of one dependency is judged by the lines in it.
        if !line.starts_with('[') && !line.contains("workspace = true") {
            breaches.push((at, "versions are declared once, in the root manifest".into()));
        }
    }
    let lints = source.text.lines().position(|line| line.trim() == "[lints]");
    let inherits = lints.and_then(|n| source.text.lines().nth(n + 1));
    if inherits.is_none_or(|line| line.trim() != "workspace = true") {
        breaches.push((1, "the lints of the workspace are not inherited".into()));
    }
    breaches
}

fn no_level_is_lowered(source: &Source) -> Vec<Breach> {
    let mut inside = false;
    let mut breaches = Vec::new();
    for (n, line) in source.text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.contains("lints");
        }
        if inside && line.contains("\"allow\"") {
            breaches.push((n + 1, "a lint is switched off for a whole crate".into()));
        }
    }
    breaches
}

/// All breaches of one file, by rule.
fn judge(source: &Source) -> Vec<(&'static str, Breach)> {
    let manifest = source.path.ends_with(".toml");
    let mut found = Vec::new();
    for (name, check) in &RULES {
        let breaches = match check {
            Check::Rust(check) if !manifest => check(source),
            Check::Manifest(check) if manifest => check(source),
            Check::Rust(_) | Check::Manifest(_) => Vec::new(),
        };
        found.extend(breaches.into_iter().map(|breach| (*name, breach)));
    }
    found
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the crate is a folder of the workspace").to_owned()
}

/// Paths of the sources below `dir`, from the root of the workspace, sorted.
fn sources_below(dir: &str, found: &mut BTreeSet<String>) {
    let full = root().join(dir);
    let entries = fs::read_dir(&full).unwrap_or_else(|e| panic!("{}: {e}", full.display()));
    for entry in entries {
        let entry = entry.expect("the directory stays while it is read");
        let name = entry.file_name().into_string().expect("file names are ASCII");
        let path = format!("{dir}/{name}");
        if entry.path().is_dir() {
            let generated = ["target", "corpus", "artifacts", "coverage"].contains(&&*name);
            if !generated && !name.starts_with('.') {
                sources_below(&path, found);
            }
        } else if name.ends_with(".rs") || name == "Cargo.toml" {
            found.insert(path);
        }
    }
}

/// Reads every source of the workspace; knows which files are tests by place (`tests`, `benches`)
/// and by declaration (`#[cfg(test)] mod name;`).
fn workspace() -> Vec<Source> {
    let mut paths = BTreeSet::from(["Cargo.toml".to_owned()]);
    for name in MAY_DEPEND.iter().map(|(name, _)| *name).chain(APART) {
        sources_below(name, &mut paths);
    }
    let apart = |path: &str| {
        let below = |dir: &str| path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
        APART.into_iter().any(below)
    };
    paths.retain(|path| !(path.ends_with(".toml") && apart(path)));
    let texts: BTreeMap<_, _> = paths
        .into_iter()
        .map(|path| {
            let bytes = fs::read(root().join(&path)).unwrap_or_else(|e| panic!("{path}: {e}"));
            (path, String::from_utf8_lossy(&bytes).into_owned())
        })
        .collect();
    let mut tests = Vec::new();
    for (path, text) in &texts {
        tests.extend(Source::new(path, text, false).test_modules());
    }
    let is_test = |path: &str| {
        let place = match apart(path) {
            // A package may lie at any depth below the folder.
            true => path.split('/').skip(2).any(|p| p == "tests" || p == "benches"),
            false => path.split('/').nth(1).is_some_and(|p| p == "tests" || p == "benches"),
        };
        place
            || tests.iter().any(|t| path == format!("{t}.rs") || path.starts_with(&format!("{t}/")))
    };
    texts.iter().map(|(path, text)| Source::new(path, text, is_test(path))).collect()
}

#[test]
fn every_source_keeps_the_house_rules() {
    let sources = workspace();
    for name in MAY_DEPEND.iter().map(|(name, _)| *name).chain(APART) {
        let seen = sources.iter().filter(|s| s.path.starts_with(&format!("{name}/"))).count();
        assert!(seen >= 2, "only {seen} sources of {name} were found: the test looks elsewhere");
    }
    let mut report = String::new();
    for source in &sources {
        for (rule, (line, what)) in judge(source) {
            report.push_str(&format!("{}:{line}: {rule}: {what}\n", source.path));
        }
    }
    assert!(report.is_empty(), "house rules broken:\n{report}");
}

#[test]
fn the_deterministic_crates_forbid_the_same_things() {
    let text = |name: &str| {
        let path = root().join(name).join("clippy.toml");
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let first = text(DETERMINISTIC[0]);
    for needed in ["Instant::now", "std::env::var", "HashMap", "RandomState", "std::fs::File"] {
        assert!(first.contains(needed), "clippy.toml no longer forbids {needed}");
    }
    for name in DETERMINISTIC {
        assert!(text(name) == first, "{name}/clippy.toml differs from the one of consensus");
    }
}

/// A fixture: `@path P` names the file it plays, `@breach N` a line that must be reported (none:
/// it must pass), `@fill N TEXT` stands for N such lines; what follows `---` is the text.
fn fixture(name: &str) -> (Source, BTreeSet<usize>) {
    let path = root().join("consensus/tests/house").join(format!("{name}.txt"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (head, body) = text.split_once("---\n").expect("a fixture has a head");
    let mut plays = "";
    let mut breaches = BTreeSet::new();
    for line in head.lines() {
        match line.split_once(' ') {
            Some(("@path", path)) => plays = path,
            Some(("@breach", n)) => {
                breaches.insert(n.parse().expect("a line number"));
            }
            _ => panic!("{name}: {line:?} is no directive"),
        }
    }
    let mut filled = String::new();
    for line in body.lines() {
        let fill = line.trim().strip_prefix("@fill ").and_then(|f| f.split_once(' '));
        let (count, line) = fill.map_or((1, line), |(n, l)| (n.parse().expect("a count"), l));
        filled.extend(std::iter::repeat_n(format!("{line}\n"), count));
    }
    (Source::new(plays, &filled, false), breaches)
}

#[test]
fn each_rule_refuses_its_fixture_and_no_other_rule_does() {
    for (rule, _) in &RULES {
        let (source, expected) = fixture(rule);
        assert!(!expected.is_empty(), "{rule}: the fixture must break the rule");
        let found = judge(&source);
        let lines: BTreeSet<_> = found.iter().map(|(_, (line, _))| *line).collect();
        assert_eq!(lines, expected, "{rule}: {found:?}");
        assert!(found.iter().all(|(name, _)| name == rule), "{rule}: {found:?}");
    }
}

#[test]
fn what_only_looks_like_a_breach_passes() {
    for name in ["passing", "passing_manifest"] {
        let (source, expected) = fixture(name);
        assert!(expected.is_empty(), "{name} promises breaches");
        assert_eq!(judge(&source), [], "{name}");
    }
}

#[test]
fn a_module_declared_under_cfg_test_is_a_test_file() {
    let text = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\n#[path = \"x.rs\"]\npub mod c;\n";
    let modules = |path| Source::new(path, text, false).test_modules();
    assert_eq!(modules("log/src/lib.rs"), ["log/src/b", "log/src/x"]);
    assert_eq!(modules("log/src/disk.rs"), ["log/src/disk/b", "log/src/x"]);
}
