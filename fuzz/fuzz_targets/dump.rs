//! Fuzzes the tools that look at a log. See [`holdfast_fuzz::dump`].
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::dump::check(data));
