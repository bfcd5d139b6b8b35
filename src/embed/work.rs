//! Workers in an embedding program: jobs claimed as long as there is room, each run as a task of its own, its lease
//! renewed while it runs, and its end recorded. Never knows why a job fails; the closure says it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use hooklog_projections::ids::{DeliveryId, EventId, LeaseId};
use hooklog_projections::time::{Millis, Timestamp};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Error, Queue, Shared};
use crate::api::queues::{cut, payload};
use crate::engine::leases::{CLAIM_MAX, CLAIM_WAIT_MAX, LEASE};
use crate::engine::{self, Answer, Command, JobEnd, Rejection, Then};
use crate::scheduler::retry::WAIT_MAX;

/// A lease is renewed this often: twice in vain, and it still holds.
const RENEW: Duration = Duration::from_millis(LEASE.0 / 3);

/// How many jobs run at once, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency(pub usize);

/// A job in the hands of its worker.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its id: the producer's own, or `evt_…`. The same at every attempt: what it touches can be told apart by it.
    pub id: EventId,
    /// Its delivery, `dlv_…`.
    pub delivery: DeliveryId,
    /// Its type; `job` unless the producer said more.
    pub event_type: String,
    /// Which try of this run it is, from 1.
    pub tried: u32,
    /// Counts the attempts in all runs, from 1.
    pub attempt: u32,
    /// From 1; each retry of a dead one begins another.
    pub run: u32,
    /// When it was put in.
    pub enqueued_at: Timestamp,
    /// As the producer put it in, byte for byte.
    pub payload: Bytes,
}

impl Job {
    /// Its payload as a value.
    ///
    /// # Errors
    /// It is no such JSON: [`permanent`], as a rule, for a broken payload does not mend itself.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.payload)
    }
}

/// Why a job failed, and what follows. Any error becomes one by `?`: the job waits out its backoff. [`permanent`]
/// and [`retry_after`] say more; all count toward the tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError {
    text: String,
    then: Then,
}

impl<E: std::error::Error> From<E> for JobError {
    fn from(error: E) -> JobError {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            // Many texts hold their cause's already.
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        JobError { text, then: Then::Retry }
    }
}

/// A failure in words: the job waits out its backoff before the next try.
pub fn failed(why: impl std::fmt::Display) -> JobError {
    JobError { text: why.to_string(), then: Then::Retry }
}

/// A failure that no other try can mend: the job is dead at once, and stays until somebody retries it.
pub fn permanent(why: impl std::fmt::Display) -> JobError {
    JobError { text: why.to_string(), then: Then::Dead }
}

/// A failure with the moment of the next try: exactly so much later (30 days at most), whatever the schedule says.
pub fn retry_after(why: impl std::fmt::Display, wait: Duration) -> JobError {
    let wait = Millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)).min(WAIT_MAX);
    JobError { text: why.to_string(), then: Then::RetryAfter(wait) }
}

/// Workers of a queue. They go on when this is dropped, until [`stop`](Self::stop) or
/// [`Hooklog::close`](super::Hooklog::close).
pub struct Workers {
    stop: CancellationToken,
    jobs: TaskTracker,
}

impl Workers {
    /// Takes no more jobs, and waits until those under way have ended.
    pub async fn stop(self) {
        self.stop.cancel();
        self.jobs.wait().await;
    }

    /// Waits until the workers have stopped: somebody else closed the store, or its engine ended.
    pub async fn ended(&self) {
        self.jobs.wait().await;
    }
}

impl Queue {
    /// Works on the queue's jobs, so many at once. The closure gets each, and says what became of it: `Ok` is done,
    /// an error is the end of this attempt. While it runs its lease is renewed every 20 s; if the process dies, the
    /// job is another's at the latest 60 s after the last renewal. So a job can run twice: its id says so.
    ///
    /// A closure that panics fails its attempt.
    pub fn work<F, R>(&self, concurrency: Concurrency, run: F) -> Workers
    where
        F: Fn(Job) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), JobError>> + Send + 'static,
    {
        let (stop, jobs) = (self.shared.stop.child_token(), TaskTracker::new());
        let claims = Claims {
            queue: self.clone(),
            room: Arc::new(Semaphore::new(concurrency.0.max(1))),
            run: Arc::new(run),
            stop: stop.clone(),
            jobs: jobs.clone(),
        };
        // The store waits for it at its end; so does whoever stops these workers alone.
        let claiming = self.shared.workers.track_future(claims.go_on());
        jobs.spawn(claiming);
        jobs.close();
        Workers { stop, jobs }
    }
}

