//! Bulk replays at work: finds the next few, asks the engine to send them again, and waits as long as the rate says.
//!
//! What it has done is in the log; what it holds in memory is one stretch and when to go on. So a restart goes on
//! where the last process was, and begins nothing twice. Never knows who asked for a replay, nor what is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hooklog_projections::fact::Actor;
use hooklog_projections::ids::{AccountId, ReplayId};
use hooklog_projections::replay::Phase;
use hooklog_projections::time::Millis;

use crate::clock::Clock;
use crate::engine::command::BULK_STEP_MAX;
use crate::engine::handle::Handle;
use crate::engine::{Answer, BulkStep, BulkTake, Command, Rejection};
use crate::log;
use crate::views::bulk::{Found, Search};

/// Steps in a second, as long as that many are needed: what begins is spread over the second.
const STEPS_PER_SECOND: u32 = 5;
/// After a stretch in which nothing was found, or a step that was refused.
const PAUSE: Millis = Millis(5);
/// After a store that could not be read.
const PAUSE_AFTER_ERROR: Millis = Millis(5_000);

/// Works on every bulk replay that runs.
pub struct Runner {
    handle: Handle,
    clock: Arc<dyn Clock>,
}

/// What one step came to.
enum Step {
    /// So many were begun, at so many a second.
    Begun(u32, u32),
    /// Nothing was begun; there may be more.
    Nothing,
    /// It runs no more.
    Over,
    /// The engine takes no more.
    Stop,
}

impl Runner {
    /// One that asks this engine.
    pub fn new(handle: Handle, clock: Arc<dyn Clock>) -> Runner {
        Runner { handle, clock }
    }

    /// Runs until its task is dropped, or the engine takes no more.
    pub async fn run(self) {
        // When each goes on. At the start all do: they ran when the last process ended.
        let mut next: BTreeMap<(AccountId, ReplayId), Millis> = BTreeMap::new();
        loop {
            let now = self.clock.monotonic();
            match self.running().await {
                Ok(running) => {
                    next.retain(|key, _| running.contains(key));
                    for key in running {
                        next.entry(key).or_insert(now);
                    }
                }
                Err(error) => tracing::error!(%error, "the bulk replays could not be read"),
            }
            let Some((key, at)) = next.iter().min_by_key(|(_, at)| **at).map(|(key, at)| (*key, *at)) else {
                self.handle.health().bulk().await;
                continue;
            };
            let wait = Duration::from_millis(at.0.saturating_sub(now.0));
            // One that begins or is called off meanwhile is looked at at once.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.handle.health().bulk() => continue,
            }
            let pause = match self.step(key).await {
                Ok(Step::Begun(count, rate)) => pace(count, rate),
                Ok(Step::Nothing) => PAUSE,
                Ok(Step::Over) => {
                    next.remove(&key);
                    continue;
                }
                Ok(Step::Stop) => return,
                Err(error) => {
                    tracing::error!(%error, replay = %key.1, "a bulk replay could not go on");
                    PAUSE_AFTER_ERROR
                }
            };
            // What a step itself took counts as waited; what was slept too long does not come back as a burst.
            next.insert(key, Millis(at.0.max(now.0) + pause.0));
        }
    }

    async fn running(&self) -> Result<Vec<(AccountId, ReplayId)>, log::Error> {
        let handle = self.handle.clone();
        let read = tokio::task::spawn_blocking(move || handle.view().replays_running()).await;
        read.map_err(|_| log::Error::Misuse("reading the bulk replays failed".into()))?
    }

    async fn step(&self, (account, id): (AccountId, ReplayId)) -> Result<Step, log::Error> {
        let handle = self.handle.clone();
        let found = tokio::task::spawn_blocking(move || next_step(&handle, account, id)).await;
        let found = found.map_err(|_| log::Error::Misuse("looking for what to replay failed".into()))??;
        let Some((step, rate)) = found else { return Ok(Step::Over) };
        let last = step.last;
        Ok(match self.handle.ask(Actor::Hooklog, Command::StepBulkReplay(step)).await {
            Ok(_) if last => Step::Over,
            Ok(Answer::Stepped { replayed: 0, .. }) => Step::Nothing,
            Ok(Answer::Stepped { replayed, .. }) => Step::Begun(replayed, rate),
            Err(Rejection::Draining | Rejection::OutcomeUnknown) => Step::Stop,
            // It was called off meanwhile, or is elsewhere: the next look tells.
            Ok(_) | Err(_) => Step::Nothing,
        })
    }
}

/// What the engine is to be asked next, and the rate. `None`: it runs no more.
fn next_step(
    handle: &Handle,
    account: AccountId,
    id: ReplayId,
) -> Result<Option<(BulkStep, u32)>, log::Error> {
    let view = handle.view();
    let row = view.replay(account, id)?.filter(|row| row.state == Phase::Running);
    let Some(row) = row else { return Ok(None) };
    let search = Search {
        account,
        filter: row.filter,
        routing: row.routing,
        after: row.upto,
        before: row.started,
        ended_by: row.started_at,
    };
    let stretch = view.replayable(&search, step_max(row.rate_per_second))?;
    let take = stretch.found.into_iter().map(|found| match found {
        Found::Delivery(key, _) => BulkTake::Delivery(key.seq),
        Found::Event(event, _) => BulkTake::Event(event),
    });
    let step = BulkStep {
        account,
        id,
        after: row.upto,
        upto: stretch.upto,
        take: take.collect(),
        skipped: stretch.barred.len() as u32,
        last: stretch.last,
    };
    Ok(Some((step, row.rate_per_second)))
}

/// How many one step takes at most.
fn step_max(rate: u32) -> usize {
    (rate / STEPS_PER_SECOND).clamp(1, BULK_STEP_MAX as u32) as usize
}

/// How long to wait after so many.
fn pace(count: u32, rate: u32) -> Millis {
    Millis((u64::from(count) * 1000).div_ceil(u64::from(rate.max(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rate_is_gone_beyond() {
        for rate in [1, 2, 3, 7, 50, 99, 499, 500, 501, 10_000] {
            let step = step_max(rate) as u32;
            let second = u64::from(step) * 1000 / pace(step, rate).0;
            assert!(second <= u64::from(rate), "{step} every {:?} at {rate}", pace(step, rate));
            assert!(second * 10 >= u64::from(rate) * 9 || rate < 10, "{rate} is nearly reached: {second}");
        }
    }
}
