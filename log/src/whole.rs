//! Small files that are replaced whole: a crash leaves the old content or the new one.

use crate::disk::{Disk, DiskFile, Mode};
use std::io;

/// The content of a file; `None` if there is none.
///
/// # Errors
/// `InvalidData` if it has more than `most` bytes, of which none are read then; or what the system
/// says.
pub fn read<D: Disk>(disk: &D, path: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, Mode::Read) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let too_long = |len: u64| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it has {len} bytes, {most} at most fit"),
        )
    };
    let len = file.len()?;
    let fits = usize::try_from(len).ok().filter(|_| len <= most);
    let mut bytes = vec![0; fits.ok_or_else(|| too_long(len))?];
    file.read_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// Replaces the file `path` of the root directory; durable when it returns. The content is written
/// and synced under the name `path.tmp` before it takes the place of the old one, and a leftover of
/// that name is removed first.
///
/// # Errors
/// What the system says. The old content stands, unless only the sync of the directory failed: then
/// either may be there after a crash.
pub fn replace<D: Disk>(disk: &D, path: &str, bytes: &[u8]) -> io::Result<()> {
    let tmp = format!("{path}.tmp");
    match disk.unlink(&tmp) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = disk.open(&tmp, Mode::CreateNew)?;
    file.write_at(0, bytes)?;
    file.sync()?;
    disk.rename(&tmp, path)?;
    disk.sync_dir("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDisk;

    #[test]
    fn a_crash_after_any_operation_leaves_the_old_content_or_the_new() {
        let mut seen = std::collections::BTreeSet::new();
        for left in 0..12 {
            let disk = MemDisk::new();
            replace(&disk, "small", b"old").unwrap();
            disk.set_fuse(Some(left));
            let done = replace(&disk, "small", b"new");
            let after = disk.synced(&[""]);
            let found = read(&after, "small", 8).unwrap().unwrap();
            assert!(found == b"old" || found == b"new", "after {left} operations: {found:?}");
            assert!(done.is_err() || found == b"new", "after {left} operations: it was done");
            // Whatever is left over is no obstacle to the next.
            replace(&after, "small", b"next").unwrap();
            assert_eq!(read(&after, "small", 8).unwrap().unwrap(), b"next");
            seen.insert(found);
        }
        assert_eq!(seen.len(), 2, "both outcomes occur");
    }

    #[test]
    fn what_is_too_long_is_not_read_and_what_is_not_there_is_none() {
        let disk = MemDisk::new();
        assert_eq!(read(&disk, "small", 3).unwrap(), None);
        replace(&disk, "small", b"four").unwrap();
        assert_eq!(read(&disk, "small", 3).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(&disk, "small", 4).unwrap().unwrap(), b"four");
    }
}
