//! Durable storage of Holdfast: the segmented log, snapshot files, and the seam to the disk.
// `unsafe_code` is denied by the workspace; only the map module expects it, with a reason.

pub mod disk;
