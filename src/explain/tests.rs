//! Pictures of answers: stories told by their facts, through the machine.

use hooklog_projections::account::Hold;
use hooklog_projections::fact::{
    AccountSettings, Actor, BodyRef, DeadReason, DisabledReason, Ended, EndpointSettings, Fact, Failure, Of,
    Response, Sealed,
};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey, EventId, Seq};
use hooklog_projections::lane::Lane;
use hooklog_projections::policy::{ErrorClass, Rollout};
use hooklog_projections::telling::Word;
use hooklog_projections::time::Millis;

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
    breaker: Option<OpenBreaker>,
    tries: u32,
    word: Word,
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
            late: false,
            bulk: None,
        };
        let delivery = Delivery::begun(&enqueued, Seq(2), START).expect("an Enqueued");
        let entry = |seq, fact| Entry { seq: Seq(seq), at: START, actor: Actor::Hooklog, fact };
        Case {
            story: vec![entry(1, accepted), entry(2, enqueued)],
            delivery,
            endpoint: Endpoint {
                settings: EndpointSettings {
                    url: "https://hooks.customer.example/in?token=s3cret".into(),
                    ..EndpointSettings::default()
                },
                signing: vec![],
                version: 1,
                hold: None,
                secret: None,
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
            breaker: None,
            tries: 6,
            word: Word::Told { at: at(1_200), channel: "mail".into() },
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
        let counted =
            !matches!(failure, Failure::Error { class: ErrorClass::Interrupted | ErrorClass::NotSent, .. });
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
            bulk: None,
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
        let Case { story, delivery, endpoint, account, lane, breaker, tries, word, now, .. } = self;
        let (tries, now) = (*tries, *now);
        let (gate_until, waiting, as_of) = (lane.gate_until, Some(lane.waiting), false);
        let breaker = *breaker;
        let known = Known {
            delivery,
            story,
            endpoint,
            account,
            gate_until,
            breaker,
            waiting,
            tries,
            word,
            now,
            as_of,
        };
        explain(&known)
    }

    fn picture(&self) -> String {
        picture(&self.explained())
    }

    /// The answer as of an earlier moment, from what was known then.
    fn as_of(&self, moment: Timestamp) -> Explanation {
        let story: Vec<_> = self.story.iter().filter(|entry| entry.at <= moment).cloned().collect();
        if story.len() < 2 {
            return not_yet_taken_in(&self.delivery.event_type, self.delivery.enqueued_at, moment);
        }
        let mut delivery = Delivery::begun(&story[1].fact, story[1].seq, story[1].at).expect("an Enqueued");
        for entry in &story[2..] {
            delivery.apply(&entry.fact, entry.seq, entry.at).expect("a legal story");
        }
        let mut endpoint = self.endpoint.clone();
        endpoint.hold = endpoint.hold.filter(|hold| match hold {
            Hold::Paused { at, .. } | Hold::Disabled { at, .. } | Hold::Removed { at, .. } => *at <= moment,
        });
        let word = match &self.word {
            Word::Begun(at) | Word::Told { at, .. } | Word::Refused { at, .. } if *at > moment => Word::Owed,
            word => word.clone(),
        };
        let known = Known {
            delivery: &delivery,
            story: &story,
            endpoint: &endpoint,
            account: &self.account,
            gate_until: self.lane.gate_until,
            breaker: None,
            waiting: None,
            tries: self.tries,
            word: &word,
            now: moment,
            as_of: true,
        };
        explain(&known)
    }
}

fn picture(answer: &Explanation) -> String {
    assert!(!format!("{answer:?}").contains("s3cret"), "a query is nobody's business");
    let reasons: String = answer.reasons.iter().map(|reason| format!("- {reason}\n")).collect();
    format!("{}\n{reasons}> {}", answer.sentence, answer.next_step)
}

fn response(status: u16, took: u64) -> Response {
    Response {
        status,
        body: None,
        truncated: false,
        took: Millis(took),
        address: None,
        course: None,
        fields: Vec::new(),
    }
}

fn answered(status: u16) -> Failure {
    Failure::Answered(response(status, 1_250))
}

