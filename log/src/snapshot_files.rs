//! Snapshot files: written, verified by reading back, published by rename, two kept.
//!
//! ```text
//! header  magic 8, version u32, label length u32, label (bincode), CRC u32
//! chunk   length u32 (never 0), CRC u32 over offset, length and content, offset u64, content
//! footer  0 u32, CRC u32 over the rest of the footer, total u64, chunks u64, CRC of all content u32
//! ```

use crate::disk::{Disk, DiskFile, Mode};
use crate::fault::{is_full, poison};
use bytes::Bytes;
use holdfast_consensus::SnapshotMeta;
use holdfast_consensus::codec;
use holdfast_consensus::fault::{LogFault, StoreFault};
use holdfast_consensus::traits::{SNAPSHOT_CHUNK_MAX, SnapshotSink, SnapshotSource, SnapshotStore};
use std::fmt::Display;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const DIR: &str = "snap";
const MAGIC: [u8; 8] = *b"HFSNAPSH";
/// Version of the snapshot files that this build reads and writes.
const FORMAT: u32 = 1;
/// Largest label that is believed, in bytes.
const LABEL_MAX: usize = 1 << 20;
const CHUNK_HEAD: usize = 16;
const FOOTER: usize = 28;
/// Published snapshots that are kept.
const KEPT: usize = 2;

/// The snapshot files of a replica, in the directory `snap`.
#[derive(Debug)]
pub struct SnapshotFiles<D: Disk> {
    disk: D,
    /// Published and verified in this process, oldest first.
    published: Arc<Mutex<Vec<SnapshotMeta>>>,
}

impl<D: Disk> Clone for SnapshotFiles<D> {
    fn clone(&self) -> Self {
        Self { disk: self.disk.clone(), published: Arc::clone(&self.published) }
    }
}

fn snapshot(why: impl Display) -> StoreFault {
    StoreFault::Snapshot(why.to_string())
}

fn writing(path: &str, error: &io::Error) -> StoreFault {
    let detail = format!("write {path}: {error}");
    if is_full(error) { StoreFault::Full { detail } } else { StoreFault::Poisoned { detail } }
}

/// The label as it stands in the file: its length is in the footer, not here.
fn label(meta: &SnapshotMeta) -> SnapshotMeta {
    SnapshotMeta { bytes: 0, ..meta.clone() }
}

fn published_path(meta: &SnapshotMeta) -> String {
    format!("{DIR}/{:020}-{:020}.snap", meta.last.index.0, meta.last.term.0)
}

fn partial_path(meta: &SnapshotMeta) -> String {
    // The digest keeps two snapshots of one position apart, should they ever differ.
    format!("{DIR}/{:020}-{:020}-{:032x}.partial", meta.last.index.0, meta.last.term.0, meta.digest)
}

