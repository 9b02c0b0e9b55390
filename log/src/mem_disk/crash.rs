//! What is left of a disk after a power loss.

use super::SECTOR;
use super::image::{File, Image, Node, parent};
use super::names::{NameOp, builds_on, replay};
use holdfast_consensus::rng::SplitMix64;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What becomes of one unsynced sector.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SectorFate {
    /// As it was at the last sync (zeros if it did not exist).
    Old,
    /// As last written.
    New,
    /// As before the last write, if it was written more than once; else as [`SectorFate::Old`].
    Middle,
    /// This many bytes (at most 512) as last written, the rest as at the last sync.
    Torn(usize),
    /// Bytes made from this number. Only for sectors that held zeros; else as
    /// [`SectorFate::Torn`] in the middle.
    Garbage(u64),
}

/// Decides what survives. Called in a fixed order: names in the order of their operations, then
/// files by path, and in each its length first and then its sectors, ascending.
pub trait PowerLoss {
    /// Whether a pending creation, removal or rename reached the medium. `what` is for traces.
    fn name(&mut self, what: &str) -> bool;
    /// A file with something unsynced follows; whether its newest length reached the medium
    /// (asked only if it `differs` from the synced one).
    fn file(&mut self, path: &str, dirty: usize, differs: bool) -> bool;
    /// The fate of one sector of the last file. `blank`: it held only zeros at the last sync.
    fn sector(&mut self, sector: usize, blank: bool) -> SectorFate;
}

/// Nothing unsynced survives.
#[derive(Copy, Clone, Debug, Default)]
pub struct LoseAll;

impl PowerLoss for LoseAll {
    fn name(&mut self, _what: &str) -> bool {
        false
    }
    fn file(&mut self, _path: &str, _dirty: usize, _differs: bool) -> bool {
        false
    }
    fn sector(&mut self, _sector: usize, _blank: bool) -> SectorFate {
        SectorFate::Old
    }
}

/// Everything unsynced survives.
#[derive(Copy, Clone, Debug, Default)]
pub struct KeepAll;

impl PowerLoss for KeepAll {
    fn name(&mut self, _what: &str) -> bool {
        true
    }
    fn file(&mut self, _path: &str, _dirty: usize, _differs: bool) -> bool {
        true
    }
    fn sector(&mut self, _sector: usize, _blank: bool) -> SectorFate {
        SectorFate::New
    }
}

/// Draws every fate from a seed: of each file, all its unsynced sectors are lost, or all kept, or
/// each has a fate of its own.
#[derive(Clone, Debug)]
pub struct RandomLoss {
    rng: SplitMix64,
    mode: u64,
}

impl RandomLoss {
    /// Fates from this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { rng: SplitMix64::new(seed), mode: 0 }
    }
}

impl PowerLoss for RandomLoss {
    fn name(&mut self, _what: &str) -> bool {
        self.rng.chance(500)
    }

    fn file(&mut self, _path: &str, _dirty: usize, _differs: bool) -> bool {
        self.mode = self.rng.between(0, 4);
        self.rng.chance(500)
    }

    fn sector(&mut self, _sector: usize, _blank: bool) -> SectorFate {
        match self.mode {
            0 => return SectorFate::Old,
            1 => return SectorFate::New,
            _ => {}
        }
        let drawn = self.rng.next_u64();
        match drawn % 8 {
            0..=2 => SectorFate::Old,
            3..=4 => SectorFate::New,
            5 => SectorFate::Middle,
            6 => SectorFate::Torn(usize::try_from(drawn >> 32).unwrap_or(0) % SECTOR),
            _ => SectorFate::Garbage(drawn),
        }
    }
}

