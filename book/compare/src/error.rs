//! Why a measurement could not be made.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a measurement could not be made. No row is printed then: half a comparison is none.
#[derive(Debug, Error)]
pub(crate) enum CompareError {
    /// A peer failed.
    #[error("{peer}: {operation}: {detail}")]
    Peer {
        /// Which one.
        peer: &'static str,
        /// What it was asked for.
        operation: &'static str,
        /// What it said.
        detail: String,
    },
    /// A file operation of our own failed.
    #[error("{operation} {path}: {source}")]
    Disk {
        /// What was tried.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A step in a process of its own ended badly; that process said why on standard error.
    #[error("the process that was to {step} ended with {status}")]
    Child {
        /// What it was started for.
        step: String,
        /// How it ended.
        status: String,
    },
    /// A setting that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The rows could not be written as JSON.
    #[error("write the rows as JSON: {0}")]
    Encode(String),
}

impl CompareError {
    /// A failure of a peer, in its own words.
    pub(crate) fn peer(peer: &'static str, operation: &'static str, detail: impl Display) -> Self {
        Self::Peer { peer, operation, detail: detail.to_string() }
    }

    /// A failure of the disk under our own hands.
    pub(crate) fn disk(operation: &'static str, path: &Path, source: &io::Error) -> Self {
        let source = io::Error::new(source.kind(), source.to_string());
        Self::Disk { operation, path: path.to_owned(), source }
    }

    /// Exit status: 2 for a wrong setting, 3 for everything around us.
    pub(crate) fn status(&self) -> u8 {
        if matches!(self, Self::Usage(_)) { 2 } else { 3 }
    }
}
