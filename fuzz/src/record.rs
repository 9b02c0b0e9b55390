//! Target `record`: one record of a segment.
//!
//! An odd first byte has the record's checksum put right first, so that the fuzzer comes past it. An
//! entry that decodes must survive being encoded and decoded again, and both of its decoders must
//! agree.

/// Feeds one input.
///
/// # Panics
/// If a promise of the decoding of one record is broken.
pub fn check(data: &[u8]) {
    holdfast_log::fuzz_record(data);
}

/// Real records of each kind, by file name.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let [records, _] = holdfast_log::sample_parts();
    records
}
