//! `hooklog man`: made from the command line as it is, so that the pages cannot differ from it.

use std::path::PathBuf;

use clap::CommandFactory;

use super::Cli;
use super::exit::{Exit, Failure};
use super::output::Output;

/// Writes manual pages.
#[derive(clap::Args)]
pub struct Man {
    /// Into this folder, which is made
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// Writes them.
pub fn man(args: &Man, out: &mut Output) -> Result<Exit, Failure> {
    std::fs::create_dir_all(&args.dir)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), &args.dir)?;
    let page = args.dir.join("hooklog.1");
    out.line(format!("man {}", page.display()))?;
    Ok(Exit::Fine)
}
