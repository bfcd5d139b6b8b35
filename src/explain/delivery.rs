//! The answer about one delivery: a sentence a state, and what bears on it. Never knows what is after the story.

use hooklog_projections::account::Hold;
use hooklog_projections::fact::{DeadReason, DisabledReason, Entry, Fact, Failure};
use hooklog_projections::lifecycle::State;
use hooklog_projections::policy::{ErrorClass, Rollout};
use hooklog_projections::telling::Word;
use hooklog_projections::time::Timestamp;

use super::words::{actor, capital, first_line, moment_near, quoted, span};
use super::{Explanation, Known, NOTHING};

/// What is known, with the newest facts of the story picked out.
pub(super) struct Told<'a> {
    known: &'a Known<'a>,
    host: String,
    attempted: Option<(&'a Entry, u32, u32)>,
    failure: Option<(&'a Failure, &'a str, bool)>,
    replayed: Option<(&'a Entry, &'a str)>,
    /// When it arrived last, and in which run.
    arrived: Option<(Timestamp, u32)>,
    rule: Option<&'a str>,
    hurried: bool,
    tell_owner: bool,
    cut_off: Vec<(u32, ErrorClass)>,
}

impl<'a> Told<'a> {
    pub(super) fn of(known: &'a Known<'a>) -> Told<'a> {
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
            arrived: None,
            rule: None,
            hurried: false,
            tell_owner: false,
            cut_off: Vec::new(),
        };
        let mut run = 1;
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
                Fact::Delivered { rule, .. } => {
                    told.rule = Some(rule);
                    told.arrived = Some((entry.at, run));
                }
                Fact::Rescheduled { was_due_at, .. } => told.hurried = was_due_at.is_some(),
                Fact::Dead { tell_owner, .. } => told.tell_owner = *tell_owner,
                Fact::Replayed { reason, run: next, .. } => {
                    run = *next;
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

    pub(super) fn attempted_at(&self) -> Option<Timestamp> {
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

    pub(super) fn delivered(&self, at: Timestamp) -> Explanation {
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

    /// An answer about a run that came after one that arrived: that it did is what was asked.
    pub(super) fn after_an_arrival(&self, answer: Explanation) -> Explanation {
        let run = self.known.delivery.run;
        let Some((at, before)) = self.arrived.filter(|(_, before)| *before < run) else { return answer };
        let (Explanation { sentence, reasons, next_step }, ended) =
            (answer, matches!(self.known.delivery.state, State::Dead { .. } | State::Cancelled { .. }));
        // `Yes.` alone may stand in front of it.
        let Some(rest) = sentence.strip_prefix('N').map(|rest| format!("n{rest}")) else {
            return Explanation { sentence, reasons, next_step };
        };
        let again = "Nothing to do: it has arrived before. Replay it again only if it is wanted once more.";
        Explanation {
            sentence: format!(
                "Yes. `{}` was delivered to {} at {} in run {before}. Sent again in run {run}: {rest}",
                self.known.delivery.event_type,
                self.host,
                self.when(at),
            ),
            reasons,
            next_step: if ended { again.into() } else { next_step },
        }
    }

    /// It waits, and no request leaves any more.
    fn too_late(&self, deadline: Timestamp) -> Explanation {
        Explanation {
            sentence: format!(
                "No. Its deadline passed at {} while it waited: nothing is sent any more, and it ends as dead when \
                 it is its turn.",
                self.when(deadline)
            ),
            reasons: self.failed_words().map(|failed| format!("{failed}.")).into_iter().collect(),
            next_step: "Once it has ended, replay the event if it is still of use.".into(),
        }
    }

    pub(super) fn pending(&self, due_at: Timestamp) -> Explanation {
        let deadline = self.known.delivery.expire_at;
        if let Some(passed) = deadline.filter(|deadline| *deadline <= self.known.now) {
            return self.too_late(passed);
        }
        if let Some(hold) = &self.known.endpoint.hold {
            return self.held(hold);
        }
        let gate = self.known.gate_until;
        let failed = self.failed_words();
        let mut reasons = Vec::new();
        let breaker = self.known.breaker.filter(|breaker| breaker.until > due_at);
        let start = due_at.max(gate).max(breaker.map_or(Timestamp(0), |breaker| breaker.until));
        let none_before = deadline.filter(|deadline| *deadline <= start);
        let sentence = match (&failed, start > self.known.now) {
            (failed, true) if let Some(deadline) = none_before => {
                let failed = failed.as_ref().map_or(String::new(), |failed| format!(" {failed}."));
                format!("Not yet.{failed} No try is due before its deadline, {}.", self.ahead(deadline))
            }
            (Some(failed), true) => format!("Not yet. {failed}. Next try {}.", self.ahead(start)),
            (Some(failed), false) if breaker.is_some() => {
                format!("Not yet. {failed}. The next try starts when it is its turn.")
            }
            (Some(failed), false) => {
                format!("Not yet. {failed}. The next try starts as soon as there is room.")
            }
            (None, true) if gate >= due_at => {
                format!(
                    "Not yet. {} asked to be left alone; the first try is {}.",
                    self.host,
                    self.ahead(start)
                )
            }
            (None, true) if breaker.is_some() => {
                format!("Not yet. {} seems to be down; the first try is {}.", self.host, self.ahead(start))
            }
            (None, false) if breaker.is_some() => {
                format!("Not yet. {} seems to be down; the first try starts when it is its turn.", self.host)
            }
            (None, true) => format!("Not yet. It is not due yet: the first try is {}.", self.ahead(start)),
            (None, false) if self.known.endpoint.settings.queue.is_some() => {
                format!("Not yet. It waits for a worker of {}.", self.host)
            }
            (None, false) => {
                format!("Not yet. The first try to {} starts as soon as there is room.", self.host)
            }
        };
        let gated = gate > self.known.now && gate >= due_at;
        if gated {
            reasons.push(format!(
                "{} asked to be left alone until {} (Retry-After); it is held by that gate.",
                self.host,
                self.when(gate)
            ));
        }
        if let Some(breaker) = breaker {
            reasons.push(format!(
                "{} gave no answer, or a server error, {} times in a row: its circuit breaker is open and lets one \
                 request at a time through, until one arrives.",
                self.host, breaker.failures
            ));
        }
        if let (Some((.., rule, _)), true) = (self.failure, failed.is_some()) {
            reasons.push(format!("The rule `{rule}` says to try again."));
        }
        if self.hurried {
            reasons.push("It was asked to be tried at once, in place of its planned try.".into());
        }
        reasons.extend(self.deadline());
        let next_step = if gated {
            "Wait: all that goes to this endpoint waits as long as it asked for."
        } else if breaker.is_some() {
            "Ask its owner to mend it; as soon as one request arrives, all that waits goes out."
        } else if start > self.known.now {
            "Wait, or have it tried at once (retry-now)."
        } else if self.known.endpoint.settings.queue.is_some() {
            "Wait a moment; if it stays so, look whether a worker runs."
        } else {
            "Wait a moment; if it stays so, the endpoint's limit of requests at a time is used up."
        };
        Explanation { sentence, reasons, next_step: next_step.into() }
    }

    /// That there is one, and when.
    fn deadline(&self) -> Option<String> {
        let deadline = self.known.delivery.expire_at?;
        Some(format!("Its deadline is {}: what has not arrived by then is given up.", self.when(deadline)))
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
            Hold::Removed { reason, at } => (
                format!("was removed at {}{}", self.when(*at), quoted(reason)),
                "Nothing to do: what waits for it is cancelled in a moment.",
            ),
        };
        let mut reasons = Vec::new();
        match self.known.waiting {
            None => {}
            Some(1) => reasons.push(format!("1 delivery waits for {}.", self.host)),
            Some(many) => reasons.push(format!("{many} deliveries wait for {}.", self.host)),
        }
        if let Some(failed) = self.failed_words() {
            reasons.push(format!("{failed}."));
        }
        reasons.extend(self.deadline());
        Explanation {
            sentence: format!("Not yet. {} {why}, so this delivery is held, not lost.", self.host),
            reasons,
            next_step: next_step.into(),
        }
    }

    pub(super) fn in_flight(&self, started_at: Timestamp) -> Explanation {
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

    pub(super) fn dead(&self, at: Timestamp, reason: &DeadReason) -> Explanation {
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
            DeadReason::Imported => (
                format!("No. It had been given up elsewhere before it came here at {}.", self.when(at)),
                "Replay the event if it is still wanted.".into(),
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
        reasons.push(match reason {
            DeadReason::Imported => {
                "The account's owner is not told again of what was given up before.".into()
            }
            _ => self.owner(),
        });
        let next_step = match &self.known.endpoint.hold {
            None => next_step,
            Some(Hold::Paused { .. }) => {
                reasons.push("The endpoint is paused: what is replayed waits until it is resumed.".into());
                next_step
            }
            Some(Hold::Disabled { reason, .. }) => {
                reasons
                    .push("The endpoint is disabled: nothing is replayed to it until it is resumed.".into());
                let first = match reason {
                    DisabledReason::Gone => "Ask its owner whether the URL is right",
                    DisabledReason::Failing { .. } => "Ask its owner to mend it",
                    DisabledReason::Requested(_) => "Ask whoever disabled the endpoint whether it may run",
                };
                format!("{first}, then resume the endpoint and replay the event.")
            }
            Some(Hold::Removed { .. }) => {
                reasons.push("The endpoint was removed: nothing is replayed to it.".into());
                "If it is wanted elsewhere, send the event under a new id to that endpoint alone (`endpoint_id`)."
                    .into()
            }
        };
        Explanation { sentence, reasons, next_step }
    }

    /// Whether the owner knows of the death.
    fn owner(&self) -> String {
        let email = self.known.account.settings.owner_email.as_ref();
        match (self.tell_owner, self.known.word, email) {
            (false, ..) => "The account's owner is not told: the account has no retries.".into(),
            (true, Word::Owed, Some(_)) => "The account's owner is yet to be told.".into(),
            (true, Word::Owed, None) => {
                "The account's owner is yet to be told; the account names no e-mail.".into()
            }
            (true, Word::Begun(at), _) => {
                format!("A message to the account's owner is under way since {}.", self.when(*at))
            }
            (true, Word::Told { at, channel }, _) if **channel == *"log" => format!(
                "The account's owner was not told: this server has no way to; it stands in its log of {}.",
                self.when(*at)
            ),
            (true, Word::Told { at, channel }, _) => {
                let by = if **channel == *"mail" { " by e-mail" } else { "" };
                format!("The account's owner was told{by} at {}.", self.when(*at))
            }
            (true, Word::Refused { at, why }, _) => format!(
                "The account's owner could not be told: the message was refused at {} ({}).",
                self.when(*at),
                first_line(why)
            ),
        }
    }

    pub(super) fn cancelled(&self, at: Timestamp) -> Explanation {
        let by = self.known.story.iter().rev().find_map(|entry| match &entry.fact {
            Fact::Cancelled { reason, .. } => Some(format!(" by {}{}", actor(&entry.actor), quoted(reason))),
            _ => None,
        });
        let before = self.failed_words().map(|failed| format!("{failed}."));
        Explanation {
            sentence: format!("No. It was cancelled at {}{}.", self.when(at), by.unwrap_or_default()),
            reasons: before.into_iter().collect(),
            next_step: match &self.known.endpoint.hold {
                Some(Hold::Removed { .. }) => {
                    "If it is wanted elsewhere, send the event under a new id to that endpoint alone \
                     (`endpoint_id`)."
                }
                _ => {
                    "If it is wanted after all, send the event under a new id to this endpoint alone \
                     (`endpoint_id`): others that got it would take it for another one."
                }
            }
            .into(),
        }
    }

    /// Where the last failed attempt was sent on to: without query and user name, which are somebody's secrets.
    fn redirect(&self) -> Option<String> {
        let Some((Failure::Answered(response), ..)) = self.failure else { return None };
        if !(300..400).contains(&response.status) {
            return None;
        }
        let location = response.field("location")?;
        let to = url::Url::parse(&self.known.endpoint.settings.url).ok()?.join(location).ok();
        let to = to.filter(|to| matches!(to.scheme(), "http" | "https")).and_then(|to| {
            let port = to.port().map(|port| format!(":{port}")).unwrap_or_default();
            let to = format!("{}://{}{port}{}", to.scheme(), to.host_str()?, to.path());
            Some(first_line(&to).to_owned())
        });
        Some(to.unwrap_or_else(|| "what is no web address".into()))
    }

    /// What bears on any state: replays, restarts, a changed endpoint.
    pub(super) fn circumstances(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(to) = self.redirect() {
            out.push(format!(
                "The endpoint redirects to {to}, and redirects are never followed: update its URL."
            ));
        }
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
