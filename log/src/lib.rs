//! Durable storage of Holdfast: the segmented log, snapshot files, and the seam to the disk.
// `unsafe_code` is denied by the workspace; only the map module expects it, with a reason.

mod chain;
pub mod diff;
pub mod disk;
pub mod explore;
mod fault;
mod fuzz;
mod fuzz_parts;
mod holes;
pub mod home;
mod identity;
pub mod inspect;
mod judge;
mod listing;
mod log;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(unix)]
mod map;
pub mod mem_disk;
mod newest;
pub mod overlay;
mod places;
mod position;
mod reader;
mod rebuild;
mod record;
mod scan;
mod scrub;
mod segment;
mod side_index;
mod snapshot_files;
mod spare;
mod state;
mod sync;
mod verdict;
pub mod whole;
mod writer;

#[cfg(unix)]
pub use disk::real::mapped::{MappedDisk, MappedFile};
#[cfg(unix)]
pub use disk::real::{RealDisk, RealFile};
pub use disk::{Disk, DiskFile, Mode};
pub use fault::remedy;
pub use fuzz::{fuzz_recover, sample_files};
pub use fuzz_parts::{fuzz_dump, fuzz_header, fuzz_record, sample_parts};
pub use home::{Admit, Home, HomeError, HomeOptions};
pub use identity::{Identity, IdentityState};
pub use log::{Log, LogOptions};
pub use mem_disk::{MemDisk, MemFile};
pub use overlay::Overlay;
pub use reader::Reader;
pub use scrub::{Finding, Scrub, Scrubbed};
pub use segment::Owner;
pub use snapshot_files::{SnapshotFiles, SnapshotReader, SnapshotWriter};
pub use spare::Spare;