/// The image that the next process finds.
pub(super) fn survive(image: &mut Image, loss: &mut dyn PowerLoss) -> Image {
    let mut names = image.durable_names.clone();
    // What is not kept is lost for good.
    drop(replay(&image.pending, &kept(&image.pending, loss), &mut names));
    // What stands in a directory that does not exist is gone.
    let all: Vec<String> = names.keys().cloned().collect();
    for path in all {
        let dir = parent(&path);
        if !dir.is_empty() && names.get(dir) != Some(&Node::Dir) {
            names.remove(&path);
        }
    }
    let mut inodes = BTreeMap::new();
    for (path, node) in &names {
        if let Node::File(ino) = node
            && let Some(mut file) = image.inodes.remove(ino)
        {
            // What was never touched since its last sync reads as it was synced.
            if !file.touched.is_empty() || file.now.len() != file.durable.len() {
                survive_file(path, Arc::make_mut(&mut file), loss);
            }
            inodes.insert(*ino, file);
        }
    }
    let mut survivor = Image {
        inodes,
        durable_names: names.clone(),
        names,
        pending: Vec::new(),
        next_ino: image.next_ino,
        budget: image.budget,
        counts: image.counts,
        hash: image.hash,
        ..Image::default()
    };
    survivor.reset_process();
    survivor
}

/// Which of the pending operations reached the medium.
fn kept(pending: &[NameOp], loss: &mut dyn PowerLoss) -> Vec<bool> {
    let mut fates: Vec<bool> = Vec::new();
    for (at, op) in pending.iter().enumerate() {
        let stands = (0..at).all(|earlier| fates[earlier] || !builds_on(pending, at, earlier));
        fates.push(stands && loss.name(&op.describe()));
    }
    fates
}

/// True if no operation is kept that builds on one which is not.
pub(super) fn kept_is_legal(pending: &[NameOp], kept: &[bool]) -> bool {
    let stands =
        |at: usize| (0..at).all(|earlier| kept[earlier] || !builds_on(pending, at, earlier));
    (0..pending.len()).all(|at| !kept[at] || stands(at))
}

/// Leaves of a file what the medium kept of it.
fn survive_file(path: &str, file: &mut File, loss: &mut dyn PowerLoss) {
    let mut touched = std::mem::take(&mut file.touched);
    file.state.clear();
    file.durable_hash = None;
    let differs = file.now.len() != file.durable.len();
    let newest = loss.file(path, touched.len(), differs);
    let len = if differs && newest { file.now.len() } else { file.durable.len() };
    let mut after = file.durable.clone();
    after.resize(len, 0);
    touched.sort_unstable();
    for sector in touched {
        let from = sector * SECTOR;
        let [old, new] = file.versions(sector, len);
        let blank = old.iter().all(|b| *b == 0);
        let middle = file.middle.get(&sector);
        let bytes = fate_bytes(loss.sector(sector, blank), &old, &new, middle, blank);
        let to = (from + SECTOR).min(len);
        if from < to {
            after[from..to].copy_from_slice(&bytes[..to - from]);
        }
    }
    file.middle.clear();
    file.now.clone_from(&after);
    file.durable = after;
}

pub(super) fn fate_bytes(
    fate: SectorFate,
    old: &[u8; SECTOR],
    new: &[u8; SECTOR],
    middle: Option<&[u8; SECTOR]>,
    blank: bool,
) -> [u8; SECTOR] {
    match fate {
        SectorFate::Old => *old,
        SectorFate::New => *new,
        SectorFate::Middle => *middle.unwrap_or(old),
        SectorFate::Garbage(seed) if blank => {
            let mut rng = SplitMix64::new(seed);
            let mut bytes = [0; SECTOR];
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&rng.next_u64().to_le_bytes());
            }
            bytes
        }
        SectorFate::Torn(_) | SectorFate::Garbage(_) => {
            let head =
                if let SectorFate::Torn(head) = fate { head.min(SECTOR) } else { SECTOR / 2 };
            let mut bytes = *old;
            bytes[..head].copy_from_slice(&new[..head]);
            bytes
        }
    }
}
