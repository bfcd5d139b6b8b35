//! The machine as a table: every state against every fact, legal or not; and ids and keys that come back.

use hooklog_projections::fact::{BodyRef, DeadReason, Ended, Fact, Failure, Of, Response};
use hooklog_projections::ids::{
    AccountId, DeliveryId, DeliveryKey, EndpointId, EndpointKey, EventId, Seq, decode_base32, encode_base32,
};
use hooklog_projections::lifecycle::{Delivery, Illegal, State};
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::tables::{DueKey, EndpointDelivery, Key};
use hooklog_projections::time::{Millis, Timestamp};
use proptest::prelude::*;

const DUE: Timestamp = Timestamp(50);

fn of() -> Of {
    Of { account: AccountId(1), endpoint: EndpointId(2), delivery: Seq(5), previous: Seq(5) }
}

fn key() -> EndpointKey {
    EndpointKey { account: AccountId(1), endpoint: EndpointId(2) }
}

fn event() -> EventId {
    "evt_1".parse().unwrap()
}

fn enqueued() -> Fact {
    Fact::Enqueued {
        key: key(),
        event: event(),
        accepted: Seq(4),
        event_type: "a.b".into(),
        due_at: DUE,
        max_tries: None,
        expire_at: None,
        late: false,
        bulk: None,
    }
}

fn response() -> Response {
    Response {
        status: 500,
        body: None,
        truncated: false,
        took: Millis(1),
        address: None,
        course: None,
        fields: Vec::new(),
    }
}

/// One delivery in each state.
fn states() -> Vec<Delivery> {
    let begun = Delivery::begun(&enqueued(), Seq(5), Timestamp(40)).unwrap();
    let with = |state| Delivery { state, attempts: 1, ..begun.clone() };
    vec![
        with(State::Pending { due_at: DUE }),
        with(State::InFlight { attempted: Seq(5), started_at: DUE }),
        with(State::Deciding { counted: true }),
        with(State::Delivered { at: DUE }),
        with(State::Dead { at: DUE, reason: DeadReason::Exhausted }),
        with(State::Cancelled { at: DUE }),
    ]
}

/// Every fact of a delivery, in each of its forms.
fn facts() -> Vec<(&'static str, Fact)> {
    let rescheduled = |was_due_at| Fact::Rescheduled { of: of(), due_at: DUE, was_due_at, rule: "".into() };
    let dead =
        |was_due_at| Fact::Dead { of: of(), reason: DeadReason::Refused, was_due_at, tell_owner: true };
    let error = Failure::Error {
        class: ErrorClass::Dns,
        detail: "".into(),
        took: Millis(1),
        reason: None,
        address: None,
        course: None,
    };
    let replayed = |was| Fact::Replayed { of: of(), was, run: 2, due_at: DUE, reason: "".into(), bulk: None };
    vec![
        ("Enqueued", enqueued()),
        (
            "Attempted",
            Fact::Attempted {
                of: of(),
                due_at: DUE,
                attempt: 2,
                try_number: 1,
                run: 1,
                endpoint_version: 1,
                signed_with: vec![],
            },
        ),
        ("Delivered", Fact::Delivered { of: of(), attempt: 1, response: response(), rule: "".into() }),
        ("Failed", Fact::Failed { of: of(), attempt: 1, failure: error, rule: "".into(), counted: true }),
        ("Rescheduled after a failure", rescheduled(None)),
        ("Rescheduled while waiting", rescheduled(Some(DUE))),
        ("Dead after a failure", dead(None)),
        ("Dead while waiting", dead(Some(DUE))),
        ("Replayed from dead", replayed(Ended::Dead)),
        ("Replayed from delivered", replayed(Ended::Delivered)),
        ("Cancelled", Fact::Cancelled { of: of(), due_at: DUE, reason: "".into() }),
        (
            "Accepted",
            Fact::Accepted {
                account: AccountId(1),
                event: event(),
                event_type: "a.b".into(),
                body: BodyRef { len: 0, content_type: "".into(), hash: [0; 32] },
                deliveries: 1,
            },
        ),
    ]
}

