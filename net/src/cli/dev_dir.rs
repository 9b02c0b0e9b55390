//! The directory of `holdfast dev`: whose it is, and what a start changes in it.
//!
//! Guarantees: nothing in it is changed while another `dev`, or any node in it, runs; a cluster that
//! was formed there is never told of other members; and what a start changes in a configuration that
//! was there before is said.

use super::Failure;
use crate::config::{MemberEntry, Settings};
use holdfast_log::{Disk, RealDisk};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// The lock file: `dev` holds the directory's, each node that of its data.
const LOCK: &str = "lock";
/// What is in the data of a node that belongs to a cluster.
const FORMED: &str = "formed";

type Lock = Box<dyn Send + Sync>;

/// A directory that is this process's alone.
pub(super) struct Claimed {
    dir: PathBuf,
    /// Held for the life of `dev`.
    _dev: Lock,
    /// Held while configurations are written; the nodes that are started want them themselves.
    nodes: Vec<Lock>,
}

/// Makes the directory this process's.
///
/// # Errors
/// Exit 3 if another `dev`, or a node, runs in it; nothing but lock files was touched.
pub(super) fn claim(dir: &Path) -> Result<Claimed, Failure> {
    let failed = |e: io::Error| Failure::environment(format!("--dir: {}: {e}", dir.display()));
    let dev = lock(dir).map_err(failed)?.ok_or_else(|| {
        Failure::environment(format!(
            "another `holdfast dev` runs in {}: nothing was changed; stop that one, or give this one a directory of \
             its own with --dir",
            dir.display()
        ))
    })?;
    let mut nodes = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let data = entry.map_err(failed)?.path();
        if !data.join(LOCK).is_file() {
            continue;
        }
        let free = lock(&data).map_err(failed)?.ok_or_else(|| {
            Failure::environment(format!(
                "a node runs in {}: nothing was changed; stop it, or give `dev` another directory with --dir",
                data.display()
            ))
        })?;
        nodes.push(free);
    }
    Ok(Claimed { dir: dir.to_owned(), _dev: dev, nodes })
}