impl<D: Disk> SnapshotFiles<D> {
    /// Opens the directory, or makes it. `found` is what [`SnapshotFiles::find`] has found in it, if
    /// it was asked already.
    pub(crate) fn open(disk: D, found: Option<Vec<SnapshotMeta>>) -> Result<Self, LogFault> {
        match disk.list(DIR) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let made = disk.make_dir(DIR).and_then(|()| disk.sync_dir(""));
                made.map_err(|e| crate::fault::create_fault("make the snapshot directory", &e))?;
            }
            Err(e) => return Err(poison("open the snapshots", e)),
        }
        // What is found by name must also be there after the next crash (R25).
        disk.sync_dir(DIR).map_err(|e| poison("open the snapshots", e))?;
        let published = found.map_or_else(|| Self::find(&disk), Ok)?;
        let keep = published.clone();
        let store = Self { disk, published: Arc::new(Mutex::new(published)) };
        // What an earlier process began and nobody will go on with. If it cannot be removed now,
        // the next snapshot removes it.
        store.prune(&keep, false).ok();
        Ok(store)
    }

    /// The newest published snapshots that verify, oldest first; one that does not is left as it is,
    /// and the one before it counts. Nothing is changed.
    pub(crate) fn find(disk: &D) -> Result<Vec<SnapshotMeta>, LogFault> {
        let mut names = match disk.list(DIR) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names.map_err(|e| crate::fault::unread("open the snapshots", &e))?,
        };
        names.retain(|name| name.ends_with(".snap"));
        let mut published = Vec::new();
        for name in names.iter().rev() {
            let path = format!("{DIR}/{name}");
            match Content::open(disk, &path, Mode::Read).and_then(Content::verify) {
                Ok(meta) if published_path(&meta) == path => published.insert(0, meta),
                Ok(_) => {}
                Err(StoreFault::Snapshot(_)) => {}
                Err(fault) => return Err(poison("open the snapshots", fault)),
            }
            if published.len() == KEPT {
                break;
            }
        }
        Ok(published)
    }

    fn published(&self) -> MutexGuard<'_, Vec<SnapshotMeta>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes partial files that are of no use any more and, if `older` says so, every published
    /// one behind the newest that is not among those to keep.
    fn prune(&self, keep: &[SnapshotMeta], older: bool) -> io::Result<()> {
        let kept: Vec<_> = keep.iter().map(published_path).collect();
        let newest = keep.last().map_or(0, |m| m.last.index.0);
        let mut removed = false;
        for name in self.disk.list(DIR)? {
            let path = format!("{DIR}/{name}");
            let index = name.get(..20).and_then(|digits| digits.parse::<u64>().ok());
            let old = index.is_some_and(|index| index <= newest);
            let published = older && name.ends_with(".snap") && !kept.contains(&path);
            if old && (published || name.ends_with(".partial")) {
                self.disk.unlink(&path)?;
                removed = true;
            }
        }
        if removed { self.disk.sync_dir(DIR) } else { Ok(()) }
    }

    fn try_publish(&self, writer: &SnapshotWriter<D>) -> Result<SnapshotMeta, StoreFault> {
        if writer.announced != 0 && writer.announced != writer.offset {
            return Err(snapshot(format!(
                "{} holds {} bytes where {} were announced",
                writer.path, writer.offset, writer.announced
            )));
        }
        let footer = writer.footer();
        (writer.file.write_at(writer.end, &footer))
            .and_then(|()| writer.file.set_len(writer.end + FOOTER as u64))
            .and_then(|()| writer.file.sync())
            .map_err(|e| writing(&writer.path, &e))?;
        let meta = Content::open(&self.disk, &writer.path, Mode::Read)?.verify()?;
        if meta != (SnapshotMeta { bytes: writer.offset, ..writer.label.clone() }) {
            return Err(snapshot(format!("{} reads back differently", writer.path)));
        }
        self.disk
            .rename(&writer.path, &published_path(&meta))
            .and_then(|()| self.disk.sync_dir(DIR))
            .map_err(|e| writing(&writer.path, &e))?;
        Ok(meta)
    }
}

impl<D: Disk> SnapshotStore for SnapshotFiles<D> {
    type Writer = SnapshotWriter<D>;
    type Reader = SnapshotReader<D>;

