//! A disk laid over another one: everything can be read and changed, and the one below never is.
//!
//! Guarantees: no method of the disk below but `open` for reading, `list`, `is_dir`, and the reads of
//! what it opened is ever called. What is written stays in memory, in pages; zeros behind the end of
//! the file below take none. [`Overlay::changes`] says what became different.
//!
//! The names are those that the disk below had when the overlay was made; a file's length is that of
//! its first opening. A file that vanishes below before it is opened is then `NotFound`.
//! Nothing is ever full here, and syncs do nothing: this is for finding out what some code would do.

use crate::disk::{Disk, DiskFile, Mode};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Bytes of a page.
const PAGE: usize = 4096;

/// How one path became different.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new; of a file the length in bytes.
    Made(Option<u64>),
    /// It is gone.
    Removed,
    /// Another file stands there now, of this length in bytes.
    Replaced(u64),
    /// Bytes of it differ from this offset on; it was as long as the first number, now the second.
    Rewritten {
        /// Offset of the first byte that differs.
        from: u64,
        /// Its length before, in bytes.
        before: u64,
        /// Its length now, in bytes.
        now: u64,
    },
}

/// What became different of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The path as it was, or as it is for what is new.
    pub path: String,
    /// Its new name, if it was renamed.
    pub to: Option<String>,
    /// What happened to it; `None` if it was only renamed.
    pub change: Option<Change>,
}

/// The overlay. A clone is another handle to the same one.
#[derive(Debug)]
pub struct Overlay<D: Disk>(Arc<Inner<D>>);

impl<D: Disk> Clone for Overlay<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<D: Disk> {
    below: D,
    before: Names<D::File>,
    names: Mutex<Names<D::File>>,
    /// The first thing that this process may not read, if there is one.
    denied: Mutex<Option<String>>,
}

type Names<F> = BTreeMap<String, Node<F>>;

#[derive(Debug)]
enum Node<F> {
    /// A directory; the error is why it cannot be listed.
    Dir(Option<(io::ErrorKind, String)>),
    File(Arc<Body<F>>),
}

impl<F> Clone for Node<F> {
    fn clone(&self) -> Self {
        match self {
            Self::Dir(unread) => Self::Dir(unread.clone()),
            Self::File(body) => Self::File(Arc::clone(body)),
        }
    }
}

/// A file, whatever its name.
#[derive(Debug)]
struct Body<F> {
    /// Where it stood below.
    origin: Option<String>,
    content: RwLock<Content<F>>,
}

