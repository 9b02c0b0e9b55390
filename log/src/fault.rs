//! How errors of the disk become faults of the log.

use holdfast_consensus::fault::LogFault;
use std::fmt::Display;
use std::io;

/// True if the error means that there is no space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A fault after which nothing of the operation counts.
pub(crate) fn poison(operation: &str, error: impl Display) -> LogFault {
    LogFault::Poisoned { detail: format!("{operation}: {error}") }
}

/// A fault while a new file is made: no acknowledged byte is concerned.
pub(crate) fn create_fault(operation: &str, error: &io::Error) -> LogFault {
    if is_full(error) {
        LogFault::Full { detail: format!("{operation}: {error}; free space on the log's disk") }
    } else {
        poison(operation, error)
    }
}
