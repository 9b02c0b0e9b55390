//! Durable storage of Holdfast: the segmented log, snapshot files, and the seam to the disk.
// `unsafe_code` is denied by the workspace; only the map module expects it, with a reason.

pub mod disk;
mod fault;
mod fuzz;
pub mod home;
mod identity;
pub mod inspect;
mod log;
#[cfg(unix)]
mod map;
pub mod mem_disk;
mod position;
mod reader;
mod rebuild;
mod record;
mod scan;
mod segment;
mod snapshot_files;
mod spare;
mod state;
mod writer;

#[cfg(unix)]
pub use disk::real::{RealDisk, RealFile};
pub use disk::{Disk, DiskFile, Mode};
pub use fuzz::{fuzz_recover, sample_files};
pub use home::{Home, HomeError, HomeOptions};
pub use identity::{Identity, IdentityState};
pub use log::{Log, LogOptions};
pub use mem_disk::{MemDisk, MemFile};
pub use reader::Reader;
pub use segment::Owner;
pub use snapshot_files::{SnapshotFiles, SnapshotReader, SnapshotWriter};
pub use spare::Spare;
