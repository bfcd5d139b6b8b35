//! `hooklog completion` and `hooklog man`: made from the command line as it is, so that they cannot differ from it.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use super::exit::{Exit, Failure};
use super::output::Output;

/// Prints a shell's completion.
#[derive(clap::Args)]
pub struct Completion {
    /// bash, zsh, fish, elvish or powershell
    #[arg(hide_possible_values = true)]
    shell: Shell,
}

/// Writes manual pages.
#[derive(clap::Args)]
pub struct Man {
    /// Into this folder, which is made
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// Prints it.
pub fn completion(args: &Completion, out: &mut Output) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "hooklog", &mut text);
    out.raw(&text)?;
    out.end()?;
    Ok(Exit::Fine)
}

/// Writes them.
pub fn man(args: &Man, out: &mut Output) -> Result<Exit, Failure> {
    std::fs::create_dir_all(&args.dir)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), &args.dir)?;
    let page = args.dir.join("hooklog.1");
    out.line(format!("man {}", page.display()))?;
    Ok(Exit::Fine)
}
