//! Small checksummed files, and the few file operations that the plane is made of.
//!
//! A sealed file is `magic 8, version u16, length u32, bincode, crc32c u32` over all before it.

use super::PlaneError;
use holdfast_consensus::codec;
use holdfast_log::disk::{Disk, DiskFile, Mode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;

/// Version of every sealed file.
const VERSION: u16 = 1;
const HEAD: usize = 14;
/// Longest sealed file that is read, in bytes.
const READ_MAX: u64 = 33 << 20;

/// A value that has a file of its own.
pub(super) trait Sealed: Serialize + DeserializeOwned {
    /// First bytes of the file.
    const MAGIC: [u8; 8];
    /// Its name in errors.
    const WHAT: &'static str;

    /// The bytes of the file.
    fn seal(&self) -> Result<Vec<u8>, PlaneError> {
        let body = codec::encode(Self::WHAT, self).map_err(|e| PlaneError::Disk(e.to_string()))?;
        let length = u32::try_from(body.len()).map_err(|e| PlaneError::Disk(e.to_string()))?;
        let mut out = Vec::with_capacity(HEAD + body.len() + 4);
        out.extend_from_slice(&Self::MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&body);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        Ok(out)
    }

    /// Reads the bytes of a file; every one of them must be right.
    fn open(bytes: &[u8]) -> Result<Self, String> {
        let (rest, crc) = bytes.split_last_chunk::<4>().ok_or("it is cut short")?;
        let (head, body) = rest.split_first_chunk::<HEAD>().ok_or("it is cut short")?;
        if head[..8] != Self::MAGIC {
            return Err("it has another magic".to_owned());
        }
        if crc32c::crc32c(rest) != u32::from_le_bytes(*crc) {
            return Err("its checksum does not match".to_owned());
        }
        let version = u16::from_le_bytes([head[8], head[9]]);
        if version != VERSION {
            return Err(format!("it has version {version}, and this build knows {VERSION}"));
        }
        let length = u32::from_le_bytes([head[10], head[11], head[12], head[13]]);
        if body.len() as u64 != u64::from(length) {
            return Err("its length does not match".to_owned());
        }
        codec::decode(Self::WHAT, body).map_err(|e| e.to_string())
    }
}

/// Makes a durable file that must not exist; its name is durable once its directory is synced.
pub(super) fn write_new<D: Disk>(disk: &D, path: &str, bytes: &[u8]) -> io::Result<()> {
    let file = disk.open(path, Mode::CreateNew)?;
    file.write_at(0, bytes)?;
    file.sync()
}

/// The content of a file; `None` only if it does not exist (N15).
pub(super) fn read<D: Disk>(disk: &D, path: &str) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, Mode::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let length = file.len()?;
    let size = usize::try_from(length).ok().filter(|_| length <= READ_MAX).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{path} has {length} bytes"))
    })?;
    let mut bytes = vec![0; size];
    file.read_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// Names in a directory; none if the directory does not exist.
pub(super) fn names<D: Disk>(disk: &D, dir: &str) -> io::Result<Vec<String>> {
    match disk.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        result => result,
    }
}

/// True if something stands at the path.
pub(super) fn exists<D: Disk>(disk: &D, path: &str) -> io::Result<bool> {
    match disk.is_dir(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes everything in a directory, but not the directory.
pub(super) fn remove_all<D: Disk>(disk: &D, dir: &str) -> io::Result<()> {
    for name in disk.list(dir)? {
        let path = format!("{dir}/{name}");
        if disk.is_dir(&path)? {
            remove_all(disk, &path)?;
            disk.remove_dir(&path)?;
        } else {
            disk.unlink(&path)?;
        }
    }
    Ok(())
}
