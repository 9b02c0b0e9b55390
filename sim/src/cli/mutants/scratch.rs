//! The one scratch copy that mutants are planted and built in, so that nothing is ever planted in
//! the sources themselves.

use holdfast_sim::mutants::patch::Patch;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What is not copied: it is not built from, and may be large.
const LEFT_OUT: [&str; 6] = [".git", "target", "artifacts", "coverage", ".holdfast-dev", ".ci"];
/// The rendered book; its sources are copied, since tests look into them.
const RENDERED: &str = "book/book";
/// The profile that mutants are built with: built again quickly, and fast enough to run.
const PROFILE: &str = "mutant";

/// The scratch copy.
pub(super) struct Scratch {
    source: PathBuf,
    build: PathBuf,
    /// What stood in the files that are changed now. The copy, not the workspace, is what is
    /// planted in: somebody may be at work there.
    planted: BTreeMap<String, String>,
}

impl Scratch {
    /// A copy of `root` under `at`, made or brought up to date: only what differs is written, so
    /// that only that is built again.
    pub(super) fn new(root: &Path, at: &Path) -> Result<Self, String> {
        let (source, build) = (at.join("source"), at.join("build"));
        let mut wanted = BTreeSet::new();
        list(root, Path::new(""), &mut wanted)?;
        let mut present = BTreeSet::new();
        if source.is_dir() {
            list(&source, Path::new(""), &mut present)?;
        }
        for stale in present.difference(&wanted) {
            fs::remove_file(source.join(stale)).map_err(|e| at_path(stale, e))?;
        }
        for path in &wanted {
            let bytes = fs::read(root.join(path)).map_err(|e| at_path(path, e))?;
            write_if_changed(&source.join(path), &bytes)?;
        }
        Ok(Self { source, build, planted: BTreeMap::new() })
    }

    /// Plants a patch, after taking the one before out again.
    pub(super) fn plant(&mut self, patch: &Patch) -> Result<(), String> {
        self.restore()?;
        let changed = patch.apply(&|path| read(&self.source, path))?;
        for (path, text) in changed {
            self.planted.insert(path.clone(), read(&self.source, &path)?);
            write_if_changed(&self.source.join(&path), text.as_bytes())?;
        }
        Ok(())
    }

    /// Takes what is planted out again.
    pub(super) fn restore(&mut self) -> Result<(), String> {
        for (path, text) in std::mem::take(&mut self.planted) {
            write_if_changed(&self.source.join(path), text.as_bytes())?;
        }
        Ok(())
    }

    /// Builds the simulator without a mutant, and puts the program where no later build does.
    pub(super) fn build_unmutated(&mut self) -> Result<PathBuf, String> {
        self.restore()?;
        self.build_as("unmutated")
    }

    /// Builds the simulator as it is planted now, and puts the program under this name where no
    /// later build does.
    pub(super) fn build_as(&self, name: &str) -> Result<PathBuf, String> {
        let kept = self.build.join(name);
        fs::copy(self.build()?, &kept).map_err(|e| at_path(&kept, e))?;
        Ok(kept)
    }

    /// Builds the simulator as it is planted now, and returns the program.
    fn build(&self) -> Result<PathBuf, String> {
        let words = ["build", "--quiet", "--profile", PROFILE, "-p", "holdfast-sim"];
        let output = self.cargo(words.map(str::to_owned).to_vec())?;
        if output.status.success() {
            return Ok(self.build.join(PROFILE).join("holdfast-sim"));
        }
        Err(end_of(&output.stderr))
    }

    /// Lets the compiler look at the simulator as it is planted now.
    pub(super) fn compile(&self) -> Result<(), String> {
        let words = ["check", "--quiet", "--profile", PROFILE, "-p", "holdfast-sim"];
        let output = self.cargo(words.map(str::to_owned).to_vec())?;
        if output.status.success() { Ok(()) } else { Err(end_of(&output.stderr)) }
    }

    /// Runs tests as it is planted now; the names of those that fail.
    pub(super) fn test(&self, words: &[String]) -> Result<Vec<String>, String> {
        let mut all = ["test", "--profile", PROFILE, "-p"].map(str::to_owned).to_vec();
        all.extend(words.iter().cloned());
        let output = self.cargo(all)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (failed, ran) = outcome_of(&text);
        match (output.status.success(), failed.is_empty()) {
            (true, true) if ran == 0 => Err(format!("no test is called {}", words.join(" "))),
            (true, true) | (false, false) => Ok(failed),
            _ => Err(end_of(&output.stderr)),
        }
    }

    fn cargo(&self, words: Vec<String>) -> Result<Output, String> {
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(words.first())
            .args(["--locked", "--target-dir"])
            .arg(&self.build)
            .args(words.iter().skip(1))
            .current_dir(&self.source)
            // Rebuilding after a change of some lines is all that happens here.
            .env("CARGO_INCREMENTAL", "1")
            .env_remove("RUSTFLAGS")
            .output()
            .map_err(|e| format!("cargo: {e}"))
    }
}

/// The tests that failed by the words of a run of tests, and how many ran.
fn outcome_of(text: &str) -> (Vec<String>, usize) {
    let (mut failed, mut ran) = (Vec::new(), 0);
    for line in text.lines() {
        let Some((name, how)) = line.strip_prefix("test ").and_then(|l| l.split_once(" ... "))
        else {
            continue;
        };
        ran += usize::from(how == "ok" || how == "FAILED");
        if how == "FAILED" {
            failed.push(name.to_owned());
        }
    }
    (failed, ran)
}

/// The end of what a build said.
fn end_of(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let end: Vec<&str> = text.lines().rev().take(12).collect();
    end.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// The text of a file of the workspace.
pub(super) fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|e| at_path(Path::new(path), e))
}

fn list(root: &Path, under: &Path, found: &mut BTreeSet<PathBuf>) -> Result<(), String> {
    for entry in fs::read_dir(root.join(under)).map_err(|e| at_path(under, e))? {
        let entry = entry.map_err(|e| at_path(under, e))?;
        let path = under.join(entry.file_name());
        let kind = entry.file_type().map_err(|e| at_path(&path, e))?;
        let left_out = LEFT_OUT.iter().any(|name| entry.file_name() == *name);
        if left_out || path == Path::new(RENDERED) {
            continue;
        }
        if kind.is_dir() {
            list(root, &path, found)?;
        } else if kind.is_file() {
            found.insert(path);
        }
    }
    Ok(())
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|e| at_path(parent, e))?;
    }
    fs::write(path, bytes).map_err(|e| at_path(path, e))
}

fn at_path(path: &Path, error: std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_named_and_a_run_without_any_is_told_apart() {
        let text = "running 2 tests\ntest a_step ... FAILED\ntest tests::b ... ok\n\nfailures:\n\
            ---- a_step stdout ----\n\ntest result: FAILED. 1 passed; 1 failed\n";
        assert_eq!(outcome_of(text), (vec!["a_step".to_owned()], 2));
        assert_eq!(outcome_of("running 0 tests\n\ntest result: ok. 0 passed\n"), (vec![], 0));
    }
}
