//! Every image that a power loss may leave, moment by moment, instead of one that is drawn.
//!
//! A [`CrashPoint`] is a disk between two operations. Its outcomes are the product of what may
//! become of each pending change of names, of each length and of each sector, by the rules of the
//! module above. Two things keep the product small without leaving anything out: a sector whose
//! fates would all read alike is no choice, and the hash of an outcome is a sum over its files, so
//! that one which was met before is recognised without being made. (The method is that of Pillai et
//! al., "All File Systems Are Not Created Equal", OSDI 2014: every legal subset of what was not
//! synced. That paper looks from outside at what a file system did; here the model is the disk.)

use super::crash::{SectorFate, fate_bytes, kept_is_legal, survive};
use super::image::{File, Image, Ino, Node, mix, parent};
use super::names::replay;
use super::{MemDisk, Op, PowerLoss, RandomLoss, SECTOR};
use holdfast_consensus::rng::SplitMix64;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// How far to go at one moment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Most outcomes that are all visited; a moment that has more is sampled.
    pub bound: usize,
    /// Outcomes that are drawn where there are more, beside the extremes.
    pub samples: usize,
    /// Further outcomes drawn by [`RandomLoss`], whatever their number: they alone tear a sector
    /// at any byte, and leave garbage where zeros were overwritten with zeros.
    pub draws: usize,
    /// What the draws come from.
    pub seed: u64,
}

/// How much of a moment was visited.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every outcome, with each sector old, new, as between its writes, torn in the middle, or
    /// garbage.
    Whole,
    /// Every subset of sectors, lengths and names, with no sector torn.
    Subsets,
    /// Some of them.
    Sampled,
}

/// A disk between two operations.
#[derive(Clone, Debug)]
pub struct CrashPoint {
    image: Image,
    /// What would have come next.
    next: String,
}

/// Takes an outcome; an error ends the visit.
pub type Visit<'v> = &'v mut dyn FnMut(&Outcome<'_>) -> Result<(), String>;

/// One outcome, not made yet.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// Equal for outcomes with equal names and bytes, and for others with the chance of 64 bits.
    pub hash: u64,
    names: &'a BTreeMap<String, Node>,
    files: Vec<Choice<'a>>,
    /// The disk itself, where it was drawn.
    drawn: Option<&'a Image>,
    point: &'a CrashPoint,
}

/// What became of a file: its length, and the sectors for which there was a choice.
#[derive(Debug)]
struct Choice<'a> {
    ino: Ino,
    len: usize,
    sectors: Vec<(usize, &'a [u8; SECTOR])>,
}

/// What may become of one sector: the distinct contents.
struct Axis {
    sector: usize,
    options: Vec<[u8; SECTOR]>,
}

/// What may become of a file if it comes back with this length.
struct Shape {
    len: usize,
    axes: Vec<Axis>,
    /// Hash of the length and of the sectors that are no choice.
    base: u64,
}

impl Shape {
    fn count(&self) -> usize {
        self.axes.iter().fold(1, |all, axis| all.saturating_mul(axis.options.len()))
    }
}

impl MemDisk {
    /// From now on every moment before a mutating operation is remembered, until
    /// [`MemDisk::take_points`].
    pub fn watch(&self) {
        self.image().watched = Some(Vec::new());
    }

    /// The moments since [`MemDisk::watch`] or the last call, oldest first.
    #[must_use]
    pub fn take_points(&self) -> Vec<CrashPoint> {
        self.image().watched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// This moment.
    #[must_use]
    pub fn point(&self) -> CrashPoint {
        CrashPoint { image: self.image().unwatched(), next: "the end".into() }
    }
}

impl Image {
    fn unwatched(&mut self) -> Self {
        let watched = self.watched.take();
        let image = self.clone();
        self.watched = watched;
        image
    }

