//! The workers of the simulated queue: they do their jobs, fail them, die over them, forget to be heard of, come
//! back too late and say something all the same. What each believes of its lease is checked against the log.

use std::collections::BTreeMap;

use hooklog::engine::{Command, Input, Job, JobEnd, Rejection, Then};
use hooklog_projections::ids::{EndpointKey, LeaseId, Seq};
use hooklog_projections::lifecycle::State;
use hooklog_projections::time::{Millis, Timestamp};

use super::{Asked, ENDPOINTS, World, endpoint_key};

/// Between two signs of life of a worker that is well.
const SIGN: Millis = Millis(20_000);

/// The queue among the endpoints.
pub fn queue() -> EndpointKey {
    endpoint_key(ENDPOINTS + 1)
}

/// What becomes of a job in its worker's hands.
#[derive(Clone, Debug)]
enum Fate {
    Ends(JobEnd),
    /// Its worker is never heard of again.
    Dies,
    /// Its worker gives no sign of life and ends it all the same, sooner or later.
    Forgets(JobEnd),
}

/// A job in its worker's hands.
#[derive(Debug)]
struct Working {
    job: Job,
    fate: Fate,
    ends_at: Timestamp,
    sign_at: Timestamp,
    /// As the worker knows.
    until: Timestamp,
    /// The server that it had the job from has died since.
    orphaned: bool,
}

#[derive(Default)]
pub struct Workers {
    working: BTreeMap<LeaseId, Working>,
    /// Nobody dies or fails any more.
    pub well: bool,
    pub claimed: u64,
    pub refused: u64,
}

impl World {
    /// A worker asks for jobs, and may wait.
    pub fn claim(&mut self, wait: Millis) {
        let max = 1 + self.chance.below(4) as u32;
        self.ask(Command::Claim { queue: queue(), max, wait }, Asked::Claim);
    }

