//! Standard error: where a node and its commands tell people what happens.
//!
//! Nothing that a node does may depend on somebody reading it. The pipe to whoever collects the
//! lines breaks, and the disk that they go to fills up (often the very one that the node's data are
//! on): then a line is lost, and counted. The macros of the standard library would panic instead.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

static LOST: AtomicU64 = AtomicU64::new(0);

/// How many lines could not be written since the process began.
#[must_use]
pub fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Says a line on standard error, under the program's name.
pub fn say(what: impl fmt::Display) {
    tell(&mut io::stderr().lock(), what);
}

fn tell(to: &mut impl Write, what: impl fmt::Display) {
    if writeln!(to, "holdfast: {what}").is_err() {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where log lines go: to standard error if it takes them. Never fails.
#[derive(Debug)]
pub struct Lines<W = io::Stderr>(W);

impl Lines {
    /// To standard error.
    #[must_use]
    pub fn new() -> Self {
        Self(io::stderr())
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Write> Write for Lines<W> {
    /// One call is one line: so they are formatted.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.write_all(line).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Standard error has no buffer.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full disk.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn a_line_that_nobody_takes_is_counted_and_ends_nothing() {
        let before = lost_lines();
        tell(&mut Full, "a line");
        let mut lines = Lines(Full);
        lines.write_all(b"another\n").expect("never fails");
        lines.flush().expect("never fails");
        assert_eq!(lost_lines() - before, 2);
        let mut taken = Vec::new();
        tell(&mut taken, "a third");
        Lines(&mut taken).write_all(b"a fourth\n").expect("never fails");
        assert_eq!(taken, b"holdfast: a third\na fourth\n");
        assert_eq!(lost_lines() - before, 2);
    }
}