    /// Remembers this moment, if that is wanted.
    pub(super) fn remember(&mut self, op: Op, path: impl Fn(&Self) -> String) {
        if self.watched.is_none() {
            return;
        }
        let next = format!("{op:?} {}", path(self));
        for file in self.inodes.values_mut().filter(|file| file.durable_hash.is_none()) {
            Arc::make_mut(file).hash_durable();
        }
        let image = self.unwatched();
        self.watched
            .iter_mut()
            .for_each(|all| all.push(CrashPoint { image: image.clone(), next: next.clone() }));
    }
}

impl CrashPoint {
    /// The operation that would have come next, for people.
    #[must_use]
    pub fn next(&self) -> &str {
        &self.next
    }

    /// One outcome, as `loss` decides.
    #[must_use]
    pub fn whole(&self, loss: &mut dyn PowerLoss) -> MemDisk {
        MemDisk { image: Arc::new(Mutex::new(survive(&mut self.image.clone(), loss))) }
    }

    /// Visits outcomes until `visit` returns an error.
    ///
    /// # Errors
    /// That of `visit`.
    pub fn outcomes(&self, reach: &Reach, visit: Visit<'_>) -> Result<Coverage, String> {
        let mut coverage = Coverage::Whole;
        for names in self.names() {
            let files: Vec<(&str, Ino)> = (names.iter())
                .filter_map(|(path, node)| match node {
                    Node::File(ino) => Some((path.as_str(), *ino)),
                    Node::Dir => None,
                })
                .collect();
            let here = self.contents(&names, &files, reach, visit)?;
            coverage = if here as u8 > coverage as u8 { here } else { coverage };
        }
        for draw in 0..reach.draws {
            let seed = mix(reach.seed, draw as u64 + 1);
            let made = survive(&mut self.image.clone(), &mut RandomLoss::new(seed));
            let (hash, names) = (made.content_hash(), &made.names);
            visit(&Outcome { hash, names, files: Vec::new(), drawn: Some(&made), point: self })?;
        }
        Ok(coverage)
    }

    /// The legal sets of names.
    fn names(&self) -> Vec<BTreeMap<String, Node>> {
        let pending = &self.image.pending;
        // More than this were never pending at once in any log; the extremes are kept then.
        let choices = pending.len().min(12);
        let mut all: Vec<BTreeMap<String, Node>> = Vec::new();
        for bits in 0..1usize << choices {
            let kept: Vec<bool> =
                (0..pending.len()).map(|at| bits >> at.min(choices - 1) & 1 == 1).collect();
            if !kept_is_legal(pending, &kept) {
                continue;
            }
            let mut names = self.image.durable_names.clone();
            drop(replay(pending, &kept, &mut names));
            let standing =
                |path: &str| parent(path).is_empty() || names.get(parent(path)) == Some(&Node::Dir);
            let names: BTreeMap<_, _> = names
                .iter()
                .filter(|(path, _)| standing(path))
                .map(|(p, n)| (p.clone(), *n))
                .collect();
            if !all.contains(&names) {
                all.push(names);
            }
        }
        all
    }