    fn create(&self, meta: &SnapshotMeta) -> Result<Self::Writer, StoreFault> {
        let (label, path) = (label(meta), partial_path(meta));
        if let Ok(content) = Content::open(&self.disk, &path, Mode::Write)
            && content.meta == label
            && let Ok(writer) = content.resume(&self.disk, path.clone(), meta.bytes)
        {
            return Ok(writer);
        }
        let head = encode_label(&label)?;
        let begin = || -> io::Result<D::File> {
            match self.disk.unlink(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let file = self.disk.open(&path, Mode::CreateNew)?;
            file.write_at(0, &head)?;
            Ok(file)
        };
        let file = begin().map_err(|e| writing(&path, &e))?;
        let end = head.len() as u64;
        let (disk, announced) = (self.disk.clone(), meta.bytes);
        let (offset, chunks, crc) = (0, 0, 0);
        Ok(SnapshotWriter { disk, file, path, label, announced, end, offset, chunks, crc })
    }

    fn publish(&self, writer: Self::Writer) -> Result<SnapshotMeta, StoreFault> {
        let result = self.try_publish(&writer);
        if let Err(fault) = result {
            // Bytes of a file whose sync failed may be readable and yet lost: never resumed.
            writer.discard();
            return Err(fault);
        }
        let meta = result?;
        let mut published = self.published();
        published.retain(|m| m.last != meta.last);
        published.push(meta.clone());
        published.sort_by_key(|m| m.last);
        let excess = published.len().saturating_sub(KEPT);
        published.drain(..excess);
        let keep = published.clone();
        drop(published);
        // The snapshot is published whatever becomes of the older ones; they go with the next.
        self.prune(&keep, true).ok();
        Ok(meta)
    }

    fn newest(&self) -> Option<SnapshotMeta> {
        self.published().last().cloned()
    }

    fn open(&self, meta: &SnapshotMeta, offset: u64) -> Result<Self::Reader, StoreFault> {
        let known = self.published().iter().find(|m| label(m) == label(meta)).cloned();
        let Some(known) = known else {
            return Err(snapshot(format!("there is no snapshot at {}", meta.last)));
        };
        let mut content = Content::open(&self.disk, &published_path(&known), Mode::Read)?;
        if content.meta != label(&known) {
            return Err(snapshot(format!("{} carries another label", content.path)));
        }
        while content.offset < offset {
            if content.skip()?.is_none() {
                break;
            }
        }
        if content.offset != offset {
            let path = content.path;
            return Err(snapshot(format!("{path}: no chunk begins at offset {offset}")));
        }
        Ok(SnapshotReader { content, failed: false })
    }
}

fn encode_label(label: &SnapshotMeta) -> Result<Vec<u8>, StoreFault> {
    let bytes = codec::encode("snapshot label", label).map_err(snapshot)?;
    if bytes.len() > LABEL_MAX {
        return Err(snapshot("the label is too long"));
    }
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&FORMAT.to_le_bytes());
    head.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    head.extend_from_slice(&bytes);
    let crc = crc32c::crc32c(&head);
    head.extend_from_slice(&crc.to_le_bytes());
    Ok(head)
}

fn chunk_crc(offset: u64, content: &[u8]) -> u32 {
    let mut head = [0; 16];
    head[..8].copy_from_slice(&offset.to_le_bytes());
    head[8..].copy_from_slice(&(content.len() as u64).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head), content)
}

/// A snapshot file while it is read from front to back.
#[derive(Debug)]
struct Content<F> {
    file: F,
    path: String,
    meta: SnapshotMeta,
    bytes: u64,
    /// Where the next chunk lies in the file.
    at: u64,
    /// Offset of the next chunk in the content.
    offset: u64,
    chunks: u64,
    crc: u32,
}