#[test]
fn every_state_meets_every_fact() {
    let mut table = String::new();
    for (name, fact) in facts() {
        table += &format!("{name}:");
        for mut delivery in states() {
            let from = delivery.state.name();
            match delivery.apply(&fact, Seq(6), Timestamp(60)) {
                Ok(()) => table += &format!(" {from} → {}", delivery.state.name()),
                Err(Illegal::Pair { state, .. }) => assert_eq!(state, from),
                Err(other) => panic!("{name} on {from}: {other}"),
            }
        }
        table += "\n";
    }
    insta::assert_snapshot!(table, @"
    Enqueued:
    Attempted: Pending → InFlight
    Delivered: InFlight → Delivered
    Failed: InFlight → Deciding
    Rescheduled after a failure: Deciding → Pending
    Rescheduled while waiting: Pending → Pending
    Dead after a failure: Deciding → Dead
    Dead while waiting: Pending → Dead
    Replayed from dead: Dead → Pending
    Replayed from delivered: Delivered → Pending
    Cancelled: Pending → Cancelled
    Accepted:
    ");
}

#[test]
fn an_illegal_pair_names_both_and_changes_nothing() {
    let mut delivered = states().remove(3);
    let before = delivered.clone();
    let fact = Fact::Cancelled { of: of(), due_at: DUE, reason: "".into() };
    let error = delivered.apply(&fact, Seq(6), Timestamp(60)).unwrap_err();
    insta::assert_snapshot!(error.to_string(), @"entry 6: a delivery in state Delivered cannot take the fact Cancelled");
    assert_eq!(delivered, before);
}

#[test]
fn a_fact_that_speaks_of_something_else_is_refused() {
    let mut pending = states().remove(0);
    let mut wrong = of();
    wrong.previous = Seq(3);
    let fact = Fact::Cancelled { of: wrong, due_at: DUE, reason: "".into() };
    let error = pending.apply(&fact, Seq(6), Timestamp(60)).unwrap_err();
    insta::assert_snapshot!(error.to_string(), @"entry 6: Cancelled says its previous fact 3, but it is 5");
    let fact = Fact::Cancelled { of: of(), due_at: Timestamp(51), reason: "".into() };
    let error = pending.apply(&fact, Seq(6), Timestamp(60)).unwrap_err();
    insta::assert_snapshot!(error.to_string(), @"entry 6: Cancelled says a due time of 51, but it is 50");
}

proptest! {
    #[test]
    fn ids_come_back(value: u128) {
        let digits = encode_base32(value);
        let text = std::str::from_utf8(&digits).unwrap();
        prop_assert_eq!(decode_base32(text), Some(value));
        prop_assert_eq!(decode_base32(&text.to_lowercase()), Some(value));
        let id = DeliveryId(value);
        prop_assert_eq!(id.to_string().parse::<DeliveryId>(), Ok(id));
    }

    #[test]
    fn ids_sort_as_numbers(a: u128, b: u128) {
        prop_assert_eq!(encode_base32(a).cmp(&encode_base32(b)), a.cmp(&b));
    }

    #[test]
    fn any_text_is_read_without_harm(text in ".{0,40}") {
        let _ = (decode_base32(&text), text.parse::<AccountId>(), text.parse::<EventId>());
    }

    #[test]
    fn keys_come_back_and_sort(account: u128, endpoint: u128, due: u64, seq: u64, later in 1u64..1000) {
        let endpoint = EndpointKey { account: AccountId(account), endpoint: EndpointId(endpoint) };
        let due = DueKey { endpoint, due_at: Timestamp(due), delivery: Seq(seq) };
        prop_assert_eq!(DueKey::read(&due.bytes()), Some(due));
        let after = DueKey { due_at: due.due_at + Millis(later), ..due };
        prop_assert!(due.due_at == after.due_at || due.bytes() < after.bytes());
        let place = EndpointDelivery { endpoint, delivery: Seq(seq) };
        prop_assert_eq!(EndpointDelivery::read(&place.bytes()), Some(place));
        let delivery = DeliveryKey { account: AccountId(account), seq: Seq(seq) };
        prop_assert_eq!(DeliveryKey::read(&delivery.bytes()), Some(delivery));
        prop_assert!(delivery.bytes().starts_with(&AccountId(account).bytes()));
    }

    #[test]
    fn any_bytes_are_read_as_a_key_without_harm(bytes: Vec<u8>) {
        let _ = (DueKey::read(&bytes), DeliveryKey::read(&bytes), <(AccountId, EventId)>::read(&bytes));
        let _ = (EndpointKey::read(&bytes), Option::<AccountId>::read(&bytes));
    }
}
