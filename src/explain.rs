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
        let host = match &known.endpoint.settings.queue {
            Some(queue) => format!("queue `{queue}`"),
            None => url.as_ref().and_then(|url| url.host_str()).unwrap_or("the endpoint").to_owned(),
        };
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
        if let (Some(_), Some(last)) = (&self.known.endpoint.settings.queue, last) {
            return Explanation {
                sentence: format!(
                    "Yes. `{}` was done by a worker of {} at {} ({}) on {} after {}.",
                    self.known.delivery.event_type,
                    self.host,
                    self.when(at),
                    self.ago(at),
                    self.attempt(),
                    span(last.took),
                ),
                reasons: Vec::new(),
                next_step: NOTHING.into(),
            };
        }
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
            (None, false) if self.known.endpoint.settings.queue.is_some() => {
                format!("Not yet. It waits for a worker of {}.", self.host)
            }
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
        let next_step = if gate > self.known.now && gate > due_at {
            "Wait: all that goes to this endpoint waits as long as it asked for."
        } else if start > self.known.now {
            "Wait, or have it tried at once (retry-now)."
        } else if self.known.endpoint.settings.queue.is_some() {
            "Wait a moment; if it stays so, look whether a worker runs."
        } else {
            "Wait a moment; if it stays so, the endpoint's limit of requests at a time is used up."
        };
        Explanation { sentence, reasons, next_step: next_step.into() }
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
            Hold::Disabled { reason: DisabledReason::Failing { since }, at } => (
                format!(
                    "did nothing but fail since {} and is disabled since {}",
                    self.when(*since),
                    self.when(*at)
                ),
                "Ask its owner to mend it, then resume the endpoint; what it holds goes out in order.",
            ),
            Hold::Disabled { reason: DisabledReason::Requested(reason), at } => (
                format!("is disabled since {}{}", self.when(*at), quoted(reason)),
                "Resume the endpoint; what it holds goes out in order.",
            ),
        };
        let waiting = match self.known.lane.waiting {
            1 => format!("1 delivery waits for {}.", self.host),
            many => format!("{many} deliveries wait for {}.", self.host),
        };
        let mut reasons = vec![waiting];
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
        if self.known.endpoint.settings.queue.is_some() {
            return Explanation {
                sentence: format!(
                    "Not yet. {}: a worker of {} has it since {} ({}).",
                    capital(&self.attempt()),
                    self.host,
                    self.when(started_at),
                    self.ago(started_at)
                ),
                reasons: Vec::new(),
                next_step:
                    "Wait: if nothing is heard of the worker for a minute, the job goes to another one."
                        .into(),
            };
        }
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
            DeadReason::Expired => {
                let tried =
                    if tries == 0 { "without an attempt".into() } else { format!("after {attempts}") };
                (
                    format!("No. Its deadline passed at {} {tried}.", self.when(at)),
                    "Replay the event if it is still of use.".into(),
                )
            }
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
        match &self.known.endpoint.hold {
            None => {}
            Some(Hold::Paused { .. }) => {
                reasons.push("The endpoint is paused: what is replayed waits until it is resumed.".into());
            }
            Some(Hold::Disabled { .. }) => {
                reasons.push("The endpoint is disabled: what is replayed waits until it is resumed.".into());
            }
        }
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
                ErrorClass::LeaseExpired => {
                    format!("The worker of request {attempt} was not heard of any more; it used up no attempt.")
                }
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
            Failure::Error { class, took, detail, .. } => match class {
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
                ErrorClass::Worker => {
                    format!(
                        "{attempt} failed after {}: its worker said “{}”",
                        span(*took),
                        first_line(detail)
                    )
                }
                ErrorClass::LeaseExpired => {
                    format!(
                        "{attempt} was cut off, for its worker was not heard of any more, and is repeated"
                    )
                }
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

/// What fits into a sentence of a longer text.
fn first_line(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    &line[..line.floor_char_boundary(200)]
}

fn quoted(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" (“{reason}”)") }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use hooklog_projections::fact::{
        AccountSettings, BodyRef, Ended, EndpointSettings, Of, Response, Schemes, Sealed,
    };
    use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey, EventId, Seq};

    use super::*;

    /// 2026-11-30 14:00:00 UTC.
    const START: Timestamp = Timestamp(1_796_047_200_000);
    const KEY: EndpointKey = EndpointKey { account: AccountId(1), endpoint: EndpointId(2) };

    /// One delivery and everything around it, told by its facts.
    struct Case {
        story: Vec<Entry>,
        delivery: Delivery,
        endpoint: Endpoint,
        account: Account,
        lane: Lane,
        tries: u32,
        owed: bool,
        now: Timestamp,
    }

    fn at(secs: u64) -> Timestamp {
        START + Millis::from_secs(secs)
    }

    impl Case {
        /// Accepted at the start, first due after `due` seconds.
        fn due(due: u64) -> Case {
            let event: EventId = "evt_1".parse().expect("an id");
            let accepted = Fact::Accepted {
                account: KEY.account,
                event: event.clone(),
                event_type: "payment.settled".into(),
                body: BodyRef { len: 2, content_type: "application/json".into(), hash: [0; 32] },
                deliveries: 1,
            };
            let enqueued = Fact::Enqueued {
                key: KEY,
                event,
                accepted: Seq(1),
                event_type: "payment.settled".into(),
                due_at: at(due),
                max_tries: None,
                expire_at: None,
            };
            let delivery = Delivery::begun(&enqueued, Seq(2), START).expect("an Enqueued");
            let entry = |seq, fact| Entry { seq: Seq(seq), at: START, actor: Actor::Hooklog, fact };
            Case {
                story: vec![entry(1, accepted), entry(2, enqueued)],
                delivery,
                endpoint: Endpoint {
                    settings: EndpointSettings {
                        url: "https://hooks.customer.example/in?token=s3cret".into(),
                        event_types: vec!["*".into()],
                        description: "".into(),
                        schedule: None,
                        response_policy: None,
                        timeout: Millis(10_000),
                        in_flight_max: 8,
                        schemes: Schemes { standard: true, ledger: true },
                        headers: vec![],
                        rate_per_second: None,
                        disable_after: None,
                        body_form: Default::default(),
                        queue: None,
                    },
                    signing: vec![],
                    version: 1,
                    hold: None,
                    created_at: START,
                },
                account: Account {
                    settings: AccountSettings {
                        name: "Acme".into(),
                        owner_email: Some("owner@acme.example".into()),
                        schedule: None,
                        response_policy: None,
                        webhook_retries: Rollout::Default,
                    },
                    secret: Sealed(vec![]),
                    created_at: START,
                },
                lane: Lane { waiting: 1, ..Lane::default() },
                tries: 6,
                owed: false,
                now: START,
            }
        }

        /// Adds a fact `secs` after the start, through the machine.
        fn then(mut self, secs: u64, actor: Actor, fact: impl FnOnce(Of, &Delivery) -> Fact) -> Case {
            let of = Of {
                account: KEY.account,
                endpoint: KEY.endpoint,
                delivery: Seq(2),
                previous: self.delivery.latest,
            };
            let fact = fact(of, &self.delivery);
            let seq = Seq(self.story.len() as u64 + 1);
            self.delivery.apply(&fact, seq, at(secs)).expect("a legal story");
            self.story.push(Entry { seq, at: at(secs), actor, fact });
            self.now = at(secs);
            self
        }

        fn attempted(self, secs: u64) -> Case {
            self.then(secs, Actor::Hooklog, |of, row| Fact::Attempted {
                of,
                due_at: match row.state {
                    State::Pending { due_at } => due_at,
                    _ => unreachable!("only a pending one is attempted"),
                },
                attempt: row.attempts + 1,
                try_number: row.tries + 1,
                run: row.run,
                endpoint_version: 1,
                signed_with: vec![],
            })
        }

        fn failed(self, secs: u64, failure: Failure) -> Case {
            let counted = !matches!(
                failure,
                Failure::Error { class: ErrorClass::Interrupted | ErrorClass::NotSent, .. }
            );
            let rule = match &failure {
                Failure::Answered(response) => format!("ledger: {}", response.status),
                Failure::Error { .. } => "ledger: error".into(),
            };
            self.then(secs, Actor::Hooklog, |of, row| Fact::Failed {
                of,
                attempt: row.attempts,
                failure,
                rule: rule.into(),
                counted,
            })
        }

        fn rescheduled(self, secs: u64, due: u64) -> Case {
            self.then(secs, Actor::Hooklog, |of, _| Fact::Rescheduled {
                of,
                due_at: at(due),
                was_due_at: None,
                rule: "schedule".into(),
            })
        }

        fn dead(self, secs: u64, reason: DeadReason, tell_owner: bool) -> Case {
            self.then(secs, Actor::Hooklog, |of, _| Fact::Dead { of, reason, was_due_at: None, tell_owner })
        }

        fn delivered(self, secs: u64) -> Case {
            self.then(secs, Actor::Hooklog, |of, row| Fact::Delivered {
                of,
                attempt: row.attempts,
                response: response(200, 184),
                rule: "2xx".into(),
            })
        }

        fn replayed(self, secs: u64, was: Ended, reason: &str) -> Case {
            self.then(secs, Actor::Api("operator".into()), |of, row| Fact::Replayed {
                of,
                was,
                run: row.run + 1,
                due_at: at(secs),
                reason: reason.into(),
            })
        }

        fn asked(mut self, secs: u64) -> Case {
            self.now = at(secs);
            self
        }

        fn with(mut self, change: impl FnOnce(&mut Case)) -> Case {
            change(&mut self);
            self
        }

        fn explained(&self) -> Explanation {
            let Case { story, delivery, endpoint, account, lane, tries, owed, now } = self;
            let (tries, owed, now) = (*tries, *owed, *now);
            explain(&Known { delivery, story, endpoint, account, lane, tries, owed, now })
        }

        fn picture(&self) -> String {
            picture(&self.explained())
        }
    }

    fn picture(answer: &Explanation) -> String {
        assert!(!format!("{answer:?}").contains("s3cret"), "a query is nobody's business");
        let reasons: String = answer.reasons.iter().map(|reason| format!("- {reason}\n")).collect();
        format!("{}\n{reasons}> {}", answer.sentence, answer.next_step)
    }

    fn response(status: u16, took: u64) -> Response {
        Response { status, body: None, truncated: false, took: Millis(took), address: None }
    }

    fn answered(status: u16) -> Failure {
        Failure::Answered(response(status, 1_250))
    }

    fn error(class: ErrorClass, took: u64) -> Failure {
        Failure::Error { class, detail: "as the network put it".into(), took: Millis(took) }
    }

    /// Failed once for every wait, `n` times.
    fn failing(n: u32) -> Case {
        (0..u64::from(n)).fold(Case::due(0), |case, n| {
            let case = case.attempted(n * 60).failed(n * 60 + 1, answered(503));
            if n < 5 { case.rescheduled(n * 60 + 1, (n + 1) * 60) } else { case }
        })
    }

    #[test]
    fn delivered() {
        insta::assert_snapshot!(Case::due(0).attempted(0).delivered(1).picture(), @"
        Yes. `payment.settled` was delivered to hooks.customer.example at 14:00:01 UTC (just now) on attempt 1 of 6: HTTP 200 after 184 ms.
        > Nothing to do.
        ");
        insta::assert_snapshot!(failing(2).attempted(120).delivered(121).asked(11_000).picture(), @"
        Yes. `payment.settled` was delivered to hooks.customer.example at 14:02:01 UTC (3 h 1 min ago) on attempt 3 of 6: HTTP 200 after 184 ms.
        > Nothing to do.
        ");
        insta::assert_snapshot!(failing(1).attempted(60).delivered(61).asked(200_000).with(|case| {
            case.endpoint.version = 3;
            case.tries = 1;
        }).picture(), @"
        Yes. `payment.settled` was delivered to hooks.customer.example at 2026-11-30 14:01:01 UTC (2 d 7 h ago) on attempt 2: HTTP 200 after 184 ms.
        - The endpoint was changed since: that request used version 1, now it is of version 3.
        > Nothing to do.
        ");
    }

    #[test]
    fn pending_before_the_first_try() {
        insta::assert_snapshot!(Case::due(0).picture(), @"
        Not yet. The first try to hooks.customer.example starts as soon as there is room.
        > Wait a moment; if it stays so, the endpoint's limit of requests at a time is used up.
        ");
        insta::assert_snapshot!(Case::due(7_500).picture(), @"
        Not yet. It is not due yet: the first try is in 2 h 5 min (16:05:00 UTC).
        > Wait, or have it tried at once (retry-now).
        ");
        insta::assert_snapshot!(Case::due(300_000).picture(), @"
        Not yet. It is not due yet: the first try is in 3 d 11 h (2026-12-04 01:20:00 UTC).
        > Wait, or have it tried at once (retry-now).
        ");
    }

    #[test]
    fn pending_after_failures() {
        let timed_out = failing(1).attempted(60).failed(70, error(ErrorClass::Timeout, 10_000));
        insta::assert_snapshot!(timed_out.rescheduled(70, 70 + 1_680).picture(), @"
        Not yet. Attempt 2 of 6 timed out after 10 s. Next try in 28 min (14:29:10 UTC).
        - The rule `ledger: error` says to try again.
        > Wait, or have it tried at once (retry-now).
        ");
        insta::assert_snapshot!(failing(1).picture(), @"
        Not yet. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s. Next try in 59 s (14:01:00 UTC).
        - The rule `ledger: 503` says to try again.
        > Wait, or have it tried at once (retry-now).
        ");
        insta::assert_snapshot!(failing(1).asked(61).picture(), @"
        Not yet. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s. The next try starts as soon as there is room.
        - The rule `ledger: 503` says to try again.
        > Wait a moment; if it stays so, the endpoint's limit of requests at a time is used up.
        ");
        let hurried = failing(1).then(30, Actor::Cli, |of, _| Fact::Rescheduled {
            of,
            due_at: at(30),
            was_due_at: Some(at(60)),
            rule: "retry-now".into(),
        });
        insta::assert_snapshot!(hurried.picture(), @"
        Not yet. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s. The next try starts as soon as there is room.
        - The rule `ledger: 503` says to try again.
        - It was asked to be tried at once, in place of its planned try.
        > Wait a moment; if it stays so, the endpoint's limit of requests at a time is used up.
        ");
    }

    #[test]
    fn every_error_has_its_words() {
        use ErrorClass::*;
        let words = [Dns, Connect, Tls, Timeout, Closed, Protocol, EgressDenied].map(|class| {
            let case = Case::due(0).attempted(0).failed(5, error(class, 5_000)).rescheduled(5, 65);
            case.explained().sentence
        });
        insta::assert_snapshot!(words.join("\n"), @"
        Not yet. Attempt 1 of 6 failed: no usable address was found for hooks.customer.example. Next try in 1 min (14:01:05 UTC).
        Not yet. Attempt 1 of 6 failed: no connection to hooks.customer.example. Next try in 1 min (14:01:05 UTC).
        Not yet. Attempt 1 of 6 failed: no secure connection to hooks.customer.example (TLS). Next try in 1 min (14:01:05 UTC).
        Not yet. Attempt 1 of 6 timed out after 5 s. Next try in 1 min (14:01:05 UTC).
        Not yet. Attempt 1 of 6 failed: hooks.customer.example closed the connection before it answered. Next try in 1 min (14:01:05 UTC).
        Not yet. Attempt 1 of 6 failed: what hooks.customer.example answered is not HTTP. Next try in 1 min (14:01:05 UTC).
        Not yet. Attempt 1 of 6 failed: the address of hooks.customer.example is not allowed, so nothing was sent. Next try in 1 min (14:01:05 UTC).
        ");
    }

    #[test]
    fn held() {
        let paused = |reason: &str| Hold::Paused { reason: reason.into(), at: at(10) };
        insta::assert_snapshot!(Case::due(0).asked(60).with(|case| case.endpoint.hold = Some(paused("their deploy"))).picture(), @"
        Not yet. hooks.customer.example is paused since 14:00:10 UTC (“their deploy”), so this delivery is held, not lost.
        - 1 delivery waits for hooks.customer.example.
        > Resume the endpoint; what it holds goes out in order.
        ");
        insta::assert_snapshot!(failing(1).with(|case| {
            case.endpoint.hold = Some(paused(""));
            case.lane.waiting = 1_204;
        }).picture(), @"
        Not yet. hooks.customer.example is paused since 14:00:10 UTC, so this delivery is held, not lost.
        - 1204 deliveries wait for hooks.customer.example.
        - Attempt 1 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s.
        > Resume the endpoint; what it holds goes out in order.
        ");
        let gone = Hold::Disabled { reason: DisabledReason::Gone, at: at(10) };
        insta::assert_snapshot!(Case::due(0).asked(90_000).with(|case| case.endpoint.hold = Some(gone)).picture(), @"
        Not yet. hooks.customer.example answered 410 (gone) and is disabled since 2026-11-30 14:00:10 UTC, so this delivery is held, not lost.
        - 1 delivery waits for hooks.customer.example.
        > Ask its owner whether the URL is right, then resume the endpoint; what it holds goes out in order.
        ");
        let requested = Hold::Disabled { reason: DisabledReason::Requested("moving".into()), at: at(10) };
        insta::assert_snapshot!(Case::due(0).asked(60).with(|case| case.endpoint.hold = Some(requested)).picture(), @"
        Not yet. hooks.customer.example is disabled since 14:00:10 UTC (“moving”), so this delivery is held, not lost.
        - 1 delivery waits for hooks.customer.example.
        > Resume the endpoint; what it holds goes out in order.
        ");
        insta::assert_snapshot!(Case::due(0).asked(60).with(|case| case.lane.gate_until = at(360)).picture(), @"
        Not yet. hooks.customer.example asked to be left alone; the first try is in 5 min (14:06:00 UTC).
        - hooks.customer.example asked to be left alone until 14:06:00 UTC (Retry-After); it is held by that gate.
        > Wait: all that goes to this endpoint waits as long as it asked for.
        ");
        insta::assert_snapshot!(failing(1).asked(90).with(|case| case.lane.gate_until = at(360)).picture(), @"
        Not yet. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s. Next try in 5 min (14:06:00 UTC).
        - hooks.customer.example asked to be left alone until 14:06:00 UTC (Retry-After); it is held by that gate.
        - The rule `ledger: 503` says to try again.
        > Wait: all that goes to this endpoint waits as long as it asked for.
        ");
    }

    #[test]
    fn in_flight() {
        insta::assert_snapshot!(Case::due(0).attempted(0).picture(), @"
        Not yet. Attempt 1 of 6 to hooks.customer.example is under way since 14:00:00 UTC (just now).
        > Wait: it ends within 10 s.
        ");
        insta::assert_snapshot!(failing(2).attempted(120).asked(123).picture(), @"
        Not yet. Attempt 3 of 6 to hooks.customer.example is under way since 14:02:00 UTC (3 s ago).
        > Wait: it ends within 10 s.
        ");
    }

    #[test]
    fn dead() {
        let exhausted = || failing(6).dead(302, DeadReason::Exhausted, true).asked(3_600);
        insta::assert_snapshot!(exhausted().picture(), @"
        No. Given up at 14:05:02 UTC after 6 attempts. Attempt 6 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s.
        - The verdict is of the rule `ledger: 503`.
        - The account's owner was told.
        > Ask the owner of hooks.customer.example to mend it, then replay the event.
        ");
        insta::assert_snapshot!(exhausted().with(|case| case.owed = true).picture(), @"
        No. Given up at 14:05:02 UTC after 6 attempts. Attempt 6 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s.
        - The verdict is of the rule `ledger: 503`.
        - The account's owner is yet to be told.
        > Ask the owner of hooks.customer.example to mend it, then replay the event.
        ");
        insta::assert_snapshot!(exhausted().with(|case| {
            case.owed = true;
            case.account.settings.owner_email = None;
        }).picture(), @"
        No. Given up at 14:05:02 UTC after 6 attempts. Attempt 6 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s.
        - The verdict is of the rule `ledger: 503`.
        - The account's owner is yet to be told; the account names no e-mail.
        > Ask the owner of hooks.customer.example to mend it, then replay the event.
        ");
        let refused = Case::due(0).attempted(0).failed(1, answered(404)).dead(1, DeadReason::Refused, true);
        insta::assert_snapshot!(refused.picture(), @"
        No. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 404 after 1.2 s, which says that trying again is pointless; given up at 14:00:01 UTC.
        - The verdict is of the rule `ledger: 404`.
        - The account's owner was told.
        > Ask the owner of hooks.customer.example why it refuses this event, then replay it.
        ");
        let gone = Case::due(0).attempted(0).failed(1, answered(410)).dead(1, DeadReason::Refused, true);
        insta::assert_snapshot!(gone.with(|case| {
            case.endpoint.hold = Some(Hold::Disabled { reason: DisabledReason::Gone, at: at(1) });
        }).picture(), @"
        No. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 410 after 1.2 s, which says that trying again is pointless; given up at 14:00:01 UTC.
        - The verdict is of the rule `ledger: 410`.
        - The account's owner was told.
        - The endpoint is disabled: what is replayed waits until it is resumed.
        > Ask the owner of hooks.customer.example why it refuses this event, then replay it.
        ");
        let off = Case::due(0).attempted(0).failed(1, answered(500)).dead(1, DeadReason::RetriesOff, false);
        insta::assert_snapshot!(off.with(|case| {
            case.tries = 1;
            case.account.settings.webhook_retries = Rollout::Off;
        }).picture(), @"
        No. Attempt 1 of 1 failed: hooks.customer.example answered HTTP 500 after 1.2 s; given up at 14:00:01 UTC, for the account has no retries.
        - The verdict is of the rule `ledger: 500`.
        - The account's owner is not told: the account has no retries.
        > Switch the account's webhook_retries on if it is to have retries, then replay the event.
        ");
    }

    #[test]
    fn cancelled() {
        let cancel = |case: Case, secs, due, reason: &str| {
            case.then(secs, Actor::Api("operator".into()), |of, _| Fact::Cancelled {
                of,
                due_at: at(due),
                reason: reason.into(),
            })
        };
        insta::assert_snapshot!(cancel(Case::due(600), 30, 600, "sent by post").picture(), @"
        No. It was cancelled at 14:00:30 UTC by operator (“sent by post”).
        > Send the event again under a new id if it is wanted after all.
        ");
        insta::assert_snapshot!(cancel(failing(1), 30, 60, "").picture(), @"
        No. It was cancelled at 14:00:30 UTC by operator.
        - Attempt 1 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s.
        > Send the event again under a new id if it is wanted after all.
        ");
    }

    #[test]
    fn replayed() {
        let dead = || Case::due(0).attempted(0).failed(1, answered(404)).dead(1, DeadReason::Refused, true);
        insta::assert_snapshot!(dead().replayed(600, Ended::Dead, "they fixed it").picture(), @"
        Not yet. The first try to hooks.customer.example starts as soon as there is room.
        - This is run 2: replayed at 14:10:00 UTC by operator (“they fixed it”).
        > Wait a moment; if it stays so, the endpoint's limit of requests at a time is used up.
        ");
        insta::assert_snapshot!(dead().replayed(600, Ended::Dead, "they fixed it").attempted(600).delivered(601).picture(), @"
        Yes. `payment.settled` was delivered to hooks.customer.example at 14:10:01 UTC (just now) on attempt 1 of 6: HTTP 200 after 184 ms.
        - This is run 2: replayed at 14:10:00 UTC by operator (“they fixed it”).
        > Nothing to do.
        ");
        let again = Case::due(0).attempted(0).delivered(1).replayed(600, Ended::Delivered, "");
        insta::assert_snapshot!(again.attempted(600).failed(601, answered(500)).rescheduled(601, 660).picture(), @"
        Not yet. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 500 after 1.2 s. Next try in 59 s (14:11:00 UTC).
        - The rule `ledger: 500` says to try again.
        - This is run 2: replayed at 14:10:00 UTC by operator.
        > Wait, or have it tried at once (retry-now).
        ");
    }

    #[test]
    fn cut_off_by_a_restart() {
        let interrupted =
            || Case::due(0).attempted(0).failed(20, error(ErrorClass::Interrupted, 0)).rescheduled(20, 20);
        insta::assert_snapshot!(interrupted().picture(), @"
        Not yet. Attempt 1 of 6 was cut off by a restart of the server and is repeated. The next try starts as soon as there is room.
        - The rule `ledger: error` says to try again.
        - Request 1 was cut off by a restart of the server, so hooks.customer.example may have it; it used up no attempt.
        > Wait a moment; if it stays so, the endpoint's limit of requests at a time is used up.
        ");
        insta::assert_snapshot!(interrupted().attempted(21).delivered(22).picture(), @"
        Yes. `payment.settled` was delivered to hooks.customer.example at 14:00:22 UTC (just now) on attempt 1 of 6: HTTP 200 after 184 ms.
        - Request 1 was cut off by a restart of the server, so hooks.customer.example may have it; it used up no attempt.
        > Nothing to do.
        ");
        let unsent = Case::due(0).attempted(0).failed(1, error(ErrorClass::NotSent, 0)).rescheduled(1, 1);
        insta::assert_snapshot!(unsent.picture(), @"
        Not yet. Attempt 1 of 6 never left the server and is repeated. The next try starts as soon as there is room.
        - The rule `ledger: error` says to try again.
        - Request 1 never left the server; it used up no attempt.
        > Wait a moment; if it stays so, the endpoint's limit of requests at a time is used up.
        ");
    }

    #[test]
    fn an_event_is_the_sum_of_its_deliveries() {
        let event = |cases: &[Case]| {
            let answers: Vec<_> =
                cases.iter().map(|case| (case.delivery.state.status(), case.explained())).collect();
            picture(&explain_event("payment.settled", START, &answers, at(120)))
        };
        let ok = || Case::due(0).attempted(0).delivered(1);
        insta::assert_snapshot!(event(&[]), @"
        No endpoint subscribed to `payment.settled`, so the event was sent nowhere.
        - It was accepted at 14:00:00 UTC and is kept.
        > Add `payment.settled` to an endpoint's event types, then send the event again under a new id; an event goes to those who are subscribed when it is accepted.
        ");
        assert_eq!(event(&[ok()]), ok().picture());
        insta::assert_snapshot!(event(&[ok(), ok()]), @"
        Yes. `payment.settled` was delivered to all 2 endpoints.
        - Yes. `payment.settled` was delivered to hooks.customer.example at 14:00:01 UTC (just now) on attempt 1 of 6: HTTP 200 after 184 ms.
        - Yes. `payment.settled` was delivered to hooks.customer.example at 14:00:01 UTC (just now) on attempt 1 of 6: HTTP 200 after 184 ms.
        > Nothing to do.
        ");
        let dead = || Case::due(0).attempted(0).failed(1, answered(404)).dead(1, DeadReason::Refused, true);
        insta::assert_snapshot!(event(&[ok(), dead()]), @"
        No. Of the 2 deliveries of `payment.settled`: 1 delivered, 1 dead.
        - Yes. `payment.settled` was delivered to hooks.customer.example at 14:00:01 UTC (just now) on attempt 1 of 6: HTTP 200 after 184 ms.
        - No. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 404 after 1.2 s, which says that trying again is pointless; given up at 14:00:01 UTC.
        > Ask the owner of hooks.customer.example why it refuses this event, then replay it.
        ");
        insta::assert_snapshot!(event(&[dead(), failing(1), ok(), Case::due(0).attempted(0)]), @"
        Not yet. Of the 4 deliveries of `payment.settled`: 1 pending, 1 in flight, 1 delivered, 1 dead.
        - No. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 404 after 1.2 s, which says that trying again is pointless; given up at 14:00:01 UTC.
        - Not yet. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s. Next try in 59 s (14:01:00 UTC).
        - Yes. `payment.settled` was delivered to hooks.customer.example at 14:00:01 UTC (just now) on attempt 1 of 6: HTTP 200 after 184 ms.
        - Not yet. Attempt 1 of 6 to hooks.customer.example is under way since 14:00:00 UTC (just now).
        > Ask the owner of hooks.customer.example why it refuses this event, then replay it.
        ");
    }

    #[test]
    fn moments_and_spans() {
        assert_eq!(moment(Timestamp(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(moment(Timestamp(1_796_047_200_123)), "2026-11-30T14:00:00.123Z");
        assert!(moment(Timestamp::MAX).starts_with("9999-12-30"));
        let spans = [0, 999, 1_000, 1_250, 9_999, 10_500, 59_999, 60_000, 89_999, 3_569_999, 3_570_000]
            .into_iter()
            .chain([7_500_000, 172_799_999, 172_800_000, 273_600_000])
            .map(|millis| span(Millis(millis)));
        insta::assert_snapshot!(spans.collect::<Vec<_>>().join(" | "), @"0 ms | 999 ms | 1 s | 1.2 s | 9.9 s | 10 s | 59 s | 1 min | 1 min | 59 min | 1 h | 2 h 5 min | 48 h | 2 d 0 h | 3 d 4 h");
    }
}
