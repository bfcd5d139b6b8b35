//! The one answer to "did we send it?": yes, not yet or no, why, and what to do next; from the log alone.
//!
//! Pure. The same sentence stands on pages, in the API and in `hooklog explain`. Names hosts, never a URL's
//! path or query (they can be secrets), and never knows how its words are shown.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `delivery`, `event` | the sentence, the reasons and the next step of each |
//! | `words` | moments, spans and actors as words |

mod delivery;
mod event;
#[cfg(test)]
mod tests;
mod words;

use hooklog_projections::account::{Account, Endpoint};
use hooklog_projections::fact::Entry;
use hooklog_projections::lifecycle::{Delivery, State};
use hooklog_projections::telling::Word;
use hooklog_projections::time::Timestamp;
use serde::Serialize;

use delivery::Told;
pub use event::{explain_event, not_yet_taken_in};
pub use words::{actor, is_invisible, moment, moment_near, plain, span};

/// An answer for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Explanation {
    /// One or two sentences that begin with `Yes.`, `Not yet.` or `No.`.
    pub sentence: String,
    /// What else bears on it, most important first.
    pub reasons: Vec<String>,
    /// What to do, or that there is nothing to do.
    pub next_step: String,
}

impl Explanation {
    /// The same, said of the past: what helped then may be out of place now.
    fn of_the_past(mut self, moment: Timestamp) -> Explanation {
        let moment = words::moment_near(moment, Timestamp(0));
        self.reasons.insert(0, format!("So it stood at {moment}; what came later is left out."));
        self.next_step = "Ask without a moment for how it stands now.".into();
        self
    }
}

/// An open circuit breaker, as it bears on one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenBreaker {
    /// Failures since the last success that say that the endpoint is down.
    pub failures: u32,
    /// No try of the delivery starts before.
    pub until: Timestamp,
}

/// All that an answer about one delivery is made from.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// As it is at the moment of the question.
    pub delivery: &'a Delivery,
    /// Its facts, oldest first, begun with its event's `Accepted`: a view's story.
    pub story: &'a [Entry],
    /// Where it goes, as it is then.
    pub endpoint: &'a Endpoint,
    /// Whose it is, as it is then.
    pub account: &'a Account,
    /// Until when the endpoint asked to be left alone; past if it did not.
    pub gate_until: Timestamp,
    /// The endpoint's circuit breaker, if it is open.
    pub breaker: Option<OpenBreaker>,
    /// Deliveries that wait for the endpoint, where it is known.
    pub waiting: Option<u64>,
    /// Tries of a run, with the policies that hold then.
    pub tries: u32,
    /// How far its owner was told, if it is dead.
    pub word: &'a Word,
    /// The moment of the question.
    pub now: Timestamp,
    /// That moment is in the past, and everything here is as it was then.
    pub as_of: bool,
}

const NOTHING: &str = "Nothing to do.";

/// The answer about one delivery.
pub fn explain(known: &Known<'_>) -> Explanation {
    let told = Told::of(known);
    let mut answer = match &known.delivery.state {
        State::Delivered { at } => told.delivered(*at),
        State::Pending { due_at } => told.pending(*due_at),
        State::InFlight { started_at, .. } => told.in_flight(*started_at),
        // Within a batch only; a reader never sees it.
        State::Deciding { .. } => told.in_flight(told.attempted_at().unwrap_or(known.now)),
        State::Dead { at, reason } => told.dead(*at, reason),
        State::Cancelled { at } => told.cancelled(*at),
    };
    answer = told.after_an_arrival(answer);
    answer.reasons.extend(told.circumstances());
    if known.as_of { answer.of_the_past(known.now) } else { answer }
}
