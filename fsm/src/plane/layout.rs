//! Where things lie.

use crate::records::{CopyStamp, Stamp};
use std::fmt;

/// The data plane, below the root of the disk.
pub const DATA_DIR: &str = "data";
pub(super) const VOLUME_FILE: &str = "data/volume";
pub(super) const TOPICS_DIR: &str = "data/topics";
pub(super) const TRASH_DIR: &str = "data/trash";
pub(super) const TMP_DIR: &str = "data/tmp";
/// Its directories, each behind the one that it is in.
pub(crate) const DATA_DIRS: [&str; 4] = [DATA_DIR, TOPICS_DIR, TRASH_DIR, TMP_DIR];
const STAMP_FILE: &str = "stamp";
const REASON: &str = ".reason";
const NOTE: &str = "note-";
/// Longest part of a topic's name in a path, in bytes.
const HINT_MAX: usize = 48;

/// The name of a copy's directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(String);

impl Place {
    /// Where a copy lies. Topic incarnation, epoch and group, partition, and the incarnation and
    /// epoch of the placement: no two copies of one cluster have all of them in common. The name
    /// behind them is for people.
    #[must_use]
    pub fn of(copy: &CopyStamp) -> Self {
        let CopyStamp { topic, placed, partition, volume: _ } = copy;
        let hint: String = topic.name.to_ascii_lowercase().chars().take(HINT_MAX).collect();
        Self(format!(
            "{:016x}-{:x}.{:x}-p{partition:05}-m{:x}.{:x}-{hint}",
            topic.incarnation, topic.epoch, topic.group, placed.incarnation, placed.epoch,
        ))
    }

    pub(super) const fn named(name: String) -> Self {
        Self(name)
    }

    /// The directory of the copy while it is live, for the files of its owner.
    #[must_use]
    pub fn dir(&self) -> String {
        format!("{TOPICS_DIR}/{}", self.0)
    }

    pub(super) fn trash_dir(&self) -> String {
        format!("{TRASH_DIR}/{}", self.0)
    }

    pub(super) fn tmp_dir(&self) -> String {
        format!("{TMP_DIR}/{}", self.0)
    }

    pub(super) fn reason_name(&self) -> String {
        format!("{}{REASON}", self.0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn stamp_file(dir: &str) -> String {
    format!("{dir}/{STAMP_FILE}")
}

/// The cursor of a child in the directory of a copy of its parent.
pub(super) fn cursor_file(dir: &str, child: &Stamp) -> String {
    format!("{dir}/cursor-{:016x}-{:x}.{:x}", child.incarnation, child.epoch, child.group)
}

pub(super) fn note_name(number: u64) -> String {
    format!("{NOTE}{number:016}{REASON}")
}

/// The number of a note.
pub(super) fn note_number(name: &str) -> Option<u64> {
    name.strip_prefix(NOTE)?.strip_suffix(REASON)?.parse().ok()
}

/// The copy that a reason file is about.
pub(super) fn reason_of(name: &str) -> Option<Place> {
    let place = name.strip_suffix(REASON)?;
    (!place.starts_with(NOTE)).then(|| Place(place.to_owned()))
}
