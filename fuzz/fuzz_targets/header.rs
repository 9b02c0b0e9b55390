//! Fuzzes the headers of files. See [`holdfast_fuzz::header`].
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::header::check(data));
