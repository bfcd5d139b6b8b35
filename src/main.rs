//! The program `hooklog`: reads its command line, runs one command, and ends with the exit code that says how
//! it went. Never knows what a command does.

mod cli;
mod config;

use std::process::ExitCode;

/// Millions of small values cross threads: glibc's allocator took a quarter of the server's time
/// (`docs/decisions.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
