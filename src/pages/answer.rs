//! The answer page: did we send it? The sentence, what can be done, the whole story, and what else went on at the time.
//!
//! What went over the wire is in `wire`. Never words an answer itself.

use hooklog_projections::account::Hold;
use hooklog_projections::time::Timestamp;
use maud::{Markup, html};

use super::event::Asked;
use super::layout::heading;
use super::overview::{OUTCOMES, TONES};
use super::parts::{
    action, address, brief, code, fold, icon, id, outcomes, ratio, reason_field, receiver, status, when,
};
use super::text::{self, count, short};
use super::timeline;
use super::viewer::Viewer;
use crate::api::access::Right;
use crate::api::answer::{self, Answer, Told};
use crate::explain::moment;

/// The page, being written.
pub(super) struct Sheet<'a> {
    pub viewer: &'a Viewer,
    pub seen: &'a Answer,
    pub asked: &'a Asked,
}

impl Sheet<'_> {
    pub(super) fn body(&self) -> Markup {
        let (viewer, seen) = (self.viewer, self.seen);
        html! {
            (heading(
                html! { span.type { (text::line(&seen.event.event_type, 80)) } },
                html! {
                    (id(seen.id.as_str()))
                    @if !viewer.is_customer() { span { (short(&seen.account_name)) " " (brief(&seen.account.to_string())) } }
                    span.dim { "taken in " (when(seen.event.accepted_at, seen.now)) }
                },
            ))
            @if let Some(done) = &self.asked.done { (notice(done)) }
            (self.then())
            (self.answer())
            @match seen.deliveries.as_slice() {
                [] => {},
                [only] => (self.delivery(only, true)),
                many => {
                    (self.list(many))
                    @for told in many { (self.delivery(told, self.asked.delivery == Some(told.id))) }
                },
            }
            (self.payload())
        }
    }

    fn path(&self) -> String {
        match self.asked.delivery {
            Some(delivery) => format!("/deliveries/{delivery}"),
            None => format!("/events/{}", self.seen.id.as_str()),
        }
    }

    /// A path that names the account, where an id alone may not do.
    pub(super) fn in_account(&self, path: &str) -> String {
        self.viewer.in_account(path, self.seen.account)
    }

    /// An address of this page at a moment.
    fn at(&self, moment_of: Option<Timestamp>) -> String {
        let path = match moment_of {
            Some(at) => format!("{}?at={}", self.path(), moment(at)),
            None => self.path(),
        };
        self.viewer.to(&self.in_account(&path))
    }

    /// The page as it was: where it stands, and steps from fact to fact.
    fn then(&self) -> Markup {
        let seen = self.seen;
        let stories = seen.deliveries.iter().flat_map(|told| &told.story);
        let before = stories.map(|entry| entry.at).filter(|at| *at < seen.now).max();
        // A step back from now is to before the newest fact; from a moment, to before what it shows.
        let newest = seen.deliveries.iter().flat_map(|told| &told.story).map(|entry| entry.at).max();
        let earlier = newest.or(before).and_then(|at| at.0.checked_sub(1)).map(Timestamp);
        let value = moment(Timestamp(seen.now.0 / 1_000 * 1_000));
        html! {
            details.then open[seen.as_of.is_some()] {
                summary { (icon("clock")) " "
                    @match seen.as_of {
                        Some(then) => { b { "As of " (moment(then)) } },
                        None => "As of an earlier moment",
                    }
                }
                form method="get" action=(self.viewer.to(&self.path())) {
                    @if !self.viewer.is_customer() { input type="hidden" name="account_id" value=(self.seen.account.to_string()); }
                    label for="at" { "Moment (UTC)" }
                    input #at type="datetime-local" name="at" step="1" value=(&value[..19]) required;
                    button type="submit" { "Show" }
                    @if let Some(earlier) = earlier { a href=(self.at(Some(earlier))) { "Before its newest fact" } }
                    @if seen.as_of.is_some() { a href=(self.at(None)) { "Now" } }
                }
            }
        }
    }

    fn answer(&self) -> Markup {
        let told = &self.seen.explanation;
        let (verdict, rest) = verdict(&told.sentence);
        let (tone, picture) = match verdict {
            "Yes." => ("good", "check"),
            "No." => ("bad", "cross"),
            "Not yet." => ("wait", "clock"),
            _ => ("off", "info"),
        };
        html! {
            section.answer.(tone) aria-labelledby="answer" {
                div.mark { (icon(picture)) }
                div {
                    h2 #answer { @if !verdict.is_empty() { strong { (verdict) } " " } (text::sentence(rest)) }
                    @if !told.reasons.is_empty() { ul { @for reason in &told.reasons { li { (text::sentence(reason)) } } } }
                    @if !told.next_step.is_empty() { p.next { b { "Next: " } (text::sentence(&told.next_step)) } }
                    @if self.seen.as_of.is_none() { (self.event_actions()) }
                    p.links { a href=(self.evidence()) download { (icon("down")) " Download evidence" } }
                }
            }
        }
    }

    /// The address of all that there is, at the page's moment.
    fn evidence(&self) -> String {
        let path = format!("/events/{}/evidence", self.seen.id.as_str());
        let path = self.seen.as_of.map_or(path.clone(), |at| format!("{path}?at={}", moment(at)));
        self.viewer.to(&self.in_account(&path))
    }

    /// With several deliveries, what is dead of them is replayed at once.
    fn event_actions(&self) -> Markup {
        let seen = self.seen;
        let dead = seen.deliveries.iter().filter(|told| told.out.status == "dead").count();
        if seen.deliveries.len() < 2 || dead == 0 {
            return html! {};
        }
        let path = self.in_account(&format!("/events/{}", seen.id.as_str()));
        let words = format!("Replay the {dead} dead");
        html! { div.actions { (action(self.viewer, &path, "replay", &words, "replays", self.viewer.barred(Right::Act), self.reason())) } }
    }

    fn reason(&self) -> Markup {
        reason_field(self.viewer)
    }

    fn list(&self, many: &[Told]) -> Markup {
        html! {
            section {
                h2 { (many.len()) " deliveries" }
                table.rows {
                    caption.unseen { "Deliveries of this event" }
                    thead { tr { th scope="col" { "Endpoint" } th scope="col" { "Status" } th.number scope="col" { "Try" } th scope="col" { "Answer" } } }
                    tbody { @for told in many { tr {
                        th.main scope="row" data-label="Endpoint" { a.row href={ "#" (told.id.to_string()) } { (receiver(&told.out.endpoint_url, told.out.queue.as_deref())) } }
                        td data-label="Status" { (status(told.out.status, told.out.held_by)) }
                        td.number data-label="Try" { (told.out.r#try) "/" (told.out.tries) }
                        td data-label="Answer" { (text::sentence(&told.explanation.sentence)) }
                    } } }
                }
            }
        }
    }

    fn delivery(&self, told: &Told, open: bool) -> Markup {
        let body = html! {
            @if self.seen.as_of.is_none() { (self.actions(told)) }
            div.columns {
                section.story { h3 { "What happened" } (timeline::list(self.viewer, self.seen, told, &|at| self.at(Some(at)))) }
                div.wire {
                    section { h3 { "Requests and answers" }
                        @if told.attempts.is_empty() { p.dim { "No request was made yet." } }
                        @for attempt in told.attempts.iter().rev() { (self.attempt(told, attempt)) }
                    }
                    (self.meanwhile(told))
                    (self.raw(told))
                }
            }
        };
        let head = html! {
            span.receiver { (address(&told.out.endpoint_url, told.out.queue.as_deref())) }
            (status(told.out.status, told.out.held_by))
            span.dim { "try " (told.out.r#try) " of " (told.out.tries) @if told.out.run > 1 { ", run " (told.out.run) } }
        };
        html! {
            @if self.seen.deliveries.len() == 1 {
                section.delivery #(told.id.to_string()) { div.headline { (head) (id(&told.id.to_string())) } (body) }
            } @else {
                details.delivery #(told.id.to_string()) open[open] { summary.headline { (head) } p { (id(&told.id.to_string())) } (body) }
            }
        }
    }

    fn actions(&self, told: &Told) -> Markup {
        let path = self.in_account(&format!("/deliveries/{}", told.id));
        let may = self.viewer.barred(Right::Act);
        let held = match &told.endpoint.hold {
            Some(Hold::Disabled { .. }) => Some("The endpoint is disabled; resume it first."),
            Some(Hold::Removed { .. }) => Some("The endpoint was removed."),
            Some(Hold::Paused { .. }) => Some("The endpoint is paused; resume it first."),
            None => None,
        };
        // A paused endpoint takes replays and holds them.
        let replays = held.filter(|_| !matches!(told.endpoint.hold, Some(Hold::Paused { .. })));
        let (status, delivered) = (told.out.status, told.out.status == "delivered");
        let not_pending = match status {
            "pending" => None,
            "in_flight" => Some("A request is out."),
            _ => Some("It does not wait."),
        };
        let replay = may.or(replays).or(match status {
            "dead" | "delivered" => None,
            "in_flight" => Some("A request is out."),
            "pending" => Some("It waits already: retry it."),
            _ => Some("It was cancelled; send it anew."),
        });
        let retry = may.or(not_pending).or(held);
        let cancel = may.or(not_pending);
        let where_to = html! {
            p.plan { "Sends the same event id to " code { (text::line(&told.endpoint.settings.url, 120)) } " as it is set now." }
            @if delivered { label.check { input type="checkbox" name="confirm" value="1" required; " It was delivered: send it a second time" } }
            (self.reason())
        };
        html! {
            div.actions {
                (action(self.viewer, &path, "retry-now", "Retry now", "clock", retry, html! {}))
                @if replay.is_none() {
                    details.ask { summary { (icon("replays")) "Replay…" } (action(self.viewer, &path, "replay", "Replay", "replays", None, where_to)) }
                } @else { (action(self.viewer, &path, "replay", "Replay…", "replays", replay, html! {})) }
                @if cancel.is_none() {
                    details.ask { summary { (icon("stop")) "Cancel…" } (action(self.viewer, &path, "cancel", "Cancel the delivery", "stop", None, self.reason())) }
                } @else { (action(self.viewer, &path, "cancel", "Cancel…", "stop", cancel, html! {})) }
            }
        }
    }

    fn meanwhile(&self, told: &Told) -> Markup {
        let Some((from, hour)) = &told.hour else { return html! {} };
        let (all, failed) = (hour.attempts(), hour.failed);
        let theirs = all >= 5 && failed * 5 >= all * 4;
        let parts = outcomes(hour);
        let since = moment(*from);
        let until = moment(Timestamp(from.0 + 3_600_000));
        let endpoint = told.endpoint_key.endpoint;
        let list =
            self.in_account(&format!("/deliveries?endpoint_id={endpoint}&since={since}&until={until}"));
        html! {
            section.meanwhile { h3 { "The same endpoint in the same hour" }
                p { (count(failed)) " of " (count(all)) " attempts failed (" (ratio(hour.delivered, all)) " arrived)."
                    @if theirs { " " b { "This looks like their outage, not ours." } }
                }
                ul.legend { @for (at, n) in parts.iter().enumerate() { @if *n > 0 { li { span.swatch.(TONES[at]) {} (OUTCOMES[at]) " " b { (count(*n)) } } } } }
                p.links { a href=(self.viewer.to(&list)) { "Deliveries of that hour" } }
            }
        }
    }

    fn raw(&self, told: &Told) -> Markup {
        let facts: Vec<_> = told.story.iter().map(|entry| answer::raw(&self.viewer.api, entry)).collect();
        fold(
            html! { "Raw facts" span.dim { " (" (facts.len()) ")" } },
            false,
            html! { (code("Facts as JSON", html! { @for fact in &facts { (text::block(&fact.to_string())) "\n" } })) },
        )
    }
}

/// A sentence's first word, if it is one of those that answer.
fn verdict(sentence: &str) -> (&str, &str) {
    for verdict in ["Yes.", "Not yet.", "No."] {
        if let Some(rest) = sentence.strip_prefix(verdict) {
            return (verdict, rest.trim_start());
        }
    }
    ("", sentence)
}

fn notice(done: &str) -> Markup {
    let words = match done {
        "replayed" => "It was replayed: a new run began, under the same event id.",
        "hurried" => "It is tried now.",
        "cancelled" => "It was cancelled.",
        _ => return html! {},
    };
    html! { p.banner.good role="status" { (icon("check")) span { (words) } } }
}