impl<F: DiskFile> Content<F> {
    fn open<D: Disk<File = F>>(disk: &D, path: &str, mode: Mode) -> Result<Self, StoreFault> {
        let reading = |e: io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound => snapshot(e),
            _ => StoreFault::Poisoned { detail: format!("read {path}: {e}") },
        };
        let file = disk.open(path, mode).map_err(reading)?;
        let bytes = file.len().map_err(reading)?;
        let mut head = vec![0; 16];
        file.read_at(0, &mut head).map_err(reading)?;
        if head[..8] != MAGIC {
            return Err(snapshot(format!("{path} is not a snapshot")));
        }
        let version = crate::record::u32_at(&head, 8);
        if version != FORMAT {
            return Err(snapshot(format!(
                "{path} has snapshot format {version}, this build reads {FORMAT}"
            )));
        }
        let len = crate::record::u32_at(&head, 12) as usize;
        if len > LABEL_MAX || 20 + len as u64 > bytes {
            return Err(snapshot(format!("{path}: impossible length of the label")));
        }
        head.resize(20 + len, 0);
        file.read_at(16, &mut head[16..]).map_err(reading)?;
        if crc32c::crc32c(&head[..16 + len]) != crate::record::u32_at(&head, 16 + len) {
            return Err(snapshot(format!("{path}: the label does not verify")));
        }
        let meta = codec::decode("snapshot label", &head[16..16 + len]).map_err(snapshot)?;
        let (at, path) = (head.len() as u64, path.to_owned());
        Ok(Self { file, path, meta, bytes, at, offset: 0, chunks: 0, crc: 0 })
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), StoreFault> {
        self.file.read_at(at, into).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => snapshot(e),
            _ => StoreFault::Poisoned { detail: e.to_string() },
        })
    }

    fn bad(&self, why: &str) -> StoreFault {
        snapshot(format!("{} at offset {}: {why}", self.path, self.at))
    }

    /// Length and CRC of the chunk that comes next; zero for the footer.
    fn head(&self) -> Result<(usize, u32), StoreFault> {
        let mut head = [0; CHUNK_HEAD];
        self.read(self.at, &mut head)?;
        let len = crate::record::u32_at(&head, 0) as usize;
        if len > SNAPSHOT_CHUNK_MAX {
            return Err(self.bad("a chunk longer than chunks may be"));
        }
        if len > 0 && crate::record::u64_at(&head, 8) != self.offset {
            return Err(self.bad("a chunk that does not belong here"));
        }
        Ok((len, crate::record::u32_at(&head, 4)))
    }

    /// The next chunk, verified; `None` at a footer that verifies.
    fn next(&mut self) -> Result<Option<Bytes>, StoreFault> {
        let (len, crc) = self.head()?;
        if len == 0 {
            let mut footer = [0; FOOTER];
            self.read(self.at, &mut footer)?;
            let expected = encode_footer(self.offset, self.chunks, self.crc);
            let complete = footer == expected && self.at + FOOTER as u64 == self.bytes;
            return if complete { Ok(None) } else { Err(self.bad("the footer does not verify")) };
        }
        let mut chunk = vec![0; len];
        self.read(self.at + CHUNK_HEAD as u64, &mut chunk)?;
        if chunk_crc(self.offset, &chunk) != crc {
            return Err(self.bad("a chunk does not verify"));
        }
        self.crc = crc32c::crc32c_append(self.crc, &chunk);
        self.advance(len);
        Ok(Some(chunk.into()))
    }

    /// Steps over the next chunk; `None` at the footer. The running CRC is not kept.
    fn skip(&mut self) -> Result<Option<()>, StoreFault> {
        let (len, _) = self.head()?;
        if len == 0 {
            return Ok(None);
        }
        self.advance(len);
        Ok(Some(()))
    }

    fn advance(&mut self, len: usize) {
        self.at += (CHUNK_HEAD + len) as u64;
        self.offset += len as u64;
        self.chunks += 1;
    }

    /// Reads everything; the label with the length of the content.
    fn verify(mut self) -> Result<SnapshotMeta, StoreFault> {
        while self.next()?.is_some() {}
        Ok(SnapshotMeta { bytes: self.offset, ..self.meta })
    }

    /// Goes on behind the last chunk that verifies.
    fn resume<D: Disk<File = F>>(
        mut self,
        disk: &D,
        path: String,
        announced: u64,
    ) -> Result<SnapshotWriter<D>, StoreFault> {
        loop {
            match self.next() {
                Ok(Some(_)) => {}
                // Not finished here, whatever stands there: the next chunk overwrites it.
                Ok(None) | Err(StoreFault::Snapshot(_)) => break,
                Err(fault) => return Err(fault),
            }
        }
        let Self { file, meta: label, at: end, offset, chunks, crc, .. } = self;
        file.set_len(end).map_err(|e| writing(&path, &e))?;
        let disk = disk.clone();
        Ok(SnapshotWriter { disk, file, path, label, announced, end, offset, chunks, crc })
    }
}

