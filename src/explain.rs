//! The one answer to "did we send it?": yes, not yet or no, why, and what to do next; from the log alone.
//!
//! Pure. The same sentence stands on pages, in the API and in `hooklog explain`. Names hosts, never a URL's
//! path or query (they can be secrets), and never knows how its words are shown.

use hooklog_projections::account::{Account, Endpoint, Hold};
use hooklog_projections::fact::{Actor, DeadReason, DisabledReason, Entry, Fact, Failure};
use hooklog_projections::lane::Lane;
use hooklog_projections::lifecycle::{Delivery, State, Status};
use hooklog_projections::policy::{ErrorClass, Rollout};
use hooklog_projections::time::{Millis, Timestamp};
use serde::Serialize;

/// An answer for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// One or two sentences that begin with `Yes.`, `Not yet.` or `No.`.
    pub sentence: String,
    /// What else bears on it, most important first.
    pub reasons: Vec<String>,
    /// What to do, or that there is nothing to do.
    pub next_step: String,
}

/// All that an answer about one delivery is made from.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// As it is now.
    pub delivery: &'a Delivery,
    /// Its facts, oldest first, begun with its event's `Accepted`: a view's story.
    pub story: &'a [Entry],
    /// Where it goes, as it is now.
    pub endpoint: &'a Endpoint,
    /// Whose it is, as it is now.
    pub account: &'a Account,
    /// The endpoint's traffic.
    pub lane: &'a Lane,
    /// Tries of a run, with the policies that hold now.
    pub tries: u32,
    /// Whether it is dead and its owner is yet to be told.
    pub owed: bool,
    /// The moment of the question.
    pub now: Timestamp,
}

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
    answer.reasons.extend(told.circumstances());
    answer
}

/// The answer about an event, from those about its deliveries.
pub fn explain_event(
    event_type: &str,
    accepted_at: Timestamp,
    deliveries: &[(Status, Explanation)],
    now: Timestamp,
) -> Explanation {
    let at = moment_near(accepted_at, now);
    if deliveries.is_empty() {
        return Explanation {
            sentence: format!("No endpoint subscribed to `{event_type}`, so the event was sent nowhere."),
            reasons: vec![format!("It was accepted at {at} and is kept.")],
            next_step: format!(
                "Add `{event_type}` to an endpoint's event types, then send the event again under a new id; an \
                 event goes to those who are subscribed when it is accepted."
            ),
        };
    }
    if let [(_, only)] = deliveries {
        return only.clone();
    }
    let of = |status| deliveries.iter().filter(|(is, _)| *is == status).count();
    let total = deliveries.len();
    let waiting = of(Status::Pending) + of(Status::InFlight);
    let sentence = if of(Status::Delivered) == total {
        format!("Yes. `{event_type}` was delivered to all {total} endpoints.")
    } else {
        let counts: Vec<_> = Status::ALL
            .into_iter()
            .filter(|status| of(*status) > 0)
            .map(|status| format!("{} {}", of(status), status.as_str().replace('_', " ")))
            .collect();
        let head = if waiting > 0 { "Not yet" } else { "No" };
        format!("{head}. Of the {total} deliveries of `{event_type}`: {}.", counts.join(", "))
    };
    let open = |status: &Status| *status == Status::Dead;
    let next = deliveries.iter().find(|(status, _)| open(status));
    let next = next.or_else(|| deliveries.iter().find(|(status, _)| *status != Status::Delivered));
    Explanation {
        sentence,
        reasons: deliveries.iter().map(|(_, each)| each.sentence.clone()).collect(),
        next_step: next.map_or_else(|| NOTHING.into(), |(_, each)| each.next_step.clone()),
    }
}

const NOTHING: &str = "Nothing to do.";

/// What is known, with the newest facts of the story picked out.
struct Told<'a> {
    known: &'a Known<'a>,
    host: String,
    attempted: Option<(&'a Entry, u32, u32)>,
    failure: Option<(&'a Failure, &'a str, bool)>,
    replayed: Option<(&'a Entry, &'a str)>,
    rule: Option<&'a str>,
    hurried: bool,
    tell_owner: bool,
    cut_off: Vec<(u32, ErrorClass)>,
}

