//! The story of a delivery as an ordered list: every fact with its moment and who did it, long waits named, and the
//! tries that are still planned. Never decides what a fact means.

use hooklog_projections::fact::{Actor, DisabledReason, Entry, Fact, Failure};
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::time::{Millis, Timestamp};
use maud::{Markup, html};

use super::parts::{ago, at, icon, words};
use super::text::{line, short};
use super::viewer::Viewer;
use crate::api::answer::{Answer, Told};
use crate::api::attempts::is_told;
use crate::explain::{actor, moment, span};

/// A wait that is worth a line of its own.
const LONG: Millis = Millis::from_secs(60);

/// The list. `then` is the page's address as of a moment.
pub(super) fn list(
    viewer: &Viewer,
    seen: &Answer,
    told: &Told,
    then: &dyn Fn(Timestamp) -> String,
) -> Markup {
    let before = std::iter::once(None).chain(told.story.iter().map(|entry| Some(entry.at)));
    html! {
        ol.timeline {
            @for (entry, before) in told.story.iter().zip(before) {
                @let gap = before.map(|before| entry.at.since(before)).filter(|gap| *gap >= LONG);
                @if let Some(gap) = gap { li.gap { span { (span(gap)) " passed" } } }
                (fact(viewer, seen, entry, then))
            }
            (ahead(seen, told))
        }
    }
}

fn fact(viewer: &Viewer, seen: &Answer, entry: &Entry, then: &dyn Fn(Timestamp) -> String) -> Markup {
    let (tone, picture, what) = told_of(viewer, seen, &entry.fact);
    let by = !matches!(entry.actor, Actor::Hooklog);
    html! {
        li.(tone) {
            span.dot { (icon(picture)) }
            div.what {
                p { (what) @if by { span.dim { " by " (line(&actor(&entry.actor), 60)) } } }
                p.moment { a href=(then(entry.at)) title="The page as of this moment" { (at(entry.at, seen.now)) }
                    @if !viewer.is_customer() { span.dim title="Place in the log" { " #" (entry.seq.0) } } }
            }
        }
    }
}

/// A fact's colour, icon and words.
fn told_of(viewer: &Viewer, seen: &Answer, fact: &Fact) -> (&'static str, &'static str, Markup) {
    let reason = |reason: &str| html! { @if !reason.is_empty() { ": “" (line(reason, 200)) "”" } };
    match fact {
        Fact::Accepted { deliveries, .. } => (
            "off",
            "events",
            html! { b { "Taken in" } ", for " (deliveries) @if *deliveries == 1 { " endpoint" } @else { " endpoints" } },
        ),
        Fact::Enqueued { due_at, late, .. } => (
            "off",
            "deliveries",
            html! { b { "Enqueued" } @if *late { ", later, for an endpoint that had missed it" } @if *due_at > seen.event.accepted_at { ", due " (at(*due_at, seen.now)) } },
        ),
        Fact::Attempted { attempt, try_number, run, endpoint_version, .. } => (
            "fly",
            "fly",
            html! { b { "Request " (attempt) } " left: try " (try_number) @if *run > 1 { " of run " (run) } span.dim { ", endpoint version " (endpoint_version) } },
        ),
        Fact::Delivered { response, .. } => (
            "good",
            "check",
            html! { b { "Delivered" } @match response.code() { Some(code) => { ": HTTP " (code) }, None => ": done by a worker" } " after " (span(response.took)) },
        ),
        Fact::Failed { failure, counted, .. } => ("bad", "cross", failed(viewer, failure, *counted)),
        Fact::Rescheduled { due_at, was_due_at, .. } => (
            "wait",
            "clock",
            html! { b { @if was_due_at.is_some() { "Hurried" } @else { "Next try" } } " " (at(*due_at, seen.now)) },
        ),
        Fact::Dead { reason, tell_owner, .. } => (
            "bad",
            "dead",
            html! { b { "Given up" } ": " (words(reason)) @if !tell_owner { span.dim { ", the owner is not told" } } },
        ),
        Fact::Replayed { run, reason: why, .. } => {
            ("fly", "replays", html! { b { "Replayed" } ", run " (run) (reason(why)) })
        }
        Fact::Cancelled { reason: why, .. } => ("off", "stop", html! { b { "Cancelled" } (reason(why)) }),
        Fact::TellingBegan { .. } => ("off", "mail", html! { b { "Message to the owner" } " may leave" }),
        Fact::OwnerTold { refused: Some(why), .. } => (
            "bad",
            "mail",
            html! { b { "Owner not told" } @if !viewer.is_customer() { ": " (line(why, 200)) } @else { ": the message was refused" } },
        ),
        Fact::OwnerTold { channel, .. } => {
            ("off", "mail", html! { b { "Owner told" } span.dim { " (" (short(channel)) ")" } })
        }
        Fact::EndpointPaused { reason: why, .. } => {
            ("wait", "hold", html! { b { "Endpoint paused" } (reason(why)) })
        }
        Fact::EndpointResumed { .. } => ("good", "fly", html! { b { "Endpoint resumed" } }),
        Fact::EndpointDisabled { reason: why, .. } => (
            "bad",
            "stop",
            html! { b { "Endpoint disabled" } @match why {
                DisabledReason::Gone => ": it answered 410 (gone)",
                DisabledReason::Requested(why) => (reason(why)),
                DisabledReason::Failing { since } => { ": nothing but failures since " (at(*since, seen.now)) },
            } },
        ),
        Fact::EndpointRemoved { reason: why, .. } => {
            ("off", "stop", html! { b { "Endpoint removed" } (reason(why)) })
        }
        Fact::EndpointChanged { settings, .. } => (
            "off",
            "gear",
            html! { b { "Endpoint changed" } @if settings.queue.is_none() { ": URL " code { (line(&settings.url, 120)) } } },
        ),
        Fact::EndpointGated { until, .. } => (
            "wait",
            "hold",
            html! { b { "The receiver asked for patience" } ": nothing to it before " (at(*until, seen.now)) },
        ),
        Fact::SigningKeysChanged { .. } => ("off", "gear", html! { b { "Signing keys replaced" } }),
        Fact::EndpointSecretChanged { .. } => {
            ("off", "gear", html! { b { "The endpoint's own secret replaced" } })
        }
        other => ("off", "gear", html! { b { (other.name()) } }),
    }
}