fn encode_footer(total: u64, chunks: u64, crc: u32) -> [u8; FOOTER] {
    let mut footer = [0; FOOTER];
    footer[8..16].copy_from_slice(&total.to_le_bytes());
    footer[16..24].copy_from_slice(&chunks.to_le_bytes());
    footer[24..28].copy_from_slice(&crc.to_le_bytes());
    let own = crc32c::crc32c(&footer[8..]);
    footer[4..8].copy_from_slice(&own.to_le_bytes());
    footer
}

/// Writes one snapshot file. Dropped unpublished, it leaves a partial file that can be resumed.
#[derive(Debug)]
pub struct SnapshotWriter<D: Disk> {
    disk: D,
    file: D::File,
    path: String,
    label: SnapshotMeta,
    /// Length of the content as its sender announced it; zero if it is not known yet.
    announced: u64,
    /// Length of the file.
    end: u64,
    /// Length of the content.
    offset: u64,
    chunks: u64,
    crc: u32,
}

impl<D: Disk> SnapshotWriter<D> {
    fn footer(&self) -> [u8; FOOTER] {
        encode_footer(self.offset, self.chunks, self.crc)
    }

    /// Removes the file. If that fails too, its content still has to verify before it counts.
    fn discard(&self) {
        self.disk.unlink(&self.path).ok();
    }
}

impl<D: Disk> SnapshotSink for SnapshotWriter<D> {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn put_chunk(&mut self, offset: u64, chunk: &[u8]) -> Result<(), StoreFault> {
        if offset != self.offset {
            return Err(snapshot(format!("chunk at {offset} where {} is wanted", self.offset)));
        }
        if chunk.is_empty() {
            return Ok(());
        }
        if chunk.len() > SNAPSHOT_CHUNK_MAX {
            return Err(snapshot(format!("chunk of {} bytes is too long", chunk.len())));
        }
        let mut record = Vec::with_capacity(CHUNK_HEAD + chunk.len());
        record.extend_from_slice(&u32::try_from(chunk.len()).unwrap_or(u32::MAX).to_le_bytes());
        record.extend_from_slice(&chunk_crc(offset, chunk).to_le_bytes());
        record.extend_from_slice(&offset.to_le_bytes());
        record.extend_from_slice(chunk);
        if let Err(e) = self.file.write_at(self.end, &record) {
            if is_full(&e) {
                // What it took is needed more elsewhere; the transfer begins anew later.
                self.discard();
            }
            return Err(writing(&self.path, &e));
        }
        self.end += record.len() as u64;
        self.offset += chunk.len() as u64;
        self.chunks += 1;
        self.crc = crc32c::crc32c_append(self.crc, chunk);
        Ok(())
    }
}

/// Reads the content of a published snapshot.
#[derive(Debug)]
pub struct SnapshotReader<D: Disk> {
    content: Content<D::File>,
    failed: bool,
}

impl<D: Disk> SnapshotSource for SnapshotReader<D> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, StoreFault> {
        if self.failed {
            return Err(snapshot(format!("{} did not verify", self.content.path)));
        }
        let chunk = self.content.next_or_end();
        self.failed = chunk.is_err();
        chunk
    }
}

impl<F: DiskFile> Content<F> {
    /// As [`Content::next`], but a reader that began in the middle cannot check the sum of all.
    fn next_or_end(&mut self) -> Result<Option<Bytes>, StoreFault> {
        match self.head()? {
            (0, _) if self.at + FOOTER as u64 == self.bytes => Ok(None),
            (0, _) => Err(self.bad("the content ends early")),
            _ => self.next(),
        }
    }
}

/// Verifies every published file, without changing anything.
pub(crate) fn verify_all<D: Disk>(
    disk: &D,
) -> io::Result<Vec<(String, Result<SnapshotMeta, String>)>> {
    let names = match disk.list(DIR) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names?,
    };
    let published = names.into_iter().filter(|name| name.ends_with(".snap"));
    let verify = |name: String| {
        let path = format!("{DIR}/{name}");
        let result = Content::open(disk, &path, Mode::Read).and_then(Content::verify);
        (path, result.map_err(|e| e.to_string()))
    };
    Ok(published.map(verify).collect())
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
