//! The life of a delivery: one total match on (state, fact). An illegal pair is an error that names both.
//!
//! Never decides what happens next (`hooklog::engine`), nor when (`hooklog::scheduler`).

use serde::{Deserialize, Serialize};

use crate::fact::{DeadReason, Ended, Fact, Failure};
use crate::ids::{EndpointId, EventId, ReplayId, Seq};
use crate::policy::{ErrorClass, Text};
use crate::time::{Millis, Timestamp};

/// One event on its way to one endpoint, as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// What is delivered.
    pub event: EventId,
    /// Its type.
    pub event_type: Text,
    /// Where the event was accepted; its body lies there.
    pub accepted: Seq,
    /// Where to.
    pub endpoint: EndpointId,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// Where it stands.
    pub state: State,
    /// From 1; each replay begins another.
    pub run: u32,
    /// POSTs so far, in all runs.
    pub attempts: u32,
    /// Tries used up in this run.
    pub tries: u32,
    /// Attempts of this run whose process died under them, or whose worker was not heard of any more.
    pub interruptions: u32,
    /// Overrides the schedule's number of tries.
    pub max_tries: Option<u32>,
    /// Its newest fact; each fact names the one before.
    pub latest: Seq,
    /// How the newest finished attempt ended.
    pub last_attempt: Option<LastAttempt>,
    /// Dead from then on, without another request.
    pub expire_at: Option<Timestamp>,
    /// The bulk replay that this run is part of.
    pub bulk: Option<ReplayId>,
}

/// Where a delivery stands. A batch never ends with one in `Deciding`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Waits for its due time, or behind its endpoint's limits.
    Pending {
        /// Not before.
        due_at: Timestamp,
    },
    /// A request is out, or may be.
    InFlight {
        /// The entry that recorded it.
        attempted: Seq,
        /// When.
        started_at: Timestamp,
    },
    /// An attempt failed; the same batch says what follows. Counted as in flight.
    Deciding {
        /// Whether the failed attempt used up a try.
        counted: bool,
    },
    /// It arrived.
    Delivered {
        /// When the answer was recorded.
        at: Timestamp,
    },
    /// It was given up.
    Dead {
        /// When.
        at: Timestamp,
        /// Why.
        reason: DeadReason,
    },
    /// It was called off.
    Cancelled {
        /// When.
        at: Timestamp,
    },
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAttempt {
    /// Its number.
    pub attempt: u32,
    /// When it ended.
    pub at: Timestamp,
    /// How long it took.
    pub took: Millis,
    /// The answer's status, if there was one.
    pub status: Option<u16>,
    /// The error, if there was no answer.
    pub error: Option<ErrorClass>,
}

/// The public statuses of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waits.
    Pending,
    /// A request is out.
    InFlight,
    /// Arrived.
    Delivered,
    /// Given up.
    Dead,
    /// Called off.
    Cancelled,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 5] =
        [Status::Pending, Status::InFlight, Status::Delivered, Status::Dead, Status::Cancelled];

    /// The word on pages, in the API, the CLI and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::InFlight => "in_flight",
            Status::Delivered => "delivered",
            Status::Dead => "dead",
            Status::Cancelled => "cancelled",
        }
    }
}

impl State {
    /// The public status.
    pub fn status(&self) -> Status {
        match self {
            State::Pending { .. } => Status::Pending,
            State::InFlight { .. } | State::Deciding { .. } => Status::InFlight,
            State::Delivered { .. } => Status::Delivered,
            State::Dead { .. } => Status::Dead,
            State::Cancelled { .. } => Status::Cancelled,
        }
    }

    /// The state's name, for errors.
    pub fn name(&self) -> &'static str {
        match self {
            State::Pending { .. } => "Pending",
            State::InFlight { .. } => "InFlight",
            State::Deciding { .. } => "Deciding",
            State::Delivered { .. } => "Delivered",
            State::Dead { .. } => "Dead",
            State::Cancelled { .. } => "Cancelled",
        }
    }
}

/// A fact that a delivery's state does not allow. The log is wrong, or the code is; never an input of a user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    /// The pair is not in the machine.
    #[error("entry {seq}: a delivery in state {state} cannot take the fact {fact}")]
    Pair {
        /// The state it was in.
        state: &'static str,
        /// The fact that came.
        fact: &'static str,
        /// Where.
        seq: Seq,
    },
    /// The pair is allowed, but the fact speaks of something else than what is so.
    #[error("entry {seq}: {fact} says {what} {said}, but it is {is}")]
    Mismatch {
        /// The fact that came.
        fact: &'static str,
        /// Where.
        seq: Seq,
        /// What it speaks of.
        what: &'static str,
        /// What it says.
        said: u64,
        /// What is so.
        is: u64,
    },
    /// A delivery that was never enqueued.
    #[error("entry {seq}: {fact} is of delivery {delivery}, which was never enqueued")]
    Unknown {
        /// The fact that came.
        fact: &'static str,
        /// Where.
        seq: Seq,
        /// The delivery it names.
        delivery: Seq,
    },
}

