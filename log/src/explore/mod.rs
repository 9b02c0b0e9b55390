//! Crash exploration: short sequences of operations on a log, a power cut at every moment between
//! two disk operations, every legal outcome of it, and a recovery from each.
//!
//! # What is demanded of every recovery
//! Everything acknowledged is there (entries with their content, hard state, base, configurations,
//! the newest published snapshot, the member), nothing unknown is, an operation that was cut short
//! happened up to a point that it may have come to, the number of the start rises, and no commit
//! index comes back that the log was never told. Behind the recovery, and after crashes inside it
//! (R12), the same holds; what a recovery once reported is never taken back; and a recovered log
//! takes another entry, which the next recovery finds.
//!
//! # What is exhaustive
//! Every sequence of up to [`Bounds::ops`] steps behind each [`Start`]; every moment of it; at each
//! moment every legal set of names, lengths and sectors, up to [`Bounds::outcomes`] of them, beyond
//! which the extremes and a seeded sample are taken ([`Report`] counts both). Equal images are
//! recovered once: an image is known by the hash of its names and bytes.
//!
//! Sources: STORAGE 4.13; raft-wal explores its `append` in the same way from outside, with ALICE.

mod content;
mod search;
mod steps;

use crate::disk::Disk;
use crate::mem_disk::MemDisk;
use serde::Serialize;
use std::fmt;
pub use steps::Step;

/// How far the exploration goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most steps of a sequence behind its start.
    pub ops: u32,
    /// Crashes inside a recovery that follow one another: 1 crashes each recovery everywhere, 2
    /// the recoveries from those crashes too.
    pub depth: u32,
    /// Sequences of up to this many steps are crashed inside their recoveries too.
    pub inside: u32,
    /// Most outcomes of a moment that are all visited.
    pub outcomes: usize,
    /// Outcomes of each moment that are drawn besides, with sectors torn at any byte and garbage.
    pub draws: usize,
    /// What the draws come from.
    pub seed: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { ops: 3, depth: 1, inside: 1, outcomes: 1024, draws: 1, seed: 1 }
    }
}

/// What stands on the disk before a sequence.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// A log that was just created.
    Fresh,
    /// Three segments with a configuration and a commit index, after a restart.
    Rolled,
}

impl Start {
    /// Every start.
    pub const ALL: [Self; 2] = [Self::Fresh, Self::Rolled];

    fn steps(self) -> &'static [Step] {
        match self {
            Self::Fresh => &[],
            Self::Rolled => &[
                Step::Configure,
                Step::Long,
                Step::Long,
                Step::Watermark,
                Step::Long,
                Step::LoseAndOpen,
                Step::Long,
                Step::Batch,
            ],
        }
    }
}

/// What was visited.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Sequences.
    pub sequences: u64,
    /// Moments between two disk operations at which the power failed.
    pub points: u64,
    /// Moments inside a recovery at which it failed again.
    pub inner_points: u64,
    /// Moments of the sequences all of whose outcomes were visited, torn sectors included.
    pub whole: u64,
    /// Moments all of whose subsets were visited, with no sector torn.
    pub subsets: u64,
    /// Moments of which a sample was visited.
    pub sampled: u64,
    /// Outcomes.
    pub outcomes: u64,
    /// Distinct images among them.
    pub images: u64,
    /// Times that a log was opened from one.
    pub recoveries: u64,
}

/// A promise that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where the sequence began.
    pub start: Start,
    /// The steps.
    pub sequence: Vec<Step>,
    /// The disk operation before which the power failed; empty if it did not.
    pub next: String,
    /// What was found, what was allowed, and the image.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, sequence, next, what } = self;
        writeln!(f, "start {start:?}, steps {sequence:?}, power failed before: {next}")?;
        write!(f, "{what}")
    }
}

/// Explores a log on disks that `over` makes of one in memory (the disk itself, or one that does
/// something wrong, to see that this is seen). Returns what was visited and the first violation.
pub fn explore<D: Disk>(
    bounds: Bounds,
    over: &dyn Fn(MemDisk) -> D,
) -> (Report, Option<Violation>) {
    let mut search = search::Search::new(over, bounds);
    let result = search.run();
    (search.report, result.err().map(|violation| *violation))
}
