//! The mark that the store's file was found damaged while it was in use.
//!
//! Guarantees: once damage was met, no later start trusts the same file again, even if its cheap
//! checks pass and even if the process died of the damage: it is set aside and rebuilt from
//! snapshot and log. The mark goes only with the file that it speaks of. Assumes: whoever meets
//! damage calls [`distrust`]; where the mark itself cannot be written, the next start has to find
//! the damage anew.

use crate::store::{STORE_DIR, disk_fault};
use holdfast_consensus::fault::StoreFault;
use holdfast_log::disk::{Disk, DiskFile, Mode};
use std::io;

/// The mark, beside the store. Its content is the reason, as text.
pub const DISTRUST_FILE: &str = "store/untrusted";
/// Longest reason that is kept, in bytes.
const REASON_MAX: usize = 1024;

/// Marks the store of a disk as damaged, durably. The first reason stays.
///
/// # Errors
/// What the disk answers.
pub fn distrust<D: Disk>(disk: &D, why: &str) -> io::Result<()> {
    let file = match disk.open(DISTRUST_FILE, Mode::CreateNew) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(e) => return Err(e),
    };
    // The entry of the directory first: the mark counts, whatever becomes of its text.
    disk.sync_dir(STORE_DIR)?;
    file.write_at(0, &why.as_bytes()[..why.len().min(REASON_MAX)])?;
    file.sync()
}

/// Why the store is not trusted any more, if it was marked.
pub(crate) fn distrusted<D: Disk>(disk: &D) -> Result<Option<String>, StoreFault> {
    let read = |e| disk_fault(&format!("read {DISTRUST_FILE}"), &e);
    let file = match disk.open(DISTRUST_FILE, Mode::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(read(e)),
    };
    let len = usize::try_from(file.len().map_err(read)?).unwrap_or(REASON_MAX).min(REASON_MAX);
    let mut text = vec![0; len];
    file.read_at(0, &mut text).map_err(read)?;
    Ok(Some(match text.is_empty() {
        true => "it was found damaged in an earlier run".to_owned(),
        false => format!("in an earlier run: {}", String::from_utf8_lossy(&text)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_log::MemDisk;
    use holdfast_log::mem_disk::LoseAll;

    #[test]
    fn a_mark_survives_a_power_cut_and_keeps_its_first_reason() {
        let disk = MemDisk::from_files([("store/meta.redb".to_owned(), vec![1])].into());
        assert_eq!(distrusted(&disk), Ok(None));
        distrust(&disk, "page 9 is none").unwrap();
        distrust(&disk, "another").unwrap();
        let disk = disk.crash(&mut LoseAll);
        let why = distrusted(&disk).unwrap().unwrap();
        assert!(why.ends_with("page 9 is none"), "{why}");
    }

    #[test]
    fn a_mark_counts_without_its_text_and_a_long_one_is_cut() {
        let disk = MemDisk::from_files([(DISTRUST_FILE.to_owned(), Vec::new())].into());
        assert!(distrusted(&disk).unwrap().is_some());
        let disk = MemDisk::from_files([("store/meta.redb".to_owned(), vec![1])].into());
        distrust(&disk, &"long ".repeat(1000)).unwrap();
        assert!(distrusted(&disk).unwrap().unwrap().len() < 1100);
    }
}
