//! Target `dump`: the tools that only look, over a log that anything may have happened to.
//!
//! The input is that of [`crate::recovery`]. Nothing may panic or be changed, a listing must come to
//! its end, and what the verification calls sound must be what a start can prove.

/// Feeds one input.
///
/// # Panics
/// If a promise of the tools that look at a log is broken.
pub fn check(data: &[u8]) {
    holdfast_log::fuzz_dump(data);
}

/// The same as for recovery, by file name.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    crate::recovery::seeds()
}
