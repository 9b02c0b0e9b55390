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

/// What to do about a file or directory of the log that cannot be used, by the kind of the error.
#[must_use]
pub const fn remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "run as the user that the node runs as, or give that one the data directory \
             and all that is in it back (owner, and mode u+rwX, on a file system mounted for writing)"
        }
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
            "what stands there is not the node's: move it out of the data directory"
        }
        _ => "look after the disk (the system's log may say more), then start again",
    }
}

/// A read failed before anything was changed.
pub(crate) fn unread(operation: &str, error: &io::Error) -> LogFault {
    let cannot = match error.kind() {
        io::ErrorKind::PermissionDenied => ": it cannot be read by this user",
        _ => "",
    };
    let remedy = remedy(error.kind());
    let detail = format!("{operation}: {error}{cannot}; nothing was changed; {remedy}");
    LogFault::Unopened { detail }
}

/// A fault of a log that is being opened by a new process: there is nothing to reopen yet.
pub(crate) fn at_start(fault: LogFault) -> LogFault {
    match fault {
        LogFault::Poisoned { detail } => LogFault::Unopened {
            detail: format!(
                "{detail}; look after that file and the disk that it is on, then start again"
            ),
        },
        fault => fault,
    }
}

/// A fault of a log that the same process opens again.
pub(crate) fn at_reopen(fault: LogFault) -> LogFault {
    match fault {
        LogFault::Unopened { detail } => LogFault::Poisoned { detail },
        fault => fault,
    }
}

/// A fault while a new file is made: no acknowledged byte is concerned.
pub(crate) fn create_fault(operation: &str, error: &io::Error) -> LogFault {
    if is_full(error) {
        LogFault::Full { detail: format!("{operation}: {error}; free space on the log's disk") }
    } else {
        poison(operation, error)
    }
}
