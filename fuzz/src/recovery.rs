//! Target `recovery`: the bytes of a disk that anything may have happened to.
//!
//! The first byte chooses. Even: the rest is the one segment of a log. Odd: the rest are blows, of
//! five bytes each, against the files of a sound log; so the fuzzer need not forge a checksum to
//! come past the first header. A log that opens must be readable, take another entry and be found
//! again; one that is refused must be left as it was, byte for byte.

/// Opens a log made of the input.
///
/// # Panics
/// If a promise of recovery is broken.
pub fn check(data: &[u8]) {
    holdfast_log::fuzz_recover(data);
}

/// Real logs to start from, and blows of each kind, by file name.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = vec![
        ("sound".to_owned(), vec![1]),
        ("bit".to_owned(), vec![1, 0, 4, 2, 0, 1]),
        ("sector".to_owned(), vec![1, 1, 0, 2, 1, 0xff]),
        ("cut".to_owned(), vec![1, 1, 0, 4, 2, 0]),
        ("moved".to_owned(), vec![1, 0, 0, 2, 3, 3]),
        ("several".to_owned(), vec![1, 0, 4, 2, 0, 1, 1, 0, 4, 2, 0]),
    ];
    for (n, (path, content)) in holdfast_log::sample_files().into_iter().enumerate() {
        // What lies behind the last record is zeros: the fuzzer need not carry them.
        let used = content.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        if path.starts_with("log/") && used > 0 {
            let mut seed = vec![0];
            seed.extend_from_slice(&content[..used.next_multiple_of(4096).min(content.len())]);
            seeds.push((format!("segment-{n}"), seed));
        }
    }
    seeds
}
