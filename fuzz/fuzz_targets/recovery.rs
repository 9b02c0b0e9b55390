//! Fuzzes the opening of a log. See [`holdfast_fuzz::recovery`].
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::recovery::check(data));