    /// Visits what may become of the contents under one set of names.
    fn contents(
        &self,
        names: &BTreeMap<String, Node>,
        files: &[(&str, Ino)],
        reach: &Reach,
        visit: Visit<'_>,
    ) -> Result<Coverage, String> {
        let shapes = |torn: bool| -> Vec<Vec<Shape>> {
            let of = |(_, ino): &(&str, Ino)| {
                self.image.inodes.get(ino).map_or(Vec::new(), |f| shapes(f, torn))
            };
            files.iter().map(of).collect()
        };
        let count = |all: &[Vec<Shape>]| {
            all.iter().fold(1usize, |n, f| {
                n.saturating_mul(f.iter().map(Shape::count).fold(0, usize::saturating_add))
            })
        };
        let (mut all, mut coverage) = (shapes(true), Coverage::Whole);
        if count(&all) > reach.bound {
            (all, coverage) = (shapes(false), Coverage::Subsets);
        }
        let total = count(&all);
        let mut show = |pick: &mut dyn FnMut(usize) -> usize| {
            let mut chosen = Vec::new();
            let mut hash = names.iter().fold(0u64, |sum, (path, node)| match node {
                Node::Dir => sum.wrapping_add(mix(super::image::hash_path(path), 1)),
                Node::File(_) => sum,
            });
            for ((path, ino), shapes) in files.iter().zip(&all) {
                let Some(shape) = shapes.get(pick(shapes.len())) else { continue };
                let (mut content, mut sectors) = (shape.base, Vec::with_capacity(shape.axes.len()));
                for axis in &shape.axes {
                    let option = &axis.options[pick(axis.options.len())];
                    content = content.wrapping_add(sector_hash(axis.sector, option));
                    sectors.push((axis.sector, option));
                }
                hash = hash.wrapping_add(mix(super::image::hash_path(path), content));
                chosen.push(Choice { ino: *ino, len: shape.len, sectors });
            }
            visit(&Outcome { hash, names, files: chosen, drawn: None, point: self })
        };
        if total <= reach.bound {
            let mut odometer = Odometer::default();
            loop {
                show(&mut |options| odometer.pick(options))?;
                if !odometer.advance() {
                    return Ok(coverage);
                }
            }
        }
        let mut rng = SplitMix64::new(mix(reach.seed, total as u64));
        show(&mut |_| 0)?;
        show(&mut |options| options - 1)?;
        for _ in 0..reach.samples {
            show(&mut |options| usize::try_from(rng.next_u64() >> 33).unwrap_or(0) % options)?;
        }
        Ok(Coverage::Sampled)
    }
}

/// Goes through every way to answer a row of questions, the last answer changing first.
#[derive(Default)]
struct Odometer {
    digits: Vec<(usize, usize)>,
    at: usize,
}

impl Odometer {
    fn pick(&mut self, options: usize) -> usize {
        if self.at == self.digits.len() {
            self.digits.push((0, options));
        }
        self.at += 1;
        self.digits[self.at - 1].0
    }

    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((digit, options)) = self.digits.pop() {
            if digit + 1 < options {
                self.digits.push((digit + 1, options));
                return true;
            }
        }
        false
    }
}

impl Outcome<'_> {
    /// The disk with this outcome, all of it durable.
    #[must_use]
    pub fn disk(&self) -> MemDisk {
        let mut image = Image {
            names: self.names.clone(),
            durable_names: self.names.clone(),
            next_ino: self.point.image.next_ino,
            ..Image::default()
        };
        if let Some(drawn) = self.drawn {
            image.inodes.clone_from(&drawn.inodes);
        }
        for Choice { ino, len, sectors } in &self.files {
            let Some(file) = self.point.image.inodes.get(ino) else { continue };
            if file.touched.is_empty() && file.now.len() == *len {
                image.inodes.insert(*ino, Arc::clone(file));
                continue;
            }
            let mut bytes = file.durable.clone();
            bytes.resize(*len, 0);
            for (sector, content) in sectors {
                let from = sector * SECTOR;
                let to = (from + SECTOR).min(*len);
                bytes[from..to].copy_from_slice(&content[..to - from]);
            }
            image.inodes.insert(*ino, Arc::new(file.with_content(bytes)));
        }
        image.reset_process();
        MemDisk { image: Arc::new(Mutex::new(image)) }
    }
}

impl std::fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (path, node) in self.names {
            let Node::File(ino) = node else { continue };
            write!(f, "\n  {path}")?;
            if let Some(choice) = self.files.iter().find(|choice| choice.ino == *ino) {
                write!(f, " of {} bytes", choice.len)?;
                for (sector, bytes) in &choice.sectors {
                    let crc = crc32c::crc32c(*bytes);
                    let file = self.point.image.inodes.get(ino);
                    let [old, new] =
                        file.map_or([[0; SECTOR]; 2], |f| f.versions(*sector, choice.len));
                    let fate = match **bytes {
                        fate if fate == new => "new",
                        fate if fate == old => "old",
                        _ => "torn or between",
                    };
                    write!(f, ", sector {sector} {fate} ({crc:08x})")?;
                }
            }
        }
        if self.drawn.is_some() { write!(f, "\n  drawn at random") } else { Ok(()) }
    }
}

