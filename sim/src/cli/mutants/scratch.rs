//! The one scratch copy that mutants are planted and built in, so that nothing is ever planted in
//! the sources themselves.

use holdfast_sim::mutants::patch::Patch;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is not copied: it is not built from, and may be large.
const LEFT_OUT: [&str; 7] =
    [".git", "target", "artifacts", "coverage", "book", ".holdfast-dev", ".ci"];
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
        let (program, kept) = (self.build()?, self.build.join("unmutated"));
        fs::copy(program, &kept).map_err(|e| at_path(&kept, e))?;
        Ok(kept)
    }

    /// Builds the simulator as it is planted now, and returns the program.
    pub(super) fn build(&self) -> Result<PathBuf, String> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--quiet", "--locked", "--profile", PROFILE, "-p", "holdfast-sim"])
            .arg("--target-dir")
            .arg(&self.build)
            .current_dir(&self.source)
            // Rebuilding after a change of some lines is all that happens here.
            .env("CARGO_INCREMENTAL", "1")
            .env_remove("RUSTFLAGS")
            .output()
            .map_err(|e| format!("cargo: {e}"))?;
        if output.status.success() {
            return Ok(self.build.join(PROFILE).join("holdfast-sim"));
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let end: Vec<&str> = text.lines().rev().take(12).collect();
        Err(end.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }
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
        if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
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
