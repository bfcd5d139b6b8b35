//! `hooklog demo`: stub.
use super::exit::{Exit, Failure};
use super::output::Output;
#[derive(clap::Args)]
pub struct Args {}
pub async fn run(_: Args, _out: &mut Output) -> Result<Exit, Failure> {
    Ok(Exit::Fine)
}
