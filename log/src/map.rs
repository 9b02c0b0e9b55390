//! The only unsafe code of the workspace: a read-only map of a segment, and views into it; and, to be
//! measured beside writes, stores through a map ([`Store`]).
//!
//! Rules that keep it sound, and that the callers of [`Map::view`] and [`Store::put`] keep:
//! - a view covers only bytes that were verified in this open and that are never written again
//!   (the writer only ever writes behind what it has published);
//! - no slice is ever built over the part that is still being written;
//! - a file is never shrunk or reused while a map of it lives (`RealFile::set_len` refuses, and only
//!   a file without views, `RealFile::is_shared`, is closed and then used again);
//! - the map lives as long as any view of it, since every view holds it.
#![expect(clippy::disallowed_types, reason = "a part of the real disk, the one user of std::fs")]

use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// A read-only map of the first bytes of a file. Reading a page that the device cannot deliver
/// kills the process; the positioned reads of the next start then name the damage (R17).
#[derive(Clone, Debug)]
pub(crate) struct Map(Arc<MmapRaw>);

impl Map {
    /// Maps the first `len` bytes, which must exist.
    pub(crate) fn new(file: &File, len: usize) -> io::Result<Self> {
        MmapOptions::new().len(len).map_raw_read_only(file).map(|map| Self(Arc::new(map)))
    }

    /// Length of the map in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no view of this map is held. Whoever is told so has seen the last of them end.
    pub(crate) fn is_alone(&mut self) -> bool {
        Arc::get_mut(&mut self.0).is_some()
    }

    /// A view that shares the map, or `None` if the range is not inside it.
    pub(crate) fn view(&self, offset: usize, len: usize) -> Option<Bytes> {
        let end = offset.checked_add(len)?;
        if end > self.0.len() {
            return None;
        }
        Some(Bytes::from_owner(View { map: Arc::clone(&self.0), offset, len }))
    }
}

/// A map of the first bytes of a file that is stored through. A store into a page that the device has
/// no space for, or cannot read, kills the process.
#[derive(Debug)]
pub(crate) struct Store(MmapRaw);

impl Store {
    /// Maps the first `len` bytes, which must exist.
    pub(crate) fn new(file: &File, len: usize) -> io::Result<Self> {
        MmapOptions::new().len(len).map_raw(file).map(Self)
    }

    /// Length of the map in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Stores bytes, which must lie inside.
    #[expect(unsafe_code, reason = "a map is reached through a raw pointer")]
    pub(crate) fn put(&mut self, offset: usize, data: &[u8]) {
        let end = offset.checked_add(data.len());
        assert!(end.is_some_and(|end| end <= self.0.len()), "a store lies inside its map");
        // SAFETY: the range lies inside the map, which is writable and lives as long as `self`; `data`
        // lies elsewhere: nobody is given a reference into this map, and views of other maps of the
        // file cover only what is never written again. Nobody else stores through this map meanwhile,
        // since `self` is borrowed for it alone, and the file is not cut while it is mapped.
        unsafe {
            std::ptr::copy_nonoverlapping(
                data.as_ptr(),
                self.0.as_mut_ptr().add(offset),
                data.len(),
            );
        }
    }

    /// Makes what was stored in this range durable (`msync`).
    pub(crate) fn flush(&self, range: std::ops::Range<usize>) -> io::Result<()> {
        self.0.flush_range(range.start, range.len())
    }
}

/// A range of a map. Invariant: `offset + len <= map.len()`.
struct View {
    map: Arc<MmapRaw>,
    offset: usize,
    len: usize,
}

impl AsRef<[u8]> for View {
    #[expect(unsafe_code, reason = "a map is reached through a raw pointer")]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `offset + len` lies inside the map (checked when the view was made), the map is
        // readable and lives as long as `self`, and u8 has no alignment and no invalid values. The
        // bytes do not change while the slice lives: they lie below the published length of their
        // segment, and the writer never writes there again; files are not shrunk while mapped.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(self.offset), self.len) }
    }
}
