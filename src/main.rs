//! The program `hooklog`: reads its command line, runs one command, and ends with the exit code that says how
//! it went. Never knows what a command does.

mod cli;
mod config;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