/// The lengths that a file may come back with, and what may become of its sectors.
fn shapes(file: &File, torn: bool) -> Vec<Shape> {
    let (old, new) = (file.durable.len(), file.now.len());
    let mut lens = vec![old];
    if new != old {
        lens.push(new);
    }
    lens.into_iter().map(|len| shape(file, len, torn)).collect()
}

fn shape(file: &File, len: usize, torn: bool) -> Shape {
    let mut axes = Vec::new();
    let mut touched = file.touched.clone();
    touched.sort_unstable();
    touched.retain(|sector| sector * SECTOR < len);
    for sector in touched {
        let [old, new] = file.versions(sector, len);
        let blank = old == [0; SECTOR];
        let middle = file.middle.get(&sector);
        let mut options = vec![old];
        let mut fates = vec![SectorFate::New];
        if middle.is_some() {
            fates.push(SectorFate::Middle);
        }
        if torn && new != old {
            fates.push(SectorFate::Torn(SECTOR / 2));
            fates.push(SectorFate::Garbage(sector as u64));
        }
        for fate in fates {
            let mut bytes = fate_bytes(fate, &old, &new, middle, blank);
            bytes[(len - sector * SECTOR).min(SECTOR)..].fill(0);
            if !options.contains(&bytes) {
                options.push(bytes);
            }
        }
        if options.len() > 1 {
            axes.push(Axis { sector, options });
        }
    }
    let durable_hash = file.durable_hash.filter(|_| len >= file.durable.len());
    let rest =
        durable_hash.unwrap_or_else(|| content_hash(&file.durable[..file.durable.len().min(len)]));
    let chosen = axes
        .iter()
        .fold(0u64, |sum, axis| sum.wrapping_add(sector_hash(axis.sector, &axis.options[0])));
    let base = mix(LENGTH, len as u64).wrapping_add(rest).wrapping_sub(chosen);
    Shape { len, axes, base }
}

const LENGTH: u64 = 0x1e47;

/// Sum of the hashes of all sectors; a length is hashed apart.
fn content_hash(bytes: &[u8]) -> u64 {
    bytes.chunks(SECTOR).enumerate().fold(0, |sum, (sector, piece)| {
        let mut whole = [0; SECTOR];
        whole[..piece.len()].copy_from_slice(piece);
        sum.wrapping_add(sector_hash(sector, &whole))
    })
}

impl File {
    fn hash_durable(&mut self) {
        self.durable_hash = Some(content_hash(&self.durable));
    }
}

/// Hash of a sector in its place; zero for one that holds nothing.
fn sector_hash(sector: usize, bytes: &[u8; SECTOR]) -> u64 {
    if *bytes == [0; SECTOR] {
        return 0;
    }
    let words = bytes.chunks_exact(8).map(|w| w.try_into().map_or(0, u64::from_le_bytes));
    mix(words.fold(sector as u64 + 1, mix), 0x5ec7)
}

impl Image {
    fn content_hash(&self) -> u64 {
        self.names.iter().fold(0, |sum, (path, node)| {
            let path = super::image::hash_path(path);
            sum.wrapping_add(match node {
                Node::Dir => mix(path, 1),
                Node::File(ino) => {
                    let bytes = self.inodes.get(ino).map_or(&[][..], |file| &file.now);
                    let sum = content_hash(bytes);
                    mix(path, mix(LENGTH, bytes.len() as u64).wrapping_add(sum))
                }
            })
        })
    }
}

#[cfg(test)]
#[path = "points_tests.rs"]
mod tests;
