//! The bytes and names of a disk, what of them is durable, and what is pending.

use super::names::{self, NameOp};
use super::rot::Lie;
use super::{DiskCounts, Op, OpCounts, SECTOR};
use crate::disk::Mode;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Names a file for the life of a disk, whatever its path.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ino(pub(super) u64);

/// What stands under a name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(Ino),
}

/// State of one sector against the medium.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum SectorState {
    /// As on the medium.
    Clean,
    /// Written since the last sync.
    Dirty,
    /// Written, then a sync failed: the cache calls it clean, the medium may not have it.
    Lost,
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// As a process reads it.
    pub(super) now: Vec<u8>,
    /// As on the medium; its length is the durable length.
    pub(super) durable: Vec<u8>,
    /// By sector; sectors beyond the end are clean.
    pub(super) state: Vec<SectorState>,
    /// The sectors that are not clean, in order of their first write.
    pub(super) touched: Vec<usize>,
    /// The version of a dirty sector before its last write, if it was written more than once.
    pub(super) middle: BTreeMap<usize, [u8; SECTOR]>,
    /// True for files of the store.
    store: bool,
    /// Hash of the path it was created under.
    path_hash: u64,
    /// Hash of the durable bytes, if it is known.
    pub(super) durable_hash: Option<u64>,
}

impl File {
    fn touch(&mut self, first: usize, last: usize) {
        if self.state.len() <= first {
            self.state.resize(first, SectorState::Clean);
            self.state.resize(last + 1, SectorState::Dirty);
            self.touched.extend(first..=last);
            return;
        }
        if self.state.len() <= last {
            self.state.resize(last + 1, SectorState::Clean);
        }
        for sector in first..=last {
            if self.state[sector] == SectorState::Clean {
                self.touched.push(sector);
            } else {
                let mut before = [0; SECTOR];
                copy_sector(&self.now, sector, &mut before);
                self.middle.insert(sector, before);
            }
            self.state[sector] = SectorState::Dirty;
        }
    }

    /// A sector as it was synced, and as it was last written, in a file of this length.
    pub(super) fn versions(&self, sector: usize, len: usize) -> [[u8; SECTOR]; 2] {
        let (mut old, mut new) = ([0; SECTOR], [0; SECTOR]);
        copy_sector(&self.durable, sector, &mut old);
        // Bytes behind the newest end are no news if the old length survived.
        new.copy_from_slice(&old);
        let news = self.now.get(sector * SECTOR..).unwrap_or_default();
        let here = news.len().min(SECTOR);
        new[..here].copy_from_slice(&news[..here]);
        if len == self.now.len() {
            new[here..].fill(0);
        }
        [old, new]
    }

    /// A file of the same kind with this content, all of it durable.
    pub(super) fn with_content(&self, bytes: Vec<u8>) -> Self {
        let (now, durable) = (bytes.clone(), bytes);
        Self { now, durable, store: self.store, path_hash: self.path_hash, ..Self::default() }
    }

    /// Makes the dirty sectors durable, but not those that a failed sync has lost.
    fn settle(&mut self) {
        self.durable.resize(self.now.len(), 0);
        let Self { now, durable, state, touched, middle, .. } = self;
        // Neighbours are copied together.
        let mut run = 0..0;
        let mut copy = |run: &std::ops::Range<usize>| {
            let (from, to) = (run.start * SECTOR, (run.end * SECTOR).min(now.len()));
            if from < to {
                durable[from..to].copy_from_slice(&now[from..to]);
            }
        };
        touched.retain(|&sector| {
            if state[sector] == SectorState::Lost {
                return true;
            }
            state[sector] = SectorState::Clean;
            if !middle.is_empty() {
                middle.remove(&sector);
            }
            if sector == run.end {
                run.end += 1;
            } else {
                copy(&run);
                run = sector..sector + 1;
            }
            false
        });
        copy(&run);
    }
}

/// Copies one sector of `bytes`, zeros beyond the end.
pub(super) fn copy_sector(bytes: &[u8], sector: usize, into: &mut [u8; SECTOR]) {
    let from = (sector * SECTOR).min(bytes.len());
    let to = (from + SECTOR).min(bytes.len());
    into.fill(0);
    into[..to - from].copy_from_slice(&bytes[from..to]);
}

