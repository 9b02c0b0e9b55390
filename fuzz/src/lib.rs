//! What the fuzz targets of Holdfast check, as plain functions: the targets feed them what the
//! fuzzer invents, and the tests of this crate feed them the committed corpora on every run.
#![forbid(unsafe_code)]

pub mod dump;
pub mod frame;
pub mod header;
pub mod record;
pub mod recovery;
