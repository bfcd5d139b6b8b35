//! An event as it comes in: our envelope read strictly, its data left exactly as it is; and the body that is
//! sent, built once.
//!
//! Never looks into the data beyond what JSON it is: numbers, escapes, order and doubled keys are the
//! caller's.

use bytes::Bytes;
use hooklog_projections::ids::{AccountId, EndpointId, EventId};
use hooklog_projections::time::{Millis, Timestamp};
use serde_json::value::RawValue;

use super::fields::{Bad, Fields, bad, flag, id, number, parse};
use super::policies::moment;
use super::problem::{Kind, Problem};
use super::{ApiState, idempotency};
use crate::clock::{Chance, SystemChance};
use crate::engine::command::body_ref;
use crate::engine::{Command, Enqueue};
use crate::ids::drawn;
use crate::log::Body;

/// Characters of an event type.
pub(super) const TYPE_CHARS_MAX: usize = 128;
/// The most tries that an event may ask for.
pub(super) const TRIES_MAX: u64 = 101;
/// How far ahead a delivery may be put off.
const AHEAD_MAX: Millis = Millis::from_secs(366 * 24 * 3600);

/// What a producer says of an event besides its bytes.
pub(super) struct About {
    pub account: AccountId,
    pub event: Option<EventId>,
    pub event_type: String,
    pub deliver_at: Option<Timestamp>,
    pub max_tries: Option<u32>,
    pub expire_at: Option<Timestamp>,
    pub endpoint: Option<EndpointId>,
}

/// Reads one event, the `nth` of its request, as a command.
pub(super) fn read(api: &ApiState, mut fields: Fields<'_>, nth: usize) -> Result<Command, Problem> {
    let now = api.now();
    let account = api.account_member(&mut fields)?;
    let event = fields.optional("id", id::<EventId>);
    let event_type = fields.required("type", |value| {
        let text: String = parse(value, "a text")?;
        self::event_type(&text).map(|()| text)
    });
    let data = fields.required("data", Ok);
    let deliver_at = fields.optional("deliver_at", |value| due(value, now));
    let expire_at = fields.optional("expire_at", |value| due(value, now));
    if expire_at.is_some_and(|end| end <= deliver_at.unwrap_or(now)) {
        fields.fail("expire_at", bad("out-of-range", "it lies before the first try"));
    }
    let reserved = bad("reserved", "the name is kept for ordered delivery, which is not there yet");
    fields.refuse("ordering_key", reserved);
    let max_tries = fields.optional("max_tries", number(1, TRIES_MAX)).map(|tries| tries as u32);
    let endpoint = fields.optional("endpoint_id", id::<EndpointId>);
    let given_up = fields.optional("given_up", flag).unwrap_or(false);
    fields.finish()?;
    let (Some(account), Some(event_type), Some(data)) = (account, event_type, data) else {
        return Err(Problem::invalid(Vec::new()));
    };
    fits(api, data.get().len())?;
    let about = About { account, event, event_type, deliver_at, max_tries, expire_at, endpoint };
    let enqueue = enqueue(api, about, nth, "application/json", |id, event_type| {
        let data = data.get();
        let mut body = String::with_capacity(data.len() + id.len() + event_type.len() + 32);
        // Neither id nor type has a character that JSON escapes.
        for part in ["{\"id\":\"", id, "\",\"type\":\"", event_type, "\",\"data\":", data, "}"] {
            body.push_str(part);
        }
        body.into()
    });
    let enqueue = Box::new(enqueue);
    Ok(if given_up { Command::EnqueueGivenUp(enqueue) } else { Command::Enqueue(enqueue) })
}

/// An event whose body is the producer's own bytes.
pub(super) fn raw(api: &ApiState, about: About, content_type: &str, body: Bytes) -> Result<Command, Problem> {
    fits(api, body.len())?;
    Ok(Command::Enqueue(Box::new(enqueue(api, about, 0, content_type, |_, _| body))))
}

fn enqueue(
    api: &ApiState,
    about: About,
    nth: usize,
    content_type: &str,
    body: impl FnOnce(&str, &str) -> Bytes,
) -> Enqueue {
    let event = about.event.unwrap_or_else(|| match &api.key {
        Some(key) => idempotency::event_id(api, key, nth),
        None => EventId::drawn(drawn(api.now(), &mut SystemChance)),
    });
    let body = Body { salt: SystemChance.bytes(), bytes: body(event.as_str(), &about.event_type) };
    Enqueue {
        account: about.account,
        event,
        event_type: about.event_type.into(),
        body_ref: body_ref(&body, content_type),
        utf8: std::str::from_utf8(&body.bytes).is_ok(),
        body,
        deliver_at: about.deliver_at,
        max_tries: about.max_tries,
        expire_at: about.expire_at,
        endpoint: about.endpoint,
    }
}

fn fits(api: &ApiState, bytes: usize) -> Result<(), Problem> {
    let max = api.shared.options.data_bytes_max;
    if bytes <= max {
        return Ok(());
    }
    let detail = format!("the data has {bytes} bytes; at most {max} are taken: send a link to the rest");
    Err(Problem::new(Kind::TooLarge, detail))
}

/// Whether a text is an event type: words of letters, digits and `_`, joined by full stops.
pub(super) fn event_type(text: &str) -> Result<(), Bad> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let fits = text.len() <= TYPE_CHARS_MAX
        && text
            .split('.')
            .enumerate()
            .all(|(at, part)| !part.is_empty() && part.bytes().all(|b| word(b) || (at > 0 && b == b'-')));
    if fits {
        return Ok(());
    }
    let detail = format!(
        "an event type is words of A-Z, a-z, 0-9 and `_` joined by full stops (`-` may stand after the first), \
         at most {TYPE_CHARS_MAX} characters, as `payment.settled`"
    );
    Err(bad("bad-type", detail))
}

pub(super) fn due(value: &RawValue, now: Timestamp) -> Result<Timestamp, Bad> {
    let text: String = parse(value, "a text")?;
    let wrong = || bad("bad-time", "an RFC 3339 time with an offset is wanted, as 2026-11-30T09:14:02Z");
    let at = moment(&text).ok_or_else(wrong)?;
    if at > now + AHEAD_MAX { Err(bad("out-of-range", "at most 366 days ahead")) } else { Ok(at) }
}

#[cfg(test)]
mod tests {
    use super::event_type;

    #[test]
    fn event_types() {
        let longest = "a".repeat(128);
        for good in ["payment", "payment.settled", "a_b.c-d.E9", "0", longest.as_str()] {
            assert!(event_type(good).is_ok(), "{good}");
        }
        let long = "a".repeat(129);
        for wrong in ["", ".", "a.", ".a", "a..b", "a-b", "a b", "a\n", "é", "a.*", "a\"", long.as_str()] {
            assert!(event_type(wrong).is_err(), "{wrong}");
        }
    }
}