/// Everything about a disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// Shared with the images that remember an earlier moment, until they differ.
    pub(super) inodes: BTreeMap<Ino, Arc<File>>,
    /// Open handles of each file that has any.
    pub(super) handles: BTreeMap<Ino, u32>,
    /// As a process sees them.
    pub(super) names: BTreeMap<String, Node>,
    /// As on the medium.
    pub(super) durable_names: BTreeMap<String, Node>,
    /// The way from the one to the other, oldest first.
    pub(super) pending: Vec<NameOp>,
    pub(super) next_ino: u64,
    pub(super) locks: BTreeSet<String>,
    pub(super) fuse: Option<u64>,
    pub(super) budget: Option<u64>,
    pub(super) used: u64,
    pub(super) planned: Vec<(Op, String)>,
    pub(super) lies: Vec<(Lie, String)>,
    pub(super) counts: DiskCounts,
    pub(super) hash: u64,
    /// The moments before each operation, if they are to be remembered.
    pub(super) watched: Option<Vec<super::CrashPoint>>,
}

pub(super) fn parent(path: &str) -> &str {
    path.rfind('/').map_or("", |slash| &path[..slash])
}

fn is_store(path: &str) -> bool {
    path.contains("store") || path.ends_with(".redb")
}

fn not_found(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{path}: no such file or directory"))
}

fn broken(what: &str) -> io::Error {
    io::Error::other(format!("input/output error ({what})"))
}

pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let z = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(17)
}

pub(super) fn hash_path(path: &str) -> u64 {
    path.bytes().fold(path.len() as u64, |h, b| mix(h, u64::from(b)))
}

impl Image {
    pub(super) fn from_files(files: BTreeMap<String, Vec<u8>>) -> Self {
        let mut image = Self::default();
        for (path, bytes) in files {
            let mut dir = parent(&path);
            while !dir.is_empty() {
                image.names.insert(dir.to_owned(), Node::Dir);
                dir = parent(dir);
            }
            let ino = image.new_file(&path);
            image.used += bytes.len() as u64;
            if let Some(file) = image.inodes.get_mut(&ino).map(Arc::make_mut) {
                file.now.clone_from(&bytes);
                file.durable = bytes;
            }
            image.names.insert(path, Node::File(ino));
        }
        image.durable_names = image.names.clone();
        image
    }