/// Locks the lock file of a directory; `None` if another process has it.
fn lock(dir: &Path) -> io::Result<Option<Lock>> {
    match RealDisk::open(dir)?.lock(LOCK) {
        Ok(lock) => Ok(Some(lock)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

impl Claimed {
    /// Writes the configuration of every node and returns what that changes in those that were there
    /// before, a line for each. The nodes may be started afterwards.
    ///
    /// # Errors
    /// Exit 2 if a cluster of other members was formed here, or if an old configuration cannot be
    /// read; nothing was changed. Exit 3 if one cannot be written.
    pub(super) fn configure(&mut self, nodes: &[Settings]) -> Result<Vec<String>, Failure> {
        let mut texts = Vec::new();
        let mut changes = Vec::new();
        for settings in nodes {
            let name = settings.name.clone().unwrap_or_default();
            let path = self.dir.join(format!("{name}.toml"));
            if path.exists() {
                let old = Settings::read(&path).map_err(|e| Failure::usage(e.to_string()))?;
                let changed = changes_of(&old, settings)?;
                if !changed.is_empty() {
                    changes.push(format!("{name}.toml changes: {}", changed.join(", ")));
                }
            }
            texts.push((path, toml::to_string(settings).map_err(|e| unwritable(&name, &e))?));
        }
        self.check_members(nodes)?;
        for (path, text) in texts {
            std::fs::write(&path, text).map_err(|e| unwritable(&path.display(), &e))?;
        }
        self.nodes.clear();
        Ok(changes)
    }

    /// The members of a cluster are those that formed it.
    fn check_members(&self, nodes: &[Settings]) -> Result<(), Failure> {
        let listed = |s: &Settings| -> BTreeSet<String> {
            let members: &[MemberEntry] = s.initial_members.as_deref().unwrap_or_default();
            members.iter().map(|m| m.name.clone()).collect()
        };
        let wanted = nodes.first().map(listed).unwrap_or_default();
        // Nodes beyond those that are wanted now count as well.
        for number in 1..=9 {
            let name = format!("n{number}");
            let path = self.dir.join(format!("{name}.toml"));
            if !self.is_formed(&name) || !path.exists() {
                continue;
            }
            let formed = listed(&Settings::read(&path).map_err(|e| Failure::usage(e.to_string()))?);
            if formed != wanted {
                let names: Vec<_> = formed.iter().map(String::as_str).collect();
                return Err(Failure::usage(format!(
                    "--nodes: {} holds a cluster of {}, and the members of a cluster cannot be changed in this \
                     version: nothing was changed; give --nodes {}, or another --dir",
                    self.dir.display(),
                    names.join(", "),
                    names.len()
                )));
            }
        }
        Ok(())
    }

    /// True if this node belongs to a cluster: then it must not take part in forming one.
    pub(super) fn is_formed(&self, name: &str) -> bool {
        self.dir.join(name).join(FORMED).exists()
    }
}

fn unwritable(what: &dyn std::fmt::Display, e: &dyn std::fmt::Display) -> Failure {
    Failure::environment(format!("cannot write {what}: {e}"))
}

/// The keys that differ, with both values where they are short.
fn changes_of(old: &Settings, new: &Settings) -> Result<Vec<String>, Failure> {
    let table = |s: &Settings| toml::Table::try_from(s).map_err(|e| unwritable(&"settings", &e));
    let (old, new) = (table(old)?, table(new)?);
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let text = |value: Option<&toml::Value>| match value {
        None => "nothing".to_owned(),
        Some(toml::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let differ = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    Ok(differ
        .map(|key| match (old.get(key), new.get(key)) {
            (Some(toml::Value::Array(_)), _) | (_, Some(toml::Value::Array(_))) => key.clone(),
            (before, after) => format!("{key} from {} to {}", text(before), text(after)),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(name: &str, port: u16, nodes: u16) -> Settings {
        let member = |i: u16| MemberEntry {
            name: format!("n{i}"),
            peer: format!("127.0.0.1:{}", port + 100 + i),
            http: None,
        };
        Settings {
            name: Some(name.to_owned()),
            http_addr: Some(format!("127.0.0.1:{port}")),
            initial_members: Some((1..=nodes).map(member).collect()),
            ..Settings::default()
        }
    }

    fn write(dir: &Path, settings: &Settings) {
        let name = settings.name.clone().expect("a name");
        std::fs::create_dir_all(dir.join(&name)).expect("made");
        std::fs::write(dir.join(&name).join(FORMED), b"").expect("written");
        let text = toml::to_string(settings).expect("TOML");
        std::fs::write(dir.join(format!("{name}.toml")), text).expect("written");
    }

    #[test]
    fn a_directory_in_use_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = claim(dir.path()).expect("free");
        let why = claim(dir.path()).err().expect("in use").to_string();
        assert!(why.contains("another `holdfast dev` runs"), "{why}");
        drop(first);
        // A node that outlived its `dev`, of a cluster that had more.
        let data = dir.path().join("n7");
        std::fs::create_dir(&data).expect("made");
        let node = lock(&data).expect("a lock").expect("free");
        let why = claim(dir.path()).err().expect("in use").to_string();
        assert!(why.contains("a node runs in") && why.contains("n7"), "{why}");
        drop(node);
        claim(dir.path()).expect("free again");
    }

    #[test]
    fn a_later_start_says_what_it_changes_and_keeps_the_members() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut old = settings("n1", 7600, 1);
        old.heartbeat_ms = Some(20);
        write(dir.path(), &old);
        let path = dir.path().join("n1.toml");
        let before = std::fs::read_to_string(&path).expect("it is there");
        let mut claimed = claim(dir.path()).expect("free");
        let two = [settings("n1", 8600, 2), settings("n2", 8601, 2)];
        let why = claimed.configure(&two).expect_err("other members").to_string();
        assert!(why.contains("a cluster of n1,") && why.contains("--nodes 1"), "{why}");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), before);
        assert!(!dir.path().join("n2.toml").exists());

        let said = claimed.configure(&[settings("n1", 8600, 1)]).expect("other ports");
        let [line] = &said[..] else { panic!("{said:?}") };
        assert!(line.contains("http_addr from 127.0.0.1:7600 to 127.0.0.1:8600"), "{line}");
        assert!(line.contains("initial_members"), "{line}");
        assert!(line.contains("heartbeat_ms from 20 to nothing"), "{line}");
        assert!(claimed.configure(&[settings("n1", 8600, 1)]).expect("the same").is_empty());
    }
}
