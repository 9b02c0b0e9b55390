//! Target `header`: what stands at the head of a file.
//!
//! The first byte chooses: the header of a segment (from 128 on with its checksum put right first),
//! an identity, or a whole snapshot file. What decodes must survive being encoded and decoded again.

/// Feeds one input.
///
/// # Panics
/// If a promise of the headers of files is broken.
pub fn check(data: &[u8]) {
    holdfast_log::fuzz_header(data);
}

/// Real headers, and the beginnings of the other files, by file name.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let [_, mut headers] = holdfast_log::sample_parts();
    let fixed: Vec<_> = (headers.iter())
        .map(|(name, bytes)| (format!("{name}-open"), [&[129], &bytes[1..]].concat()))
        .collect();
    headers.extend(fixed);
    headers.push(("identity".to_owned(), [&[1][..], b"HFIDENTY"].concat()));
    headers.push(("snapshot".to_owned(), [&[2][..], b"HFSNAPSH"].concat()));
    headers
}