    pub(super) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for (path, node) in &self.names {
            if let Node::File(ino) = node
                && let Some(file) = self.inodes.get(ino)
            {
                files.insert(path.clone(), file.now.clone());
            }
        }
        files
    }

    /// The files below these directories as they are on the medium.
    pub(super) fn synced(&self, under: &[&str]) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for (path, node) in &self.durable_names {
            let dir = parent(path);
            if let Node::File(ino) = node
                && under.iter().any(|wanted| path.starts_with(wanted))
                && (dir.is_empty() || self.durable_names.get(dir) == Some(&Node::Dir))
                && let Some(file) = self.inodes.get(ino)
            {
                files.insert(path.clone(), file.durable.clone());
            }
        }
        files
    }

    /// Makes every handle fail for ever.
    pub(super) fn kill(&mut self) {
        self.fuse = Some(0);
        self.inodes.clear();
        self.handles.clear();
        self.names.clear();
        self.durable_names.clear();
        self.pending.clear();
        self.locks.clear();
    }

    /// The image as the next process finds it: no handles, no locks, no fuse, no planned failures.
    pub(super) fn take_over(&mut self) -> Self {
        let mut image = std::mem::take(self);
        image.reset_process();
        image
    }

    pub(super) fn reset_process(&mut self) {
        self.locks.clear();
        self.fuse = None;
        self.planned.clear();
        self.lies.clear();
        self.watched = None;
        self.handles.clear();
        let all: Vec<Ino> = self.inodes.keys().copied().collect();
        for ino in all {
            self.collect(ino);
        }
        self.used = self.inodes_named().map(|f| f.now.len() as u64).sum();
    }

    fn inodes_named(&self) -> impl Iterator<Item = &File> {
        self.names.values().filter_map(|node| match node {
            Node::File(ino) => self.inodes.get(ino).map(Arc::as_ref),
            Node::Dir => None,
        })
    }

    fn new_file(&mut self, path: &str) -> Ino {
        self.next_ino += 1;
        let ino = Ino(self.next_ino);
        let file = File { store: is_store(path), path_hash: hash_path(path), ..File::default() };
        self.inodes.insert(ino, Arc::new(file));
        ino
    }

    fn alive(&self) -> io::Result<()> {
        if self.fuse == Some(0) { Err(broken("the disk is gone")) } else { Ok(()) }
    }

    /// Fails if this operation is planned to.
    fn planned(&mut self, op: Op, path: impl Fn(&Self) -> String) -> io::Result<()> {
        if self.planned.is_empty() {
            return Ok(());
        }
        let path = path(self);
        let hit = self.planned.iter().position(|(o, part)| *o == op && path.contains(part));
        let Some(hit) = hit else { return Ok(()) };
        self.planned.remove(hit);
        self.counts.failed += 1;
        self.hash = mix(self.hash, 0xfa11);
        Err(broken(&format!("planned failure of {op:?} on {path}")))
    }

    /// Gate of every mutating operation: fuse, planned failures, count.
    fn mutate(&mut self, op: Op, path: impl Fn(&Self) -> String, hash: u64) -> io::Result<()> {
        self.alive()?;
        self.planned(op, &path)?;
        self.remember(op, path);
        if let Some(left) = &mut self.fuse {
            *left -= 1;
        }
        self.counts.mutations += 1;
        self.hash = mix(mix(self.hash, op as u64 + 1), hash);
        Ok(())
    }

    /// Room for a name.
    fn room(&mut self) -> io::Result<()> {
        if self.budget.is_some_and(|budget| self.used + SECTOR as u64 > budget) {
            self.counts.full += 1;
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on device"));
        }
        Ok(())
    }

    fn grow(&mut self, from: usize, to: u64) -> io::Result<()> {
        let more = to.saturating_sub(from as u64);
        if self.budget.is_some_and(|budget| self.used + more > budget) {
            self.counts.full += 1;
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on device"));
        }
        self.used += more;
        Ok(())
    }

    fn check_dir(&self, dir: &str) -> io::Result<()> {
        let exists = dir.is_empty() || self.names.get(dir) == Some(&Node::Dir);
        if exists { Ok(()) } else { Err(not_found(dir)) }
    }

    pub(super) fn file_at(&self, path: &str) -> io::Result<Ino> {
        match self.names.get(path) {
            Some(Node::File(ino)) => Ok(*ino),
            Some(Node::Dir) => Err(io::Error::new(io::ErrorKind::IsADirectory, path.to_owned())),
            None => Err(not_found(path)),
        }
    }

    /// Path of a file, for messages and planned failures only.
    fn path_of(&self, ino: Ino) -> String {
        let found = self.names.iter().find(|(_, node)| **node == Node::File(ino));
        found.map_or_else(|| "(unlinked)".to_owned(), |(path, _)| path.clone())
    }

    fn get(&self, ino: Ino) -> io::Result<&File> {
        self.inodes.get(&ino).map(Arc::as_ref).ok_or_else(|| broken("the disk is gone"))
    }

    pub(super) fn get_mut(&mut self, ino: Ino) -> io::Result<&mut File> {
        let file = self.inodes.get_mut(&ino).ok_or_else(|| broken("the disk is gone"))?;
        let file = Arc::make_mut(file);
        file.durable_hash = None;
        Ok(file)
    }

    pub(super) fn open(&mut self, path: &str, mode: Mode) -> io::Result<Ino> {
        self.alive()?;
        let ino = match (mode, self.names.contains_key(path)) {
            (Mode::CreateNew, true) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!("{path}: file exists"),
                ));
            }
            (Mode::CreateNew, false) => self.create(path)?,
            (Mode::Read | Mode::Write, _) => self.file_at(path)?,
        };
        *self.handles.entry(ino).or_default() += 1;
        Ok(ino)
    }

    fn create(&mut self, path: &str) -> io::Result<Ino> {
        self.check_dir(parent(path))?;
        self.room()?;
        self.mutate(Op::Create, |_| path.to_owned(), hash_path(path))?;
        let ino = self.new_file(path);
        self.names.insert(path.to_owned(), Node::File(ino));
        self.pending.push(NameOp::Create(path.to_owned(), Node::File(ino)));
        Ok(ino)
    }

    pub(super) fn close(&mut self, ino: Ino) {
        if let Some(handles) = self.handles.get_mut(&ino) {
            *handles -= 1;
            if *handles == 0 {
                self.handles.remove(&ino);
                self.collect(ino);
            }
        }
    }

    /// Forgets a file that nothing refers to any more.
    fn collect(&mut self, ino: Ino) {
        let node = Node::File(ino);
        let referred = self.handles.contains_key(&ino)
            || self.names.values().any(|n| *n == node)
            || self.durable_names.values().any(|n| *n == node)
            || self.pending.iter().any(|op| matches!(op, NameOp::Create(_, n) if *n == node));
        if !referred {
            self.inodes.remove(&ino);
        }
    }

    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.alive()?;
        self.check_dir(dir)?;
        let here = self.names.keys().filter(|path| parent(path) == dir);
        Ok(here.map(|path| path[path.rfind('/').map_or(0, |s| s + 1)..].to_owned()).collect())
    }

    fn release(&mut self, ino: Ino) {
        let len = self.inodes.get(&ino).map_or(0, |file| file.now.len() as u64);
        self.used = self.used.saturating_sub(len);
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.alive()?;
        if self.names.get(from) == Some(&Node::Dir) {
            return self.rename_dir(from, to);
        }
        let ino = self.file_at(from)?;
        self.check_dir(parent(to))?;
        if self.names.get(to) == Some(&Node::Dir) {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, to.to_owned()));
        }
        self.room()?;
        self.mutate(Op::Rename, |_| from.to_owned(), mix(hash_path(from), hash_path(to)))?;
        if from == to {
            return Ok(());
        }
        self.names.remove(from);
        if let Some(Node::File(replaced)) = self.names.insert(to.to_owned(), Node::File(ino)) {
            self.release(replaced);
        }
        self.pending.push(NameOp::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn rename_dir(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.check_dir(parent(to))?;
        if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{from} into itself")));
        }
        if self.names.contains_key(to) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, to.to_owned()));
        }
        self.room()?;
        self.mutate(Op::Rename, |_| from.to_owned(), mix(hash_path(from), hash_path(to)))?;
        names::move_names(&mut self.names, from, to);
        self.pending.push(NameOp::Move(from.to_owned(), to.to_owned()));
        Ok(())
    }

    pub(super) fn is_dir(&self, path: &str) -> io::Result<bool> {
        self.alive()?;
        match self.names.get(path) {
            Some(Node::Dir) => Ok(true),
            Some(Node::File(_)) => Ok(false),
            None if path.is_empty() => Ok(true),
            None => Err(not_found(path)),
        }
    }

    pub(super) fn remove_dir(&mut self, path: &str) -> io::Result<()> {
        if !self.is_dir(path)? || path.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, path.to_owned()));
        }
        if !self.list(path)?.is_empty() {
            return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, path.to_owned()));
        }
        self.mutate(Op::RemoveDir, |_| path.to_owned(), hash_path(path))?;
        self.names.remove(path);
        self.pending.push(NameOp::RemoveDir(path.to_owned()));
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &str) -> io::Result<()> {
        self.alive()?;
        let ino = self.file_at(path)?;
        self.mutate(Op::Unlink, |_| path.to_owned(), hash_path(path))?;
        self.release(ino);
        self.names.remove(path);
        self.pending.push(NameOp::Unlink(path.to_owned()));
        Ok(())
    }

    pub(super) fn make_dir(&mut self, path: &str) -> io::Result<()> {
        self.alive()?;
        match self.names.get(path) {
            Some(Node::Dir) => return Ok(()),
            Some(Node::File(_)) => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, path.to_owned()));
            }
            None if path.is_empty() => return Ok(()),
            None => {}
        }
        self.check_dir(parent(path))?;
        self.room()?;
        self.mutate(Op::Create, |_| path.to_owned(), hash_path(path))?;
        self.names.insert(path.to_owned(), Node::Dir);
        self.pending.push(NameOp::Create(path.to_owned(), Node::Dir));
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        self.alive()?;
        self.check_dir(dir)?;
        self.mutate(Op::SyncDir, |_| dir.to_owned(), hash_path(dir))?;
        let pending = std::mem::take(&mut self.pending);
        let mut done: Vec<bool> =
            (0..pending.len()).map(|at| names::changes(&pending, at, dir)).collect();
        // A rename between directories takes along what it builds on.
        for later in (0..done.len()).rev() {
            for earlier in 0..later {
                if done[later] && names::builds_on(&pending, later, earlier) {
                    done[earlier] = true;
                }
            }
        }
        let mut freed = Vec::new();
        for (op, _) in pending.iter().zip(&done).filter(|(_, done)| **done) {
            freed.extend(op.names().iter().filter_map(|name| self.durable_names.get(*name)));
            if let NameOp::Create(_, node) = op {
                freed.push(*node);
            }
        }
        self.pending = names::replay(&pending, &done, &mut self.durable_names);
        for node in freed {
            if let Node::File(ino) = node {
                self.collect(ino);
            }
        }
        Ok(())
    }

    pub(super) fn lock(&mut self, path: &str) -> io::Result<()> {
        self.alive()?;
        if self.locks.contains(path) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, format!("{path} is locked")));
        }
        if !self.names.contains_key(path) {
            self.create(path)?;
        }
        self.locks.insert(path.to_owned());
        Ok(())
    }

    pub(super) fn len(&self, ino: Ino) -> io::Result<u64> {
        self.alive()?;
        Ok(self.get(ino)?.now.len() as u64)
    }

    fn counts_of(&mut self, store: bool) -> &mut OpCounts {
        if store { &mut self.counts.store } else { &mut self.counts.log }
    }

    pub(super) fn read(&mut self, ino: Ino, offset: u64, len: usize) -> io::Result<&[u8]> {
        self.alive()?;
        self.planned(Op::Read, |image| image.path_of(ino))?;
        let store = self.get(ino)?.store;
        let counts = self.counts_of(store);
        counts.reads += 1;
        counts.bytes_read += len as u64;
        let file = self.get(ino)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let range = from..from.saturating_add(len);
        file.now.get(range).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{len} bytes at {offset} of a file of {}", file.now.len()),
            )
        })
    }

    pub(super) fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> io::Result<()> {
        self.alive()?;
        if data.is_empty() {
            return Ok(());
        }
        let file = self.get(ino)?;
        let (len, store, path_hash) = (file.now.len(), file.store, file.path_hash);
        let start = usize::try_from(offset).map_err(|_| broken("offset beyond memory"))?;
        let end = start.checked_add(data.len()).ok_or_else(|| broken("offset beyond memory"))?;
        self.grow(len, end as u64)?;
        let what = mix(mix(path_hash, offset), u64::from(crc32c::crc32c(data)));
        self.mutate(Op::Write, |image| image.path_of(ino), mix(what, data.len() as u64))?;
        let counts = self.counts_of(store);
        counts.writes += 1;
        counts.bytes_written += data.len() as u64;
        let (first, last) = (start.min(len) / SECTOR, (end - 1) / SECTOR);
        match self.take_lie(ino) {
            None => self.put(ino, start, data),
            Some(Lie::Lost) => {
                self.put(ino, start, data)?;
                self.forget_sectors(ino, first, last)
            }
            Some(Lie::At(offset)) => {
                let file = self.get_mut(ino)?;
                let other = usize::try_from(offset).unwrap_or(usize::MAX).min(file.now.len());
                let data = &data[..data.len().min(file.now.len() - other)];
                if data.is_empty() { Ok(()) } else { self.put(ino, other, data) }
            }
        }
    }

    /// Bytes come to their place in a file, unsynced.
    fn put(&mut self, ino: Ino, start: usize, data: &[u8]) -> io::Result<()> {
        let file = self.get_mut(ino)?;
        let (len, end) = (file.now.len(), start + data.len());
        file.touch(start.min(len) / SECTOR, (end - 1) / SECTOR);
        if start >= len {
            file.now.resize(start, 0);
            file.now.extend_from_slice(data);
            return Ok(());
        }
        if end > len {
            file.now.resize(end, 0);
        }
        file.now[start..end].copy_from_slice(data);
        Ok(())
    }

    pub(super) fn set_len(&mut self, ino: Ino, len: u64) -> io::Result<()> {
        self.alive()?;
        let old = self.get(ino)?.now.len();
        let new = usize::try_from(len).map_err(|_| broken("length beyond memory"))?;
        self.grow(old, len)?;
        let what = mix(self.get(ino)?.path_hash, len);
        self.mutate(Op::SetLen, |image| image.path_of(ino), what)?;
        let file = self.get_mut(ino)?;
        let (low, high) = (old.min(new), old.max(new));
        if low < high {
            file.touch(low / SECTOR, (high - 1) / SECTOR);
        }
        file.now.resize(new, 0);
        self.used = self.used.saturating_sub(old.saturating_sub(new) as u64);
        Ok(())
    }

    pub(super) fn sync(&mut self, ino: Ino) -> io::Result<()> {
        self.alive()?;
        let (store, path_hash) = (self.get(ino)?.store, self.get(ino)?.path_hash);
        let done = self.mutate(Op::Sync, |image| image.path_of(ino), path_hash);
        self.counts_of(store).syncs += u64::from(done.is_ok());
        let blown = self.fuse == Some(0);
        let file = self.get_mut(ino)?;
        match &done {
            Ok(()) => file.settle(),
            // The cache drops its dirty marks: what is not written again may never arrive (R12).
            Err(_) if !blown => {
                for sector in &file.touched {
                    file.state[*sector] = SectorState::Lost;
                }
            }
            Err(_) => {}
        }
        done
    }
}
