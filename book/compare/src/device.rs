//! Bytes that were written to the block device under a directory.
//!
//! From `/sys/dev/block/*/stat`: sectors of 512 bytes that the device completed, whoever wrote them.
//! `write_bytes` of `/proc/self/io` would count this process alone, but it counts a whole folio of the
//! page cache for each block that is dirtied in it, sixteen times what reaches the device. So keep the
//! machine quiet; the median over many short turns leaves out most of what others write.

use crate::error::CompareError;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Unit of the counters, whatever the device's own sector is.
const SECTOR: u64 = 512;
/// Place of "sectors written" in the line.
const WRITTEN: usize = 6;

/// The counters of the device that holds a directory.
#[derive(Debug)]
pub(crate) struct Device {
    stat: Option<PathBuf>,
}

impl Device {
    /// The device under `dir`. A file system without one (in memory, over a network) has no
    /// counters, and nothing is reported of it.
    ///
    /// # Errors
    /// [`CompareError::Disk`] if the directory cannot be looked at.
    pub(crate) fn under(dir: &Path) -> Result<Self, CompareError> {
        let meta = std::fs::metadata(dir).map_err(|e| CompareError::disk("look at", dir, &e))?;
        let (major, minor) = numbers(meta.dev());
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        Ok(Self { stat: stat.exists().then_some(stat) })
    }

    /// Bytes written to it since the system started; `None` if it has no counters.
    ///
    /// # Errors
    /// [`CompareError::Disk`] if they cannot be read.
    pub(crate) fn written(&self) -> Result<Option<u64>, CompareError> {
        let Some(path) = &self.stat else { return Ok(None) };
        let text =
            std::fs::read_to_string(path).map_err(|e| CompareError::disk("read", path, &e))?;
        Ok(parse(&text))
    }
}

/// Major and minor number in the system's encoding of a device number.
const fn numbers(dev: u64) -> (u64, u64) {
    let major = (dev >> 8 & 0xfff) | (dev >> 32 & 0xffff_f000);
    let minor = (dev & 0xff) | (dev >> 12 & 0xffff_ff00);
    (major, minor)
}

fn parse(text: &str) -> Option<u64> {
    let sectors: u64 = text.split_whitespace().nth(WRITTEN)?.parse().ok()?;
    Some(sectors * SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_counter_is_read() {
        assert_eq!(parse("  1  2  3  4  5  6  7  8  9\n"), Some(7 * 512));
        assert_eq!(parse("1 2 3\n"), None);
    }

    #[test]
    fn device_numbers_are_taken_apart() {
        assert_eq!(numbers(0xfe00), (254, 0));
        assert_eq!(numbers(0x0011_032c), (259, 300));
        assert_eq!(numbers(0x1000_1110_0070), (4096, 70_000));
    }
}