fn error(class: ErrorClass, took: u64) -> Failure {
    Failure::Error {
        class,
        detail: "as the network put it".into(),
        took: Millis(took),
        reason: None,
        address: None,
        course: None,
    }
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
    - The account's owner was told by e-mail at 14:20:00 UTC.
    > Ask the owner of hooks.customer.example to mend it, then replay the event.
    ");
    insta::assert_snapshot!(exhausted().with(|case| case.word = Word::Owed).picture(), @"
    No. Given up at 14:05:02 UTC after 6 attempts. Attempt 6 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s.
    - The verdict is of the rule `ledger: 503`.
    - The account's owner is yet to be told.
    > Ask the owner of hooks.customer.example to mend it, then replay the event.
    ");
    insta::assert_snapshot!(exhausted().with(|case| {
        case.word = Word::Owed;
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
    - The account's owner was told by e-mail at 14:20:00 UTC.
    > Ask the owner of hooks.customer.example why it refuses this event, then replay it.
    ");
    let gone = Case::due(0).attempted(0).failed(1, answered(410)).dead(1, DeadReason::Refused, true);
    insta::assert_snapshot!(gone.with(|case| {
        case.endpoint.hold = Some(Hold::Disabled { reason: DisabledReason::Gone, at: at(1) });
    }).picture(), @"
    No. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 410 after 1.2 s, which says that trying again is pointless; given up at 14:00:01 UTC.
    - The verdict is of the rule `ledger: 410`.
    - The account's owner was told by e-mail at 14:20:00 UTC.
    - The endpoint is disabled: nothing is replayed to it until it is resumed.
    > Ask its owner whether the URL is right, then resume the endpoint and replay the event.
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
    > If it is wanted after all, send the event under a new id to this endpoint alone (`endpoint_id`): others that got it would take it for another one.
    ");
    insta::assert_snapshot!(cancel(failing(1), 30, 60, "").picture(), @"
    No. It was cancelled at 14:00:30 UTC by operator.
    - Attempt 1 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s.
    > If it is wanted after all, send the event under a new id to this endpoint alone (`endpoint_id`): others that got it would take it for another one.
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
    Yes. `payment.settled` was delivered to hooks.customer.example at 14:00:01 UTC in run 1. Sent again in run 2: not yet. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 500 after 1.2 s. Next try in 59 s (14:11:00 UTC).
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
        picture(&explain_event("payment.settled", START, &answers, at(120), false))
    };
    let ok = || Case::due(0).attempted(0).delivered(1);
    insta::assert_snapshot!(event(&[]), @"
    No endpoint subscribed to `payment.settled`, so the event was sent nowhere.
    - It was accepted at 14:00:00 UTC and is kept.
    > Add `payment.settled` to an endpoint's event types, then replay the event to those that never got it (scope `missing`); an event goes to those who are subscribed when it is accepted.
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

/// Every state with every way into it, every hold, every refusal, and what was never sent anywhere: as it is, and
/// as of each moment of its story and the one before it.
#[test]
fn every_answer_now_and_as_of_each_moment() {
    let cancel = |case: Case, secs: u64, due: u64, reason: &str| {
        case.then(secs, Actor::Cli, |of, _| Fact::Cancelled { of, due_at: at(due), reason: reason.into() })
    };
    let expired = |case: Case, secs: u64, due: u64| {
        case.then(secs, Actor::Hooklog, |of, _| Fact::Dead {
            of,
            reason: DeadReason::Expired,
            was_due_at: Some(at(due)),
            tell_owner: true,
        })
    };
    let imported = |case: Case| {
        case.then(0, Actor::Cli, |of, _| Fact::Dead {
            of,
            reason: DeadReason::Imported,
            was_due_at: Some(at(0)),
            tell_owner: false,
        })
    };
    let hold = |hold: Hold| move |case: &mut Case| case.endpoint.hold = Some(hold);
    let broken =
        |secs| move |case: &mut Case| case.breaker = Some(OpenBreaker { failures: 7, until: at(secs) });
    let disabled = |reason| Hold::Disabled { reason, at: at(30) };
    let one = || Case::due(0).attempted(0);
    let died = || one().failed(1, answered(404)).dead(1, DeadReason::Refused, true);
    let cases = [
        ("waits for room", Case::due(0).asked(5)),
        ("waits for its moment", Case::due(7_200).asked(5)),
        ("in flight", one().asked(3)),
        ("delivered at the first try", one().delivered(1).asked(60)),
        ("delivered at the third try", failing(2).attempted(120).delivered(121).asked(600)),
        ("waits for its second try", failing(1).asked(10)),
        ("late for its second try", failing(1).asked(90)),
        ("given up after six tries", failing(6).dead(302, DeadReason::Exhausted, true).asked(3_600)),
        ("refused", died().asked(60)),
        (
            "refused, and so was the message to its owner",
            died().asked(2_000).with(|case| {
                let why = "550 5.1.1 no such user".into();
                case.word = Word::Refused { at: at(1_201), why };
            }),
        ),
        (
            "refused, the owner told by the product",
            died().asked(2_000).with(|case| {
                case.word = Word::Told { at: at(1_201), channel: "notifications".into() };
            }),
        ),
        (
            "refused, and no way to the owner",
            died().asked(2_000).with(|case| {
                case.word = Word::Told { at: at(1_201), channel: "log".into() };
            }),
        ),
        (
            "refused, a message to the owner under way",
            died().asked(2_000).with(|case| case.word = Word::Begun(at(1_200))),
        ),
        ("refused, the owner yet to be told", died().asked(60).with(|case| case.word = Word::Owed)),
        (
            "no retries",
            one().failed(1, answered(500)).dead(1, DeadReason::RetriesOff, false).with(|case| {
                (case.tries, case.account.settings.webhook_retries) = (1, Rollout::Off);
            }),
        ),
        ("expired without an attempt", expired(Case::due(60), 60, 60).asked(90)),
        ("expired after one", expired(failing(1), 60, 60).asked(90)),
        ("given up elsewhere", imported(Case::due(0)).asked(60)),
        ("cancelled before the first try", cancel(Case::due(600), 30, 600, "sent by post").asked(60)),
        ("cancelled after one", cancel(failing(1), 30, 60, "").asked(60)),
        ("replayed after it died", died().replayed(50, Ended::Dead, "they mended it").asked(51)),
        (
            "replayed and delivered",
            died().replayed(50, Ended::Dead, "").attempted(51).delivered(52).asked(90),
        ),
        ("delivered and replayed", one().delivered(1).replayed(50, Ended::Delivered, "lost it").asked(51)),
        ("paused", Case::due(0).asked(60).with(hold(Hold::Paused { reason: "deploy".into(), at: at(30) }))),
        (
            "paused between two tries",
            failing(1).asked(60).with(hold(Hold::Paused { reason: "".into(), at: at(30) })),
        ),
        ("disabled, gone", failing(1).asked(60).with(hold(disabled(DisabledReason::Gone)))),
        (
            "disabled, failing",
            failing(1).asked(60).with(hold(disabled(DisabledReason::Failing { since: at(1) }))),
        ),
        (
            "disabled by a person",
            Case::due(0).asked(60).with(hold(disabled(DisabledReason::Requested("moving".into())))),
        ),
        ("gated", failing(1).asked(10).with(|case| case.lane.gate_until = at(3_600))),
        ("gated before the first try", Case::due(0).asked(10).with(|case| case.lane.gate_until = at(3_600))),
        ("behind an open breaker", failing(1).asked(90).with(broken(100))),
        ("behind an open breaker before the first try", Case::due(0).asked(10).with(broken(20))),
        ("next behind an open breaker", failing(1).asked(90).with(broken(80))),
        ("first behind an open breaker", Case::due(0).asked(10).with(broken(8))),
        ("not due before the breaker lets it through", failing(1).asked(10).with(broken(11))),
        (
            "cut off by a restart",
            one().failed(5, error(ErrorClass::Interrupted, 0)).rescheduled(5, 5).asked(6),
        ),
        ("never left", one().failed(5, error(ErrorClass::NotSent, 0)).rescheduled(5, 5).asked(6)),
        ("a time-out", one().failed(10, error(ErrorClass::Timeout, 10_000)).rescheduled(10, 70).asked(11)),
        ("another endpoint's version", one().delivered(1).asked(60).with(|case| case.endpoint.version = 2)),
    ];
    let mut text = String::new();
    for (name, case) in &cases {
        text.push_str(&format!("== {name}\n\n{}\n", case.picture()));
        let mut moments: Vec<_> = case.story.iter().map(|entry| entry.at).collect();
        moments.dedup();
        for moment in [START - Millis(1)].into_iter().chain(moments) {
            let then = moment_near(moment, START);
            text.push_str(&format!("\n-- as of {then}\n{}\n", picture(&case.as_of(moment))));
        }
        text.push('\n');
    }
    for (name, as_of) in [("no endpoint wanted it", false), ("no endpoint wanted it, as of then", true)] {
        let answer = explain_event("payment.settled", START, &[], at(60), as_of);
        text.push_str(&format!("== {name}\n\n{}\n\n", picture(&answer)));
    }
    let both: Vec<_> =
        [died(), failing(1)].iter().map(|case| (case.delivery.state.status(), case.as_of(at(60)))).collect();
    let answer = explain_event("payment.settled", START, &both, at(60), true);
    text.push_str(&format!("== two deliveries, as of then\n\n{}\n", picture(&answer)));
    insta::assert_snapshot!("every_answer", text);
}

#[test]
fn a_redirect_says_where_to_without_its_secrets() {
    let redirect = |status, location: &str| {
        let response = Response { fields: vec![("location".into(), location.into())], ..response(status, 1) };
        let case = Case::due(0).attempted(0).failed(1, Failure::Answered(response)).rescheduled(1, 61);
        case.picture().lines().find(|line| line.contains("redirects")).map(str::to_owned)
    };
    let told = [
        redirect(301, "https://user:s3cret@new.customer.example:8443/in?token=s3cret#s3cret"),
        redirect(307, "/in/?token=s3cret"),
        redirect(308, "javascript:alert(1)"),
        redirect(303, "http://[s3cret"),
        redirect(200, "/elsewhere"),
    ];
    let told: Vec<_> = told.iter().map(|line| line.as_deref().unwrap_or("nothing")).collect();
    insta::assert_snapshot!(told.join("\n"), @"
    - The endpoint redirects to https://new.customer.example:8443/in, and redirects are never followed: update its URL.
    - The endpoint redirects to https://hooks.customer.example/in/, and redirects are never followed: update its URL.
    - The endpoint redirects to what is no web address, and redirects are never followed: update its URL.
    - The endpoint redirects to what is no web address, and redirects are never followed: update its URL.
    nothing
    ");
}

#[test]
fn what_arrived_before_it_was_sent_again_is_told_first() {
    let again = || Case::due(0).attempted(0).delivered(1).replayed(60, Ended::Delivered, "they lost it");
    insta::assert_snapshot!(again().picture(), @"
    Yes. `payment.settled` was delivered to hooks.customer.example at 14:00:01 UTC in run 1. Sent again in run 2: not yet. The first try to hooks.customer.example starts as soon as there is room.
    - This is run 2: replayed at 14:01:00 UTC by operator (“they lost it”).
    > Wait a moment; if it stays so, the endpoint's limit of requests at a time is used up.
    ");
    let failing = again().attempted(60).failed(61, answered(500)).rescheduled(61, 120);
    insta::assert_snapshot!(failing.picture(), @"
    Yes. `payment.settled` was delivered to hooks.customer.example at 14:00:01 UTC in run 1. Sent again in run 2: not yet. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 500 after 1.2 s. Next try in 59 s (14:02:00 UTC).
    - The rule `ledger: 500` says to try again.
    - This is run 2: replayed at 14:01:00 UTC by operator (“they lost it”).
    > Wait, or have it tried at once (retry-now).
    ");
    let dead = again().attempted(60).failed(61, answered(500)).dead(61, DeadReason::Exhausted, true);
    insta::assert_snapshot!(dead.picture(), @"
    Yes. `payment.settled` was delivered to hooks.customer.example at 14:00:01 UTC in run 1. Sent again in run 2: no. Given up at 14:01:01 UTC after 1 attempt. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 500 after 1.2 s.
    - The verdict is of the rule `ledger: 500`.
    - The account's owner was told by e-mail at 14:20:00 UTC.
    - This is run 2: replayed at 14:01:00 UTC by operator (“they lost it”).
    > Nothing to do: it has arrived before. Replay it again only if it is wanted once more.
    ");
    // A run that arrives is the answer itself.
    let answer = again().attempted(60).delivered(61).explained();
    assert!(
        answer.sentence.starts_with("Yes. `payment.settled` was delivered")
            && !answer.sentence.contains("run 1")
    );
}

#[test]
fn a_deadline_is_told_before_it_is_over_and_after() {
    let until = |secs| move |case: &mut Case| case.delivery.expire_at = Some(at(secs));
    let paused = |case: &mut Case| {
        case.endpoint.hold = Some(Hold::Paused { reason: "they move".into(), at: at(1) });
    };
    insta::assert_snapshot!(Case::due(0).with(until(600)).with(paused).asked(5).picture(), @"
    Not yet. hooks.customer.example is paused since 14:00:01 UTC (“they move”), so this delivery is held, not lost.
    - 1 delivery waits for hooks.customer.example.
    - Its deadline is 14:10:00 UTC: what has not arrived by then is given up.
    > Resume the endpoint; what it holds goes out in order.
    ");
    insta::assert_snapshot!(Case::due(0).with(until(600)).with(paused).asked(601).picture(), @"
    No. Its deadline passed at 14:10:00 UTC while it waited: nothing is sent any more, and it ends as dead when it is its turn.
    > Once it has ended, replay the event if it is still of use.
    ");
    let tried = || Case::due(0).attempted(0).failed(1, answered(500)).rescheduled(1, 60);
    insta::assert_snapshot!(tried().with(until(600)).asked(5).picture(), @"
    Not yet. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 500 after 1.2 s. Next try in 55 s (14:01:00 UTC).
    - The rule `ledger: 500` says to try again.
    - Its deadline is 14:10:00 UTC: what has not arrived by then is given up.
    > Wait, or have it tried at once (retry-now).
    ");
    insta::assert_snapshot!(tried().with(until(60)).asked(5).picture(), @"
    Not yet. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 500 after 1.2 s. No try is due before its deadline, in 55 s (14:01:00 UTC).
    - The rule `ledger: 500` says to try again.
    - Its deadline is 14:01:00 UTC: what has not arrived by then is given up.
    > Wait, or have it tried at once (retry-now).
    ");
    insta::assert_snapshot!(tried().with(until(60)).with(|case| case.lane.gate_until = at(300)).asked(61).picture(), @"
    No. Its deadline passed at 14:01:00 UTC while it waited: nothing is sent any more, and it ends as dead when it is its turn.
    - Attempt 1 of 6 failed: hooks.customer.example answered HTTP 500 after 1.2 s.
    > Once it has ended, replay the event if it is still of use.
    ");
    let gated = Case::due(0).with(until(60)).with(|case| case.lane.gate_until = at(300)).asked(5);
    insta::assert_snapshot!(gated.picture(), @"
    Not yet. No try is due before its deadline, in 55 s (14:01:00 UTC).
    - hooks.customer.example asked to be left alone until 14:05:00 UTC (Retry-After); it is held by that gate.
    - Its deadline is 14:01:00 UTC: what has not arrived by then is given up.
    > Wait: all that goes to this endpoint waits as long as it asked for.
    ");
}

#[test]
fn the_next_step_is_one_that_can_be_taken() {
    let dead = || Case::due(0).attempted(0).failed(1, answered(404)).dead(1, DeadReason::Refused, true);
    let hold = |hold| move |case: &mut Case| case.endpoint.hold = Some(hold);
    let removed = Hold::Removed { reason: "they left".into(), at: at(2) };
    let gone = Hold::Disabled { reason: DisabledReason::Gone, at: at(2) };
    let failing = Hold::Disabled { reason: DisabledReason::Failing { since: at(0) }, at: at(2) };
    for (hold, step) in [
        (
            hold(removed),
            "If it is wanted elsewhere, send the event under a new id to that endpoint alone (`endpoint_id`).",
        ),
        (
            hold(gone),
            "Ask its owner whether the URL is right, then resume the endpoint and replay the event.",
        ),
        (hold(failing), "Ask its owner to mend it, then resume the endpoint and replay the event."),
    ] {
        assert_eq!(dead().with(hold).explained().next_step, step);
    }
    // A try that a gate holds is not told as one that may be hurried.
    let gated = Case::due(0).attempted(0).failed(1, answered(503)).rescheduled(1, 300);
    let gated = gated.with(|case| case.lane.gate_until = at(300)).asked(5);
    insta::assert_snapshot!(gated.picture(), @"
    Not yet. Attempt 1 of 6 failed: hooks.customer.example answered HTTP 503 after 1.2 s. Next try in 5 min (14:05:00 UTC).
    - hooks.customer.example asked to be left alone until 14:05:00 UTC (Retry-After); it is held by that gate.
    - The rule `ledger: 503` says to try again.
    > Wait: all that goes to this endpoint waits as long as it asked for.
    ");
}
