//! The declared marks are those of the sources.
#![expect(clippy::disallowed_methods, reason = "this test reads the sources of its crate")]

use holdfast_consensus::marks::MARKS;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What hits a mark.
const HITS: [&str; 3] = ["mark(\"", "dropped(\"", "drop_with(\""];

fn sources(under: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(under).expect("the sources are there");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let each = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    paths.flat_map(each).collect()
}

/// The marks in a text.
fn marks(text: &str) -> BTreeSet<String> {
    let behind = |hit: &str| {
        let rest = text.split(hit).skip(1);
        rest.filter_map(|rest| rest.split_once('"'))
            .map(|(name, _)| name.to_owned())
            .collect::<Vec<_>>()
    };
    HITS.iter().flat_map(|hit| behind(hit)).collect()
}

#[test]
fn the_declared_marks_are_those_of_the_sources() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let found: BTreeSet<String> = sources(&source)
        .iter()
        .flat_map(|path| marks(&fs::read_to_string(path).expect("a readable source")))
        .collect();
    let declared: BTreeSet<String> = MARKS.iter().map(|mark| (*mark).to_owned()).collect();
    assert_eq!(found, declared, "found in the sources, and declared in marks.rs");
    assert!(MARKS.is_sorted(), "the list is in the order of the alphabet");
}

#[test]
fn every_way_to_hit_a_mark_is_seen() {
    let text = r#"self.mark("a"); return cx.dropped("b"); shared.drop_with("c"); remark(3)"#;
    assert_eq!(marks(text).into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
}
