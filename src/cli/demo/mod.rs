//! `hooklog demo`: the real server on a temporary store, a scripted receiver that checks every signature, and
//! five scenes read from the API's timeline. The clock is real; waits are divided by a number that is shown.
//!
//! Writes nothing outside its folder; reaches nothing but loopback.

mod hooks;
mod scenes;
mod stage;

use std::io::IsTerminal;
use std::path::PathBuf;

use self::stage::Stage;
use super::exit::{Exit, Failure};
use super::output::Output;

/// Shows what Hooklog does.
#[derive(clap::Args)]
pub struct Args {
    /// End after the last scene instead of staying up; so it does without a terminal
    #[arg(long)]
    once: bool,
    /// Waits are divided by this
    #[arg(long, value_name = "N", default_value_t = 7500, value_parser = clap::value_parser!(u32).range(1..))]
    wait_divisor: u32,
    /// Keep the store in this folder instead of a temporary one
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Plays all scenes.
pub async fn run(args: Args, out: &mut Output) -> Result<Exit, Failure> {
    let paint = out.paint;
    let heading = paint.bold("hooklog demo");
    out.line(format!(
        "{heading}  the real server, a temporary store, every wait divided by {}",
        args.wait_divisor
    ))?;
    let interrupted = tokio::signal::ctrl_c();
    tokio::select! {
        exit = play(args, out) => exit,
        // Dropping the play removes its folder and ends its processes.
        _ = interrupted => Ok(Exit::Interrupted),
    }
}

async fn play(args: Args, out: &mut Output) -> Result<Exit, Failure> {
    let temporary = tempfile::tempdir()?;
    let folder = args.keep.clone().unwrap_or_else(|| temporary.path().join("store"));
    let mut stage = Stage::set(folder, temporary.path().join("crash"), args.wait_divisor).await?;
    let (passed, failed) = scenes::all(&mut stage, out).await?;
    let paint = out.paint;
    let sum = format!("{passed} passed, {failed} failed");
    out.line("")?;
    out.line(if failed == 0 { paint.good(&sum) } else { paint.bad(&sum) })?;
    let exit = if failed == 0 { Exit::Fine } else { Exit::No };
    if !args.once && std::io::stdin().is_terminal() {
        out.line("")?;
        out.line(format!("The server stays up at http://{} until Ctrl-C. Try", stage.address))?;
        out.line(format!("  curl http://{}/v1/explain/{}", stage.address, stage.example))?;
        out.line(format!("  {} list --url http://{}", program(), stage.address))?;
        std::future::pending::<()>().await;
    }
    stage.strike().await?;
    Ok(exit)
}

/// As it was called.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "hooklog".into())
}
