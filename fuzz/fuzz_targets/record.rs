//! Fuzzes the decoding of one record. See [`holdfast_fuzz::record`].
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::record::check(data));