struct Claims<F> {
    queue: Queue,
    room: Arc<Semaphore>,
    run: Arc<F>,
    stop: CancellationToken,
    jobs: TaskTracker,
}

impl<F, R> Claims<F>
where
    F: Fn(Job) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), JobError>> + Send + 'static,
{
    async fn go_on(self) {
        loop {
            let first = tokio::select! {
                permit = self.room.clone().acquire_owned() => permit,
                () = self.stop.cancelled() => return,
            };
            let Ok(first) = first else { return };
            let mut permits = vec![first];
            while permits.len() < CLAIM_MAX as usize
                && let Ok(permit) = self.room.clone().try_acquire_owned()
            {
                permits.push(permit);
            }
            let claim =
                Command::Claim { queue: self.queue.key, max: permits.len() as u32, wait: CLAIM_WAIT_MAX };
            // Dropped half-way, the engine finds nobody to give the jobs to, and takes them back.
            let answer = tokio::select! {
                answer = self.queue.shared.ask(claim) => answer,
                () = self.stop.cancelled() => return,
            };
            match answer {
                Ok(Answer::Claimed { jobs }) => {
                    for (job, permit) in jobs.into_iter().zip(permits) {
                        self.start(job, permit);
                    }
                }
                Ok(other) => {
                    tracing::error!(?other, "the engine gave an answer of another kind");
                    return;
                }
                Err(Error::Closed | Error::Rejected(Rejection::Draining | Rejection::OutcomeUnknown)) => {
                    return;
                }
                Err(error) => {
                    tracing::error!(queue = self.queue.name(), %error, "no jobs can be claimed");
                    return;
                }
            }
        }
    }

    fn start(&self, job: engine::Job, permit: OwnedSemaphorePermit) {
        let (shared, run) = (self.queue.shared.clone(), self.run.clone());
        let task = async move {
            let _permit = permit;
            let lease = job.lease;
            let end = match read(&shared, job).await {
                Ok(job) => {
                    let running = AssertUnwindSafe(async { run(job).await }).catch_unwind();
                    let ended = renewing(&shared, lease, running).await;
                    ended.unwrap_or_else(|_| Err(failed("the worker panicked")))
                }
                Err(error) => Err(failed(format!("the payload cannot be read: {error}"))),
            };
            let end = match end {
                Ok(()) => JobEnd::Done,
                Err(JobError { text, then }) => JobEnd::Failed { error: cut(&text).into(), then },
            };
            if let Err(error) = shared.ask(Command::EndLease { lease, end }).await {
                tracing::warn!(%lease, %error, "what became of a job could not be recorded: it will run again");
            }
        };
        self.jobs.spawn(self.queue.shared.workers.track_future(task));
    }
}

/// Runs a job, and says every so often that it still runs.
async fn renewing<T>(shared: &Shared, lease: LeaseId, running: impl Future<Output = T>) -> T {
    let mut running = std::pin::pin!(running);
    loop {
        tokio::select! {
            ended = &mut running => return ended,
            () = tokio::time::sleep(RENEW) => {}
        }
        // Nothing is done about a lease that is over: the job may be half done, and only it knows how to stop.
        if let Err(error) = shared.ask(Command::ExtendLease { lease }).await {
            tracing::warn!(%lease, %error, "the lease of a job that runs could not be renewed");
        }
    }
}

/// A job with its payload, read on a thread that may block.
async fn read(shared: &Arc<Shared>, job: engine::Job) -> Result<Job, Error> {
    let live = shared.live()?;
    let reading = tokio::task::spawn_blocking(move || {
        let view = live.handle.view();
        let payload = payload(&view, &job)?.ok_or_else(|| Error::Failed("it is missing".into()))?;
        Ok(Job {
            delivery: live.handle.published().ids().delivery_id(job.delivery.seq, job.enqueued_at),
            id: job.event,
            event_type: job.event_type.into(),
            tried: job.try_number,
            attempt: job.number,
            run: job.run,
            enqueued_at: job.enqueued_at,
            payload,
        })
    });
    reading.await.map_err(|error| Error::Failed(error.to_string()))?
}
