//! Placeholder, replaced before it lands.
#![forbid(unsafe_code)]
