//! Fuzzes the frame decoder and the message codec. See [`holdfast_fuzz::frame`].
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::frame::check(data));