impl<'a> Told<'a> {
    fn of(known: &'a Known<'a>) -> Told<'a> {
        let url = url::Url::parse(&known.endpoint.settings.url).ok();
        let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or("the endpoint").to_owned();
        let mut told = Told {
            known,
            host,
            attempted: None,
            failure: None,
            replayed: None,
            rule: None,
            hurried: false,
            tell_owner: false,
            cut_off: Vec::new(),
        };
        for entry in known.story {
            match &entry.fact {
                Fact::Attempted { attempt, try_number, .. } => {
                    told.attempted = Some((entry, *attempt, *try_number));
                    told.hurried = false;
                }
                Fact::Failed { failure, rule, counted, attempt, .. } => {
                    told.failure = Some((failure, rule, *counted));
                    if let (Failure::Error { class, .. }, false) = (failure, counted) {
                        told.cut_off.push((*attempt, *class));
                    }
                }
                Fact::Delivered { rule, .. } => told.rule = Some(rule),
                Fact::Rescheduled { was_due_at, .. } => told.hurried = was_due_at.is_some(),
                Fact::Dead { tell_owner, .. } => told.tell_owner = *tell_owner,
                Fact::Replayed { reason, .. } => {
                    told.replayed = Some((entry, reason));
                    told.failure = None;
                    told.cut_off.clear();
                    told.hurried = false;
                }
                _ => {}
            }
        }
        told
    }

    fn attempted_at(&self) -> Option<Timestamp> {
        self.attempted.map(|(entry, ..)| entry.at)
    }

    /// `attempt 2 of 6`; the policy may have been shortened since.
    fn attempt(&self) -> String {
        let tries = self.known.tries;
        match self.attempted {
            Some((.., number)) if number <= tries => format!("attempt {number} of {tries}"),
            Some((.., number)) => format!("attempt {number}"),
            None => "no attempt".into(),
        }
    }

    fn when(&self, at: Timestamp) -> String {
        moment_near(at, self.known.now)
    }

    fn ago(&self, at: Timestamp) -> String {
        let since = self.known.now.since(at);
        if since.0 < 1000 { "just now".into() } else { format!("{} ago", span(since)) }
    }

    fn delivered(&self, at: Timestamp) -> Explanation {
        let last = self.known.delivery.last_attempt.as_ref();
        let answer = last.and_then(|last| last.status.map(|status| (status, last.took)));
        let answer =
            answer.map_or(String::new(), |(status, took)| format!(": HTTP {status} after {}", span(took)));
        Explanation {
            sentence: format!(
                "Yes. `{}` was delivered to {} at {} ({}) on {}{answer}.",
                self.known.delivery.event_type,
                self.host,
                self.when(at),
                self.ago(at),
                self.attempt(),
            ),
            reasons: Vec::new(),
            next_step: NOTHING.into(),
        }
    }

    fn pending(&self, due_at: Timestamp) -> Explanation {
        if let Some(hold) = &self.known.endpoint.hold {
            return self.held(hold);
        }
        let gate = self.known.lane.gate_until;
        let failed = self.failed_words();
        let mut reasons = Vec::new();
        let start = due_at.max(gate);
        let sentence = match (&failed, start > self.known.now) {
            (Some(failed), true) => format!("Not yet. {failed}. Next try {}.", self.ahead(start)),
            (Some(failed), false) => {
                format!("Not yet. {failed}. The next try starts as soon as there is room.")
            }
            (None, true) if gate > due_at => {
                format!(
                    "Not yet. {} asked to be left alone; the first try is {}.",
                    self.host,
                    self.ahead(start)
                )
            }
            (None, true) => format!("Not yet. It is not due yet: the first try is {}.", self.ahead(start)),
            (None, false) => {
                format!("Not yet. The first try to {} starts as soon as there is room.", self.host)
            }
        };
        if gate > self.known.now && gate > due_at {
            reasons.push(format!(
                "{} asked to be left alone until {} (Retry-After); it is held by that gate.",
                self.host,
                self.when(gate)
            ));
        }
        if let (Some((.., rule, _)), true) = (self.failure, failed.is_some()) {
            reasons.push(format!("The rule `{rule}` says to try again."));
        }
        if self.hurried {
            reasons.push("It was asked to be tried at once, in place of its planned try.".into());
        }
        let next_step = if start > self.known.now {
            "Wait, or have it tried at once (retry-now).".into()
        } else {
            "Wait a moment; if it stays so, the endpoint's limit of requests at a time is used up.".to_owned()
        };
        Explanation { sentence, reasons, next_step }
    }

    fn held(&self, hold: &Hold) -> Explanation {
        let (why, next_step) = match hold {
            Hold::Paused { reason, at } => (
                format!("is paused since {}{}", self.when(*at), quoted(reason)),
                "Resume the endpoint; what it holds goes out in order.",
            ),
            Hold::Disabled { reason: DisabledReason::Gone, at } => (
                format!("answered 410 (gone) and is disabled since {}", self.when(*at)),
                "Ask its owner whether the URL is right, then resume the endpoint; what it holds goes out in order.",
            ),
            Hold::Disabled { reason: DisabledReason::Requested(reason), at } => (
                format!("is disabled since {}{}", self.when(*at), quoted(reason)),
                "Resume the endpoint; what it holds goes out in order.",
            ),
        };
        let mut reasons = vec![format!("{} deliveries wait for {}.", self.known.lane.waiting, self.host)];
        if let Some(failed) = self.failed_words() {
            reasons.push(format!("{failed}."));
        }
        Explanation {
            sentence: format!("Not yet. {} {why}, so this delivery is held, not lost.", self.host),
            reasons,
            next_step: next_step.into(),
        }
    }

    fn in_flight(&self, started_at: Timestamp) -> Explanation {
        let timeout = self.known.endpoint.settings.timeout;
        Explanation {
            sentence: format!(
                "Not yet. {} to {} is under way since {} ({}).",
                capital(&self.attempt()),
                self.host,
                self.when(started_at),
                self.ago(started_at)
            ),
            reasons: Vec::new(),
            next_step: format!("Wait: it ends within {}.", span(timeout)),
        }
    }

    fn dead(&self, at: Timestamp, reason: &DeadReason) -> Explanation {
        let failed = self.failed_words().unwrap_or_else(|| "The last attempt failed".into());
        let tries = self.known.delivery.tries;
        let attempts = if tries == 1 { "1 attempt".to_owned() } else { format!("{tries} attempts") };
        let (sentence, next_step) = match reason {
            DeadReason::Exhausted => (
                format!("No. Given up at {} after {attempts}. {failed}.", self.when(at)),
                format!("Ask the owner of {} to mend it, then replay the event.", self.host),
            ),
            DeadReason::Refused => (
                format!(
                    "No. {failed}, which says that trying again is pointless; given up at {}.",
                    self.when(at)
                ),
                format!("Ask the owner of {} why it refuses this event, then replay it.", self.host),
            ),
            DeadReason::RetriesOff => (
                format!("No. {failed}; given up at {}, for the account has no retries.", self.when(at)),
                "Switch the account's webhook_retries on if it is to have retries, then replay the event."
                    .into(),
            ),
        };
        let mut reasons = Vec::new();
        if let Some((_, rule, _)) = self.failure {
            reasons.push(format!("The verdict is of the rule `{rule}`."));
        }
        reasons.push(match (self.tell_owner, self.known.owed, &self.known.account.settings.owner_email) {
            (false, ..) => "The account's owner is not told: the account has no retries.".into(),
            (true, true, Some(_)) => "The account's owner is yet to be told.".into(),
            (true, true, None) => {
                "The account's owner is yet to be told; the account names no e-mail.".into()
            }
            (true, false, _) => "The account's owner was told.".into(),
        });
        Explanation { sentence, reasons, next_step }
    }

    fn cancelled(&self, at: Timestamp) -> Explanation {
        let by = self.known.story.iter().rev().find_map(|entry| match &entry.fact {
            Fact::Cancelled { reason, .. } => Some(format!(" by {}{}", actor(&entry.actor), quoted(reason))),
            _ => None,
        });
        let before = self.failed_words().map(|failed| format!("{failed}."));
        Explanation {
            sentence: format!("No. It was cancelled at {}{}.", self.when(at), by.unwrap_or_default()),
            reasons: before.into_iter().collect(),
            next_step: "Send the event again under a new id if it is wanted after all.".into(),
        }
    }

    /// What bears on any state: replays, restarts, a changed endpoint.
    fn circumstances(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some((entry, reason)) = self.replayed {
            out.push(format!(
                "This is run {}: replayed at {} by {}{}.",
                self.known.delivery.run,
                self.when(entry.at),
                actor(&entry.actor),
                quoted(reason)
            ));
        }
        for (attempt, class) in &self.cut_off {
            out.push(match class {
                ErrorClass::Interrupted => format!(
                    "Request {attempt} was cut off by a restart of the server, so {} may have it; it used up no \
                     attempt.",
                    self.host
                ),
                _ => format!("Request {attempt} never left the server; it used up no attempt."),
            });
        }
        let version = self.attempted.and_then(|(entry, ..)| match &entry.fact {
            Fact::Attempted { endpoint_version, .. } => Some(*endpoint_version),
            _ => None,
        });
        if let Some(version) = version.filter(|version| *version != self.known.endpoint.version) {
            out.push(format!(
                "The endpoint was changed since: that request used version {version}, now it is of version {}.",
                self.known.endpoint.version
            ));
        }
        if self.known.account.settings.webhook_retries == Rollout::Off
            && matches!(self.known.delivery.state, State::Pending { .. } | State::InFlight { .. })
        {
            out.push("The account has no retries: one attempt is all there is.".into());
        }
        out
    }

    /// `Attempt 2 of 6 timed out after 10 s`; `None` if nothing failed in this run.
    fn failed_words(&self) -> Option<String> {
        let (failure, ..) = self.failure?;
        let attempt = capital(&self.attempt());
        let host = &self.host;
        Some(match failure {
            Failure::Answered(response) => {
                format!(
                    "{attempt} failed: {host} answered HTTP {} after {}",
                    response.status,
                    span(response.took)
                )
            }
            Failure::Error { class, took, .. } => match class {
                ErrorClass::Timeout => format!("{attempt} timed out after {}", span(*took)),
                ErrorClass::Dns => format!("{attempt} failed: no usable address was found for {host}"),
                ErrorClass::Connect => format!("{attempt} failed: no connection to {host}"),
                ErrorClass::Tls => format!("{attempt} failed: no secure connection to {host} (TLS)"),
                ErrorClass::Closed => {
                    format!("{attempt} failed: {host} closed the connection before it answered")
                }
                ErrorClass::Protocol => format!("{attempt} failed: what {host} answered is not HTTP"),
                ErrorClass::EgressDenied => {
                    format!("{attempt} failed: the address of {host} is not allowed, so nothing was sent")
                }
                ErrorClass::Interrupted => {
                    format!("{attempt} was cut off by a restart of the server and is repeated")
                }
                ErrorClass::NotSent => format!("{attempt} never left the server and is repeated"),
            },
        })
    }

    fn ahead(&self, at: Timestamp) -> String {
        format!("in {} ({})", span(at.since(self.known.now)), self.when(at))
    }
}

