//! Unified diffs, applied to texts in memory.
//!
//! Guarantees: a hunk goes in only where every one of its context and removed lines stands; it may
//! have moved by any number of lines, but where it fits in several places equally near it is
//! refused. Nothing is half applied.

use std::collections::BTreeMap;

/// One change within a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk {
    /// First line in the old text, from 1.
    at: usize,
    old: Vec<String>,
    new: Vec<String>,
}

/// A patch: hunks by file, with paths as they stand behind `b/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    files: BTreeMap<String, Vec<Hunk>>,
}

impl Patch {
    /// Reads a unified diff of existing files (`--- a/PATH`, `+++ b/PATH`, hunks).
    ///
    /// # Errors
    /// The line that is not understood, or a patch that changes nothing.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut patch = Self::default();
        let mut path: Option<String> = None;
        for line in text.lines() {
            if line.starts_with("--- ") {
                path = None;
            } else if let Some(name) = line.strip_prefix("+++ b/") {
                path = Some(name.trim_end().to_owned());
            } else if line.starts_with("@@ ") {
                let path = path.clone().ok_or_else(|| format!("no file for: {line}"))?;
                let at = old_start(line).ok_or_else(|| format!("no line number in: {line}"))?;
                let hunk = Hunk { at, old: Vec::new(), new: Vec::new() };
                patch.files.entry(path).or_default().push(hunk);
            } else {
                let hunks = path.as_ref().and_then(|path| patch.files.get_mut(path));
                let hunk = hunks.and_then(|hunks| hunks.last_mut());
                hunk.ok_or_else(|| format!("not in a hunk: {line}"))?.take(line)?;
            }
        }
        let changes = patch.files.values().flatten().any(|hunk| hunk.old != hunk.new);
        if changes { Ok(patch) } else { Err("it changes nothing".to_owned()) }
    }

    /// Files that it changes.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The changed texts by path; `read` yields the present text of a file.
    ///
    /// # Errors
    /// The file that cannot be read, or the hunk that does not fit.
    pub fn apply(
        &self,
        read: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<BTreeMap<String, String>, String> {
        let mut changed = BTreeMap::new();
        for (path, hunks) in &self.files {
            let text = read(path)?;
            let mut lines: Vec<&str> = text.lines().collect();
            let mut moved = 0isize;
            for hunk in hunks {
                let at = hunk.place(&lines, moved).map_err(|why| format!("{path}: {why}"))?;
                moved += hunk.new.len().cast_signed() - hunk.old.len().cast_signed();
                lines.splice(at..at + hunk.old.len(), hunk.new.iter().map(String::as_str));
            }
            changed.insert(path.clone(), lines.join("\n") + "\n");
        }
        Ok(changed)
    }
}

impl Hunk {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let (kind, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
        match kind {
            " " => {
                self.old.push(rest.to_owned());
                self.new.push(rest.to_owned());
            }
            "-" => self.old.push(rest.to_owned()),
            "+" => self.new.push(rest.to_owned()),
            _ => return Err(format!("neither context, nor added, nor removed: {line}")),
        }
        Ok(())
    }

    /// Where its old lines stand, nearest to where they are said to be.
    fn place(&self, lines: &[&str], moved: isize) -> Result<usize, String> {
        let said = self.at.saturating_sub(1).saturating_add_signed(moved);
        let fits = |at: &usize| {
            let there = lines.get(*at..*at + self.old.len());
            there.is_some_and(|there| there.iter().zip(&self.old).all(|(a, b)| a == b))
        };
        let mut places: Vec<usize> = (0..=lines.len()).filter(fits).collect();
        places.sort_by_key(|at| at.abs_diff(said));
        match places[..] {
            [] => Err(format!("the hunk at line {} fits nowhere", self.at)),
            [a, b, ..] if a.abs_diff(said) == b.abs_diff(said) => {
                Err(format!("the hunk at line {} fits at {} and at {}", self.at, a + 1, b + 1))
            }
            [at, ..] => Ok(at),
        }
    }
}

/// The first old line of `@@ -12,7 +12,6 @@`.
fn old_start(line: &str) -> Option<usize> {
    let old = line.strip_prefix("@@ -")?;
    old.split([',', ' ']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/x.rs\n+++ b/x.rs\n@@ -2,3 +2,3 @@\n two\n-three\n+drei\n four\n";

    fn apply(diff: &str, text: &str) -> Result<String, String> {
        let patch = Patch::read(diff)?;
        assert_eq!(patch.paths().collect::<Vec<_>>(), ["x.rs"]);
        patch
            .apply(&|_| Ok(text.to_owned()))
            .map(|mut changed| changed.remove("x.rs").expect("the one file"))
    }

    #[test]
    fn a_hunk_goes_in_where_it_stands_or_where_it_moved_to() {
        let changed = apply(DIFF, "one\ntwo\nthree\nfour\n");
        assert_eq!(changed.as_deref(), Ok("one\ntwo\ndrei\nfour\n"));
        let changed = apply(DIFF, "0\n0\n0\none\ntwo\nthree\nfour\n");
        assert_eq!(changed.as_deref(), Ok("0\n0\n0\none\ntwo\ndrei\nfour\n"));
    }

    #[test]
    fn a_hunk_whose_lines_changed_is_refused() {
        assert!(apply(DIFF, "one\ntwo\n3\nfour\n").is_err());
        assert!(apply(DIFF, "").is_err());
    }

    #[test]
    fn a_hunk_that_fits_twice_equally_near_is_refused_and_the_nearer_one_taken() {
        let twice = "two\nthree\nfour\ntwo\nthree\nfour\n";
        assert_eq!(apply(DIFF, twice).as_deref(), Ok("two\ndrei\nfour\ntwo\nthree\nfour\n"));
        let middle = DIFF.replace("-2,3", "-4,3");
        let twice = "two\nthree\nfour\nx\nx\nx\ntwo\nthree\nfour\n";
        assert!(apply(&middle, twice).is_err());
    }

    #[test]
    fn two_hunks_of_a_file_follow_one_another() {
        let diff =
            "--- a/x.rs\n+++ b/x.rs\n@@ -1,1 +1,3 @@\n+a\n+b\n one\n@@ -3,1 +5,0 @@\n-three\n";
        assert_eq!(apply(diff, "one\ntwo\nthree\n").as_deref(), Ok("a\nb\none\ntwo\n"));
    }

    #[test]
    fn what_is_no_diff_or_changes_nothing_is_refused() {
        assert!(Patch::read("some words\n").is_err());
        assert!(Patch::read("--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n same\n").is_err());
        assert!(Patch::read("@@ -1,1 +1,1 @@\n-a\n+b\n").is_err(), "no file");
    }
}
