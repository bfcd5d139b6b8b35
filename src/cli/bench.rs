//! `hooklog bench`: stub.
use super::exit::{Exit, Failure};
use super::output::Output;
#[derive(clap::Args)]
pub struct Args {}
pub async fn run(_: Args, _out: &mut Output) -> Result<Exit, Failure> {
    Ok(Exit::Fine)
}
pub fn monotonic_micros() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}
