//! The answer about an event: that of its only delivery, or all of them counted. Never looks into a story.

use hooklog_projections::lifecycle::Status;
use hooklog_projections::time::Timestamp;

use super::words::moment_near;
use super::{Explanation, NOTHING};

/// The answer about an event, from those about its deliveries; `as_of`: at a moment in the past.
pub fn explain_event(
    event_type: &str,
    accepted_at: Timestamp,
    deliveries: &[(Status, Explanation)],
    now: Timestamp,
    as_of: bool,
) -> Explanation {
    let answer = summed(event_type, accepted_at, deliveries, now);
    // A single delivery's answer says so already.
    if as_of && deliveries.len() != 1 { answer.of_the_past(now) } else { answer }
}

/// The answer about an event, or a delivery of it, at a moment before it was taken in.
pub fn not_yet_taken_in(event_type: &str, accepted_at: Timestamp, moment: Timestamp) -> Explanation {
    let (then, at) = (moment_near(moment, accepted_at), moment_near(accepted_at, moment));
    let answer = Explanation {
        sentence: format!("Not yet. At {then} `{event_type}` had not been taken in; it was at {at}."),
        reasons: Vec::new(),
        next_step: String::new(),
    };
    answer.of_the_past(moment)
}

fn summed(
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
                "Add `{event_type}` to an endpoint's event types, then replay the event to those that never got \
                 it (scope `missing`); an event goes to those who are subscribed when it is accepted."
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
