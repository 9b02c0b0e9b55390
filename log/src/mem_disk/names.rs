//! Changes of names that no sync has covered yet, and what a subset of them leaves behind.
//!
//! An operation is written with the paths that were in force when it was carried out. A directory
//! that moved since has taken its content along: where an operation is kept and an earlier move
//! undone, it took effect in the directory as it stood before the move, as on a real file system,
//! where it belongs to the directory and not to a path.

use super::image::{Node, parent};
use std::collections::BTreeMap;

/// A change of names that its directory has not been synced for.
#[derive(Clone, Debug)]
pub(super) enum NameOp {
    Create(String, Node),
    Unlink(String),
    /// A file.
    Rename(String, String),
    /// A directory, with everything beneath it.
    Move(String, String),
    /// An empty directory.
    RemoveDir(String),
}

/// The path that `path` has once the directory `from` is called `to`, if it lies beneath it.
fn relocated(path: &str, from: &str, to: &str) -> Option<String> {
    let rest = path.strip_prefix(from)?;
    rest.starts_with('/').then(|| format!("{to}{rest}"))
}

impl NameOp {
    /// The names it changes.
    pub(super) fn names(&self) -> [&str; 2] {
        match self {
            Self::Create(path, _) | Self::Unlink(path) | Self::RemoveDir(path) => [path, path],
            Self::Rename(from, to) | Self::Move(from, to) => [from, to],
        }
    }

    /// For traces.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Create(path, _) => format!("create {path}"),
            Self::Unlink(path) => format!("unlink {path}"),
            Self::Rename(from, to) | Self::Move(from, to) => format!("rename {from} {to}"),
            Self::RemoveDir(path) => format!("remove directory {path}"),
        }
    }

    pub(super) fn apply(&self, names: &mut BTreeMap<String, Node>) {
        match self {
            Self::Create(path, node) => {
                names.insert(path.clone(), *node);
            }
            Self::Unlink(path) => {
                names.remove(path);
            }
            // What is still in it on the medium goes with it.
            Self::RemoveDir(path) => beneath(names, path).iter().for_each(|path| {
                names.remove(path);
            }),
            Self::Rename(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
            Self::Move(from, to) => move_names(names, from, to),
        }
    }

    /// With each of its paths changed by `change`.
    fn map(&self, change: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Create(path, node) => Self::Create(change(path), *node),
            Self::Unlink(path) => Self::Unlink(change(path)),
            Self::Rename(from, to) => Self::Rename(change(from), change(to)),
            Self::Move(from, to) => Self::Move(change(from), change(to)),
            Self::RemoveDir(path) => Self::RemoveDir(change(path)),
        }
    }

    /// As it must be carried out where these earlier moves did not happen.
    fn without(&self, undone: &[(&str, &str)]) -> Self {
        self.map(|path| {
            undone.iter().rev().fold(path.to_owned(), |path, (from, to)| {
                relocated(&path, to, from).unwrap_or(path)
            })
        })
    }
}

/// A directory and everything beneath it.
fn beneath(names: &BTreeMap<String, Node>, dir: &str) -> Vec<String> {
    let from_here = names.range(dir.to_owned()..).take_while(|(path, _)| path.starts_with(dir));
    from_here
        .filter(|(path, _)| path.len() == dir.len() || path[dir.len()..].starts_with('/'))
        .map(|(path, _)| path.clone())
        .collect()
}

/// Moves a directory and everything beneath it.
pub(super) fn move_names(names: &mut BTreeMap<String, Node>, from: &str, to: &str) {
    for path in beneath(names, from) {
        if let Some(node) = names.remove(&path) {
            names.insert(format!("{to}{}", &path[from.len()..]), node);
        }
    }
}

/// Where a path lies after the moves among `ops`.
fn after_moves(path: &str, ops: &[NameOp]) -> String {
    ops.iter().fold(path.to_owned(), |path, op| match op {
        NameOp::Move(from, to) => relocated(&path, from, to).unwrap_or(path),
        _ => path,
    })
}

/// True if `ops[later]` changes a name that `ops[earlier]` made, moved or removed.
pub(super) fn builds_on(ops: &[NameOp], later: usize, earlier: usize) -> bool {
    let theirs = ops[earlier].names().map(|name| after_moves(name, &ops[earlier + 1..later]));
    ops[later].names().iter().any(|name| theirs.iter().any(|other| other == name))
}

/// True if `ops[at]` changed the directory that is now called `dir`.
pub(super) fn changes(ops: &[NameOp], at: usize, dir: &str) -> bool {
    ops[at].names().iter().any(|name| {
        let then = parent(name);
        // One level deeper, so that the moves of the directory itself are followed too.
        let now = after_moves(&format!("{then}/x"), &ops[at + 1..]);
        parent(now.strip_prefix('/').unwrap_or(&now)) == dir
    })
}

/// Carries out on `names` those operations that are `kept`, and returns the others, as they are
/// to be carried out afterwards.
pub(super) fn replay(
    ops: &[NameOp],
    kept: &[bool],
    names: &mut BTreeMap<String, Node>,
) -> Vec<NameOp> {
    let mut undone: Vec<(&str, &str)> = Vec::new();
    let mut rest: Vec<NameOp> = Vec::new();
    for (op, kept) in ops.iter().zip(kept) {
        if *kept {
            let carried_out = op.without(&undone);
            carried_out.apply(names);
            for moved in [op, &carried_out] {
                if let NameOp::Move(from, to) = moved {
                    for later in &mut rest {
                        *later = later.map(|path| {
                            relocated(path, from, to).unwrap_or_else(|| path.to_owned())
                        });
                    }
                }
            }
            continue;
        }
        if let NameOp::Move(from, to) = op {
            undone.push((from, to));
        }
        rest.push(op.clone());
    }
    rest
}
