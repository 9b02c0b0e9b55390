//! The holdfast binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_net::cli::main()
}