#[derive(Debug)]
struct Content<F> {
    /// The file below, once it was opened, and its length.
    below: Option<(F, u64)>,
    /// Bytes of it that still show.
    shown: u64,
    len: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

fn error(kind: io::ErrorKind, path: &str) -> io::Error {
    io::Error::new(kind, format!("{path}: {}", io::Error::from(kind)))
}

/// Keeps the first refusal of the system to let this process read.
fn note(denied: &mut Option<String>, error: &io::Error) {
    if error.kind() == io::ErrorKind::PermissionDenied {
        denied.get_or_insert_with(|| error.to_string());
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Everything beneath a directory.
fn beneath<'a, F>(
    names: &'a Names<F>,
    dir: &str,
) -> impl Iterator<Item = (&'a String, &'a Node<F>)> {
    let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
    let from = prefix.clone();
    names.range(from..).take_while(move |(path, _)| path.starts_with(&prefix))
}

impl<D: Disk> Overlay<D> {
    /// Lays an overlay over a disk, whose names are read now.
    ///
    /// # Errors
    /// What the disk says of its root. A directory further down that cannot be listed gives its
    /// error when somebody lists it.
    pub fn over(below: D) -> io::Result<Self> {
        let mut names = BTreeMap::new();
        let mut dirs = vec![String::new()];
        let mut denied = None;
        while let Some(dir) = dirs.pop() {
            let listed = match below.list(&dir) {
                Ok(listed) => listed,
                Err(e) if dir.is_empty() => return Err(e),
                Err(e) => {
                    note(&mut denied, &e);
                    names.insert(dir, Node::Dir(Some((e.kind(), e.to_string()))));
                    continue;
                }
            };
            for name in listed {
                let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
                // What cannot be looked at is a file that will not open. A link at the root may lead
                // to a directory elsewhere; further down none is followed, so that this ends.
                let is_dir = below.is_dir(&path).unwrap_or(false)
                    || (dir.is_empty() && below.list(&path).is_ok());
                if is_dir {
                    names.insert(path.clone(), Node::Dir(None));
                    dirs.push(path);
                } else {
                    let body = Body::over(path.clone());
                    names.insert(path, Node::File(Arc::new(body)));
                }
            }
        }
        let before = names.clone();
        let (names, denied) = (Mutex::new(names), Mutex::new(denied));
        Ok(Self(Arc::new(Inner { below, before, names, denied })))
    }

    /// What this process was not allowed to read so far: then what was found out over this disk is
    /// not what another user would find.
    #[must_use]
    pub fn denied(&self) -> Option<String> {
        self.0.denied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn names(&self) -> MutexGuard<'_, Names<D::File>> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became different, by path.
    ///
    /// # Errors
    /// What the disk below says when a changed file is compared.
    pub fn changes(&self) -> io::Result<Vec<Changed>> {
        let (names, before) = (self.names(), &self.0.before);
        let mut changes = Vec::new();
        let mut known = BTreeSet::new();
        for (path, node) in before {
            let Node::File(body) = node else {
                if !matches!(names.get(path), Some(Node::Dir(_))) {
                    let change = Some(Change::Removed);
                    changes.push(Changed { path: path.clone(), to: None, change });
                }
                continue;
            };
            let same = |node: &Node<D::File>| match node {
                Node::File(other) => Arc::ptr_eq(body, other),
                Node::Dir(_) => false,
            };
            let stays = names.get(path).is_some_and(same);
            let now =
                if stays { Some(path) } else { names.iter().find(|(_, n)| same(n)).map(|f| f.0) };
            known.extend(now.cloned());
            let change = match now {
                Some(_) => body.change()?,
                // Told below, as what took its place.
                None if matches!(names.get(path), Some(Node::File(_))) => continue,
                None => Some(Change::Removed),
            };
            let to = now.filter(|now| *now != path).cloned();
            if to.is_some() || change.is_some() {
                changes.push(Changed { path: path.clone(), to, change });
            }
        }
        for (path, node) in names.iter().filter(|(path, _)| !known.contains(*path)) {
            let change = match (node, before.contains_key(path)) {
                (Node::Dir(_), true) => continue,
                (Node::Dir(_), false) => Change::Made(None),
                (Node::File(body), true) => Change::Replaced(body.content().len),
                (Node::File(body), false) => Change::Made(Some(body.content().len)),
            };
            changes.push(Changed { path: path.clone(), to: None, change: Some(change) });
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(changes)
    }
}

impl<F: DiskFile> Body<F> {
    fn over(origin: String) -> Self {
        let content = Content { below: None, shown: 0, len: 0, pages: BTreeMap::new() };
        Self { origin: Some(origin), content: RwLock::new(content) }
    }

    fn empty() -> Self {
        let content = Content { below: None, shown: 0, len: 0, pages: BTreeMap::new() };
        Self { origin: None, content: RwLock::new(content) }
    }

    fn content(&self) -> std::sync::RwLockReadGuard<'_, Content<F>> {
        self.content.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> std::sync::RwLockWriteGuard<'_, Content<F>> {
        self.content.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the file below, unless that was done.
    fn open<D: Disk<File = F>>(&self, disk: &D) -> io::Result<()> {
        let Some(origin) = &self.origin else { return Ok(()) };
        let mut content = self.writing();
        if content.below.is_none() {
            let file = disk.open(origin, Mode::Read)?;
            let len = file.len()?;
            (content.below, content.shown, content.len) = (Some((file, len)), len, len);
        }
        Ok(())
    }

    /// How a file that stood below became different.
    fn change(&self) -> io::Result<Option<Change>> {
        let content = self.content();
        let Some((file, before)) = &content.below else { return Ok(None) };
        let (before, now) = (*before, content.len);
        // Between what still shows of it and what there is now, everything reads as zeros.
        let cut = now != before || content.shown < before;
        let mut first = cut.then_some(now.min(before).min(content.shown));
        for (page, bytes) in &content.pages {
            let start = page * PAGE as u64;
            let len =
                usize::try_from(before.min(now).saturating_sub(start)).unwrap_or(PAGE).min(PAGE);
            if len == 0 {
                break;
            }
            let mut old = vec![0; len];
            file.read_at(start, &mut old)?;
            if let Some(at) = old.iter().zip(bytes).position(|(old, new)| old != new) {
                let at = start + at as u64;
                first = Some(first.map_or(at, |first| first.min(at)));
                break;
            }
        }
        Ok(first.map(|from| Change::Rewritten { from, before, now }))
    }
}

impl<F: DiskFile> Content<F> {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.len);
        let Some(end) = end else {
            let why = format!("{} bytes at {offset} reach behind the end", into.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        };
        let below = self.shown.saturating_sub(offset);
        let below = usize::try_from(below).unwrap_or(usize::MAX).min(into.len());
        match &self.below {
            Some((file, _)) if below > 0 => file.read_at(offset, &mut into[..below])?,
            _ => into[..below].fill(0),
        }
        into[below..].fill(0);
        for (page, bytes) in self.pages.range(offset / PAGE as u64..end.div_ceil(PAGE as u64)) {
            let start = page * PAGE as u64;
            let (from, to) = (start.max(offset), (start + PAGE as u64).min(end));
            let source = &bytes[to_usize(from - start)..to_usize(to - start)];
            into[to_usize(from - offset)..to_usize(to - offset)].copy_from_slice(source);
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (page, inside) = (at / PAGE as u64, to_usize(at % PAGE as u64));
            let (piece, more) = rest.split_at(rest.len().min(PAGE - inside));
            let start = page * PAGE as u64;
            let blank = start >= self.shown && piece.iter().all(|byte| *byte == 0);
            if self.pages.contains_key(&page) || !blank {
                if !self.pages.contains_key(&page) {
                    let mut bytes = vec![0; PAGE];
                    let below = to_usize(self.shown.saturating_sub(start).min(PAGE as u64));
                    if let Some((file, _)) = self.below.as_ref().filter(|_| below > 0) {
                        file.read_at(start, &mut bytes[..below])?;
                    }
                    self.pages.insert(page, bytes);
                }
                if let Some(bytes) = self.pages.get_mut(&page) {
                    bytes[inside..inside + piece.len()].copy_from_slice(piece);
                }
            }
            at += piece.len() as u64;
            rest = more;
        }
        self.len = self.len.max(at);
        Ok(())
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.shown = self.shown.min(len);
            self.pages.split_off(&len.div_ceil(PAGE as u64));
            if let Some(bytes) = self.pages.get_mut(&(len / PAGE as u64)) {
                bytes[to_usize(len % PAGE as u64)..].fill(0);
            }
        }
        self.len = len;
    }
}

/// For lengths within memory.
fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl<D: Disk> Disk for Overlay<D> {
    type File = OverlayFile<D::File>;

    fn open(&self, path: &str, mode: Mode) -> io::Result<Self::File> {
        let mut names = self.names();
        let body = match (names.get(path), mode) {
            (Some(_), Mode::CreateNew) => return Err(error(io::ErrorKind::AlreadyExists, path)),
            (Some(Node::Dir(_)), _) => return Err(error(io::ErrorKind::IsADirectory, path)),
            (Some(Node::File(body)), _) => Arc::clone(body),
            (None, Mode::CreateNew) => {
                exists(&names, parent(path))?;
                let body = Arc::new(Body::empty());
                names.insert(path.to_owned(), Node::File(Arc::clone(&body)));
                body
            }
            (None, _) => return Err(error(io::ErrorKind::NotFound, path)),
        };
        drop(names);
        body.open(&self.0.below).inspect_err(|e| {
            note(&mut self.0.denied.lock().unwrap_or_else(PoisonError::into_inner), e);
        })?;
        Ok(OverlayFile { body, writable: mode != Mode::Read })
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let names = self.names();
        exists(&names, dir)?;
        let skip = if dir.is_empty() { 0 } else { dir.len() + 1 };
        let inside = beneath(&names, dir).map(|(path, _)| &path[skip..]);
        // In a directory's order a name may come before or behind what lies beneath another.
        let mut found: Vec<String> =
            inside.filter(|rest| !rest.contains('/')).map(str::to_owned).collect();
        found.sort_unstable();
        Ok(found)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut names = self.names();
        let node = names.get(from).cloned().ok_or_else(|| error(io::ErrorKind::NotFound, from))?;
        exists(&names, parent(to))?;
        match (&node, names.get(to)) {
            (Node::Dir(_), Some(_)) => return Err(error(io::ErrorKind::AlreadyExists, to)),
            (Node::File(_), Some(Node::Dir(_))) => {
                return Err(error(io::ErrorKind::IsADirectory, to));
            }
            _ => {}
        }
        if matches!(node, Node::Dir(_)) {
            let moved: Vec<_> = beneath(&names, from).map(|(path, _)| path.clone()).collect();
            for path in moved {
                if let Some(node) = names.remove(&path) {
                    names.insert(format!("{to}{}", &path[from.len()..]), node);
                }
            }
        }
        names.remove(from);
        names.insert(to.to_owned(), node);
        Ok(())
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let mut names = self.names();
        match names.get(path) {
            None => Err(error(io::ErrorKind::NotFound, path)),
            Some(Node::Dir(_)) => Err(error(io::ErrorKind::IsADirectory, path)),
            Some(Node::File(_)) => {
                names.remove(path);
                Ok(())
            }
        }
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        let mut names = self.names();
        match names.get(path) {
            Some(Node::Dir(_)) => Ok(()),
            Some(Node::File(_)) => Err(error(io::ErrorKind::AlreadyExists, path)),
            None => {
                exists(&names, parent(path))?;
                names.insert(path.to_owned(), Node::Dir(None));
                Ok(())
            }
        }
    }

    fn is_dir(&self, path: &str) -> io::Result<bool> {
        match self.names().get(path) {
            _ if path.is_empty() => Ok(true),
            Some(node) => Ok(matches!(node, Node::Dir(_))),
            None => Err(error(io::ErrorKind::NotFound, path)),
        }
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        let mut names = self.names();
        exists(&names, path)?;
        if beneath(&names, path).next().is_some() {
            return Err(error(io::ErrorKind::DirectoryNotEmpty, path));
        }
        names.remove(path);
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        exists(&self.names(), path)
    }

    fn lanes(&self) -> usize {
        self.0.below.lanes()
    }

    fn permits(&self, path: &str) -> io::Result<()> {
        let said = self.0.below.permits(path);
        if said.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
            && let Some(Node::File(body)) = self.names().get(path).cloned()
            && let Err(e) = body.open(&self.0.below)
        {
            note(&mut self.0.denied.lock().unwrap_or_else(PoisonError::into_inner), &e);
        }
        said
    }

    /// Granted wherever a file stands or can be made: whether somebody holds the one below is for the
    /// caller to find out.
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        if matches!(self.names().get(path), Some(Node::Dir(_))) {
            return Err(error(io::ErrorKind::IsADirectory, path));
        }
        match self.open(path, Mode::CreateNew) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(Box::new(())),
        }
    }
}

/// An error unless a directory stands there that can be listed.
fn exists<F>(names: &Names<F>, dir: &str) -> io::Result<()> {
    match names.get(dir) {
        _ if dir.is_empty() => Ok(()),
        Some(Node::Dir(None)) => Ok(()),
        Some(Node::Dir(Some((kind, why)))) => Err(io::Error::new(*kind, why.clone())),
        Some(Node::File(_)) => Err(error(io::ErrorKind::NotADirectory, dir)),
        None => Err(error(io::ErrorKind::NotFound, dir)),
    }
}

/// An open file of an [`Overlay`].
#[derive(Debug)]
pub struct OverlayFile<F> {
    body: Arc<Body<F>>,
    writable: bool,
}

impl<F> OverlayFile<F> {
    fn check_writable(&self) -> io::Result<()> {
        if self.writable {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file was opened for reading"))
    }
}

impl<F: DiskFile> DiskFile for OverlayFile<F> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.body.content().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.body.writing().set_len(len);
        Ok(())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.body.content().read(offset, into)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        self.body.writing().write(offset, data)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn share(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; len];
        self.body.content().read(offset, &mut bytes)?;
        Ok(bytes.into())
    }
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