/// RFC 3339, UTC, three digits of a second: every moment in the API.
pub fn moment(at: Timestamp) -> String {
    jiff::fmt::temporal::DateTimePrinter::new().precision(Some(3)).timestamp_to_string(&stamp(at))
}

/// `15:04:10 UTC`, with the day if it is another one.
pub fn moment_near(at: Timestamp, now: Timestamp) -> String {
    let same_day = at.0 / 86_400_000 == now.0 / 86_400_000;
    let format = if same_day { "%H:%M:%S UTC" } else { "%Y-%m-%d %H:%M:%S UTC" };
    stamp(at).strftime(format).to_string()
}

/// `184 ms`, `1.2 s`, `28 min`, `2 h 5 min`, `3 d 4 h`.
pub fn span(span: Millis) -> String {
    let (secs, minutes) = (span.0 / 1000, (span.0 + 30_000) / 60_000);
    match span.0 {
        0..1_000 => format!("{} ms", span.0),
        1_000..10_000 if !span.0.is_multiple_of(1000) => format!("{}.{} s", secs, span.0 % 1000 / 100),
        1_000..60_000 => format!("{secs} s"),
        60_000..3_570_000 => format!("{minutes} min"),
        3_570_000..172_800_000 => match minutes % 60 {
            0 => format!("{} h", minutes / 60),
            rest => format!("{} h {rest} min", minutes / 60),
        },
        _ => format!("{} d {} h", secs / 86_400, secs % 86_400 / 3600),
    }
}

/// A name for whoever did it.
pub fn actor(actor: &Actor) -> String {
    match actor {
        Actor::Hooklog => "Hooklog".into(),
        Actor::Api(name) => name.to_string(),
        Actor::Cli => "the command line".into(),
    }
}

fn stamp(at: Timestamp) -> jiff::Timestamp {
    i64::try_from(at.0)
        .ok()
        .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
        .unwrap_or(jiff::Timestamp::MAX)
}

fn quoted(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" (“{reason}”)") }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