    /// Workers get what they asked for. Each job's record must be durable, and its worker the only one.
    pub fn given(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            self.workers.claimed += 1;
            self.recorded(job.delivery, job.endpoint, job.number);
            let another = self.workers.working.values().find(|working| {
                working.job.delivery == job.delivery && working.until > self.now && !working.orphaned
            });
            assert!(another.is_none(), "seed {}: {job:?} is in two hands: {another:?}", self.seed);
            if !self.workers.well && self.chance.below(20) == 0 {
                // Its worker has gone while it waited.
                self.input(Input::Unclaimed { lease: job.lease });
                continue;
            }
            self.heard.entry(job.delivery.seq).or_default().requests += 1;
            let (fate, took) = self.fate();
            let (until, ends_at, sign_at) = (job.until, self.now + took, self.now + SIGN);
            let working = Working { fate, ends_at, sign_at, until, orphaned: false, job };
            let before = self.workers.working.insert(working.job.lease, working);
            assert!(before.is_none(), "seed {}: a lease was given twice", self.seed);
        }
    }

    fn fate(&mut self) -> (Fate, Millis) {
        let took = Millis(5 + self.chance.below(90_000));
        if self.workers.well {
            return (Fate::Ends(JobEnd::Done), Millis(50));
        }
        let failed = |then| JobEnd::Failed { error: "it went wrong".into(), then };
        let end = match self.chance.below(10) {
            0..=4 => JobEnd::Done,
            5..=6 => failed(Then::Retry),
            7 => failed(Then::RetryAfter(Millis(self.chance.below(600_000)))),
            8 => failed(Then::Dead),
            _ => JobEnd::Untouched,
        };
        match self.chance.below(8) {
            0 => (Fate::Dies, took),
            1 => (Fate::Forgets(end), took),
            _ => (Fate::Ends(end), took),
        }
    }

    /// Workers give signs of life, and end what they have done.
    pub fn work(&mut self) {
        let now = self.now;
        let signs = self.workers.working.values_mut().filter_map(|working| {
            let gives =
                matches!(working.fate, Fate::Ends(_)) && working.sign_at <= now && working.ends_at > now;
            gives.then(|| {
                working.sign_at = now + SIGN;
                working.job.lease
            })
        });
        let signs: Vec<_> = signs.collect();
        for lease in signs {
            self.room();
            self.ask(Command::ExtendLease { lease }, Asked::Extend(lease));
        }
        let over: Vec<LeaseId> =
            self.workers.working.iter().filter(|(_, w)| w.ends_at <= now).map(|(lease, _)| *lease).collect();
        for lease in over {
            let Some(working) = self.workers.working.remove(&lease) else { continue };
            let seq = working.job.delivery.seq;
            let (Fate::Ends(end) | Fate::Forgets(end)) = working.fate else { continue };
            if end == JobEnd::Done {
                self.heard.entry(seq).or_default().accepted += 1;
            }
            self.room();
            let valid = working.until > now && !working.orphaned;
            let done = end == JobEnd::Done;
            self.ask(Command::EndLease { lease, end }, Asked::End { seq, done, valid });
        }
        self.turn();
    }

    /// A worker hears what became of its sign of life.
    pub fn extended(&mut self, lease: LeaseId, answer: Result<Timestamp, Rejection>) {
        let Some(working) = self.workers.working.get_mut(&lease) else { return };
        match answer {
            Ok(until) => working.until = until,
            Err(Rejection::LeaseOver) => {
                let valid = working.until > self.now && !working.orphaned;
                assert!(!valid, "seed {}: a lease was over before its time: {working:?}", self.seed);
                self.workers.refused += 1;
                // It goes on all the same, as a job that cannot be stopped does.
            }
            Err(other) => panic!("seed {}: {other}", self.seed),
        }
    }

    /// A worker hears what became of its job's end.
    pub fn ended(&mut self, seq: Seq, done: bool, valid: bool, answer: Result<(), Rejection>) {
        match answer {
            Ok(()) => {}
            Err(Rejection::LeaseOver) => {
                assert!(!valid, "seed {}: {seq} was ended in time and refused", self.seed);
                self.workers.refused += 1;
                if done {
                    // It was done once more than anybody knows of.
                    *self.interrupted.entry(seq).or_default() += 1;
                }
            }
            Err(other) => panic!("seed {}: {other}", self.seed),
        }
    }

    /// The server dies: nobody's lease holds any more, and who waited for an answer gets none.
    pub fn orphan(&mut self, asked: &BTreeMap<hooklog::engine::Ticket, Asked>) {
        for working in self.workers.working.values_mut() {
            working.orphaned = true;
        }
        for unanswered in asked.values() {
            if let Asked::End { seq, done: true, .. } = unanswered {
                *self.interrupted.entry(*seq).or_default() += 1;
            }
        }
    }

    /// Whoever has reason to believe in its lease is right.
    pub fn leases_hold(&self) {
        let view = self.engine.as_ref().expect("it runs").published().view();
        for working in self.workers.working.values().filter(|w| w.until > self.now && !w.orphaned) {
            let row = view.delivery(working.job.delivery).unwrap().expect("it is on disk");
            assert!(
                matches!(row.state, State::InFlight { .. }) && row.attempts == working.job.number,
                "seed {}: {working:?} is another's, or nobody's: {row:?}",
                self.seed
            );
        }
    }

    /// When a worker does something by itself, or a job is due that one could have.
    pub fn next_work(&self) -> Option<Timestamp> {
        let view = self.engine.as_ref().expect("it runs").published().view();
        // One that is due and was not given waits for others to end.
        let due = view.oldest_due(queue()).unwrap().map(|key| key.due_at.max(self.now + Millis(1_000)));
        let ends = self.workers.working.values().map(|working| working.ends_at).min();
        [due, ends].into_iter().flatten().min()
    }

    fn room(&mut self) {
        if self.engine.as_ref().is_some_and(|engine| !engine.has_room()) {
            self.turn();
        }
    }
}