/// What went wrong, to customers in our words for it only.
fn failed(viewer: &Viewer, failure: &Failure, counted: bool) -> Markup {
    html! {
        @match failure {
            Failure::Error { class: ErrorClass::Interrupted, .. } => { b { "The server restarted" } ": the request was cut off, and is repeated" },
            _ => b { "Failed" },
        }
        @match failure {
            Failure::Error { class: ErrorClass::Interrupted, .. } => {},
            Failure::Answered(response) => { ": HTTP " (response.status) " after " (span(response.took)) },
            Failure::Error { class, detail, reason, took, .. } => {
                ": " (words(class)) " after " (span(*took))
                @let more = beyond(viewer, *class, detail, reason.as_deref());
                @if !more.is_empty() { span.dim { " (" (line(&more, 160)) ")" } }
            },
        }
        @if !counted { span.dim { ", used up no try" } }
    }
}

/// What is known of a failure beyond its class: the server's own words are for staff, a reason for everybody.
fn beyond(viewer: &Viewer, class: ErrorClass, detail: &str, reason: Option<&str>) -> String {
    match !viewer.is_customer() || is_told(class) {
        true => detail.to_owned(),
        false => reason.unwrap_or_default().replace(['_', '-'], " "),
    }
}

/// What is planned: greyed, for it may come otherwise.
fn ahead(seen: &Answer, told: &Told) -> Markup {
    let next = told.out.due_at.as_deref().map(super::parts::read);
    let tries = told.out.tries;
    let used = told.row.tries;
    html! {
        @if let Some(next) = next {
            li.planned { span.dot { (icon("clock")) } div.what {
                p { "Try " (used + 1) " of " (tries)
                    @match told.out.held_by { Some(held) => { ": held (" (held) ")" }, None => { " " (ago(next, seen.now)) } } }
                p.moment { time datetime=(moment(next)) { (at(next, seen.now)) } }
            } }
        }
        @if told.out.held_by.is_none() {
            @for (n, moment_of) in told.planned.iter().enumerate() {
                li.planned { span.dot { (icon("clock")) } div.what {
                    p { "Try " (used as usize + 2 + n) " of " (tries) ", if that fails" }
                    p.moment { "about " (at(*moment_of, seen.now)) }
                } }
            }
            @if told.planned_more > 0 { li.planned { span.dot {} div.what { p { "and " (told.planned_more) " more" } } } }
        }
    }
}