impl Delivery {
    /// The delivery that an `Enqueued` at `seq` begins. `None` for any other fact.
    pub fn begun(fact: &Fact, seq: Seq, at: Timestamp) -> Option<Delivery> {
        let Fact::Enqueued { key, event, accepted, event_type, due_at, max_tries, expire_at, bulk, late: _ } =
            fact
        else {
            return None;
        };
        Some(Delivery {
            event: event.clone(),
            event_type: event_type.clone(),
            accepted: *accepted,
            endpoint: key.endpoint,
            enqueued_at: at,
            state: State::Pending { due_at: *due_at },
            run: 1,
            attempts: 0,
            tries: 0,
            interruptions: 0,
            max_tries: *max_tries,
            latest: seq,
            last_attempt: None,
            expire_at: *expire_at,
            bulk: *bulk,
        })
    }

    /// What the delivery is after `fact`, which stands at `seq`.
    pub fn apply(&mut self, fact: &Fact, seq: Seq, at: Timestamp) -> Result<(), Illegal> {
        let expect = |what, said: u64, is: u64| {
            if said == is {
                Ok(())
            } else {
                Err(Illegal::Mismatch { fact: fact.name(), seq, what, said, is })
            }
        };
        if let Some(of) = fact.of() {
            expect("its previous fact", of.previous.0, self.latest.0)?;
        }
        self.state = match (&self.state, fact) {
            (
                State::Pending { due_at },
                Fact::Attempted { due_at: retired, attempt, try_number, run, .. },
            ) => {
                expect("a due time of", retired.0, due_at.0)?;
                expect("attempt", u64::from(*attempt), u64::from(self.attempts) + 1)?;
                expect("try", u64::from(*try_number), u64::from(self.tries) + 1)?;
                expect("run", u64::from(*run), u64::from(self.run))?;
                self.attempts = *attempt;
                State::InFlight { attempted: seq, started_at: at }
            }
            (State::InFlight { .. }, Fact::Delivered { attempt, response, .. }) => {
                expect("attempt", u64::from(*attempt), u64::from(self.attempts))?;
                self.tries += 1;
                self.last_attempt = Some(LastAttempt {
                    attempt: *attempt,
                    at,
                    took: response.took,
                    status: response.code(),
                    error: None,
                });
                State::Delivered { at }
            }
            (State::InFlight { .. }, Fact::Failed { attempt, failure, counted, .. }) => {
                expect("attempt", u64::from(*attempt), u64::from(self.attempts))?;
                if *counted {
                    self.tries += 1;
                }
                let (took, status, error) = match failure {
                    Failure::Answered(response) => (response.took, Some(response.status), None),
                    Failure::Error { class, took, .. } => (*took, None, Some(*class)),
                };
                if matches!(error, Some(ErrorClass::Interrupted | ErrorClass::LeaseExpired)) {
                    self.interruptions += 1;
                }
                self.last_attempt = Some(LastAttempt { attempt: *attempt, at, took, status, error });
                State::Deciding { counted: *counted }
            }
            (State::Deciding { .. }, Fact::Rescheduled { due_at, was_due_at: None, .. }) => {
                State::Pending { due_at: *due_at }
            }
            (State::Pending { due_at: was }, Fact::Rescheduled { due_at, was_due_at: Some(retired), .. }) => {
                expect("a due time of", retired.0, was.0)?;
                State::Pending { due_at: *due_at }
            }
            (State::Deciding { .. }, Fact::Dead { reason, was_due_at: None, .. }) => {
                State::Dead { at, reason: reason.clone() }
            }
            (State::Pending { due_at: was }, Fact::Dead { reason, was_due_at: Some(retired), .. }) => {
                expect("a due time of", retired.0, was.0)?;
                State::Dead { at, reason: reason.clone() }
            }
            (State::Dead { .. }, Fact::Replayed { was: Ended::Dead, run, due_at, bulk, .. })
            | (State::Delivered { .. }, Fact::Replayed { was: Ended::Delivered, run, due_at, bulk, .. }) => {
                expect("run", u64::from(*run), u64::from(self.run) + 1)?;
                self.run = *run;
                self.tries = 0;
                self.interruptions = 0;
                // A deadline was for the first run; who replays wants it sent all the same.
                self.expire_at = None;
                self.bulk = *bulk;
                State::Pending { due_at: *due_at }
            }
            (State::Pending { due_at: was }, Fact::Cancelled { due_at: retired, .. }) => {
                expect("a due time of", retired.0, was.0)?;
                State::Cancelled { at }
            }
            (
                state @ (State::Pending { .. }
                | State::InFlight { .. }
                | State::Deciding { .. }
                | State::Delivered { .. }
                | State::Dead { .. }
                | State::Cancelled { .. }),
                fact,
            ) => return Err(Illegal::Pair { state: state.name(), fact: fact.name(), seq }),
        };
        self.latest = seq;
        Ok(())
    }
}
