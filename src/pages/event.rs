//! The answer page: did we send it? The sentence, what can be done, the whole story, and what went over the wire.
//!
//! An event's page, and a delivery's, which is the same with that one opened. Never words an answer itself.

use axum::extract::{Path, Request};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use hooklog_projections::access::Role;
use hooklog_projections::account::Hold;
use hooklog_projections::ids::{AccountId, AttemptId, DeliveryId};
use hooklog_projections::time::{Millis, Timestamp};
use maud::{Markup, html};
use sha2::{Digest, Sha256};

use super::door::go;
use super::layout::{Live, Page, heading};
use super::overview::{OUTCOMES, TONES};
use super::parts::{
    action, address, at, brief, code, copy, fold, icon, id, outcomes, ratio, read, receiver, status, when,
    words,
};
use super::text::{self, count, short, size};
use super::timeline;
use super::viewer::Viewer;
use crate::api::access::Right;
use crate::api::answer::{self, Answer, Told};
use crate::api::attempts::{AttemptOut, TimingsOut};
use crate::api::deliveries;
use crate::api::endpoints::REASON_CHARS_MAX;
use crate::api::events::{ScopeWord, Wish, replay_of};
use crate::api::form::Form;
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::explain::{moment, span};

/// What an address asks for.
#[derive(Default)]
struct Asked {
    account: Option<AccountId>,
    at: Option<Timestamp>,
    /// The delivery that is opened.
    delivery: Option<DeliveryId>,
    attempt: Option<AttemptId>,
    done: Option<String>,
}

impl Asked {
    fn read(viewer: &Viewer, uri: &Uri) -> Result<Asked, Problem> {
        let mut params = Params::of(uri);
        let account = viewer.api.account_filter(&mut params)?;
        let at = params.one_of("at", moment_of);
        let (done, attempt) = (params.one("done"), None);
        params.finish()?;
        Ok(Asked { account, at, delivery: None, attempt, done })
    }
}

/// RFC 3339, or what a browser's field for a moment gives, which has no offset and is meant as UTC.
fn moment_of(text: &str) -> Result<Timestamp, String> {
    let wrong = || "a time is wanted, as 2026-11-30T09:14:02Z".to_owned();
    let text = text.replace(' ', "+");
    let stamp: jiff::Timestamp = text.parse().or_else(|_| format!("{text}Z").parse()).map_err(|_| wrong())?;
    // A moment without parts of a second means all of it.
    let whole = !text.contains('.');
    let millis = u64::try_from(stamp.as_millisecond()).map_err(|_| wrong())?;
    Ok(Timestamp(if whole { millis + 999 } else { millis }))
}

pub(super) async fn show(
    viewer: Viewer,
    Path(event): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let asked = Asked::read(&viewer, request.uri())?;
    shown(viewer, event, asked).await
}

pub(super) async fn of_delivery(
    viewer: Viewer,
    Path(delivery): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let asked = Asked::read(&viewer, request.uri())?;
    opened(viewer, delivery, asked).await
}

pub(super) async fn of_attempt(
    viewer: Viewer,
    Path(attempt): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let asked = Asked::read(&viewer, request.uri())?;
    let (account, named) = (asked.account, attempt.clone());
    let delivery = viewer.api.read(move |_, view| answer::delivery_of_attempt(view, &named, account)).await?;
    opened(viewer, delivery.to_string(), Asked { attempt: attempt.parse().ok(), ..asked }).await
}

async fn opened(viewer: Viewer, delivery: String, asked: Asked) -> Result<Response, Problem> {
    let account = asked.account;
    let found = viewer.api.read(move |_, view| answer::event_of_delivery(view, &delivery, account)).await?;
    let (account, event, delivery) = found;
    let asked = Asked { account: Some(account), delivery: Some(delivery), ..asked };
    shown(viewer, event.as_str().to_owned(), asked).await
}

async fn shown(viewer: Viewer, event: String, asked: Asked) -> Result<Response, Problem> {
    let (account, at) = (asked.account, asked.at);
    let seen = viewer.api.read(move |api, view| answer::of_event(api, view, &event, account, at)).await?;
    let title =
        format!("{} · {}", seen.event.event_type.chars().take(60).collect::<String>(), seen.id.as_str());
    let only: Vec<_> = seen.deliveries.iter().map(|told| told.id.to_string()).collect();
    let query = format!("account_id={}", seen.account);
    let live = seen.as_of.is_none().then(|| Live { query, swaps: false, only: only.join(" ") });
    let body = Sheet { viewer: &viewer, seen: &seen, asked: &asked }.body();
    viewer.page(StatusCode::OK, Page { title: &title, part: "/events", body, live })
}

/// Replays of an event: all of it that is dead.
pub(super) async fn act(
    viewer: Viewer,
    Path(event): Path<String>,
    uri: Uri,
    mut form: Form,
) -> Result<Response, Problem> {
    let asked = Asked::read(&viewer, &uri)?;
    let what = form.take("do")?.unwrap_or_default();
    let reason = wanted_reason(&viewer, &mut form, &what)?;
    let confirmed = form.take("confirm")?.is_some();
    form.finish()?;
    let scope = match what.as_str() {
        "replay" => ScopeWord::Dead,
        "replay-missing" => ScopeWord::Missing,
        "replay-all" => ScopeWord::All,
        _ => return Err(unknown()),
    };
    let account = asked.account;
    replay_of(&viewer.api, event.clone(), account, Wish::of(scope, confirmed, reason)?).await?;
    back(&viewer, &format!("/events/{event}"), account, "replayed")
}

/// Replays a delivery, hurries it, or calls it off.
pub(super) async fn act_on_delivery(
    viewer: Viewer,
    Path(delivery): Path<String>,
    uri: Uri,
    mut form: Form,
) -> Result<Response, Problem> {
    let asked = Asked::read(&viewer, &uri)?;
    let what = form.take("do")?.unwrap_or_default();
    let reason = wanted_reason(&viewer, &mut form, &what)?;
    let confirmed = form.take("confirm")?.is_some();
    form.finish()?;
    let (api, account) = (&viewer.api, asked.account);
    let key = deliveries::named(api, delivery.clone(), account).await?;
    let done = match what.as_str() {
        "replay" => {
            let scope = if confirmed { ScopeWord::All } else { ScopeWord::Dead };
            deliveries::replay_of(api, key, Wish::of(scope, confirmed, reason)?).await?;
            "replayed"
        }
        "retry-now" => {
            deliveries::hurry(api, key).await?;
            "hurried"
        }
        "cancel" => {
            deliveries::call_off(api, key, reason).await?;
            "cancelled"
        }
        _ => return Err(unknown()),
    };
    back(&viewer, &format!("/deliveries/{delivery}"), account, done)
}

fn unknown() -> Problem {
    Problem::query("do", "the form asks for nothing that is known here")
}

/// Support says why it sends something again; whose events they are need not.
fn wanted_reason(viewer: &Viewer, form: &mut Form, what: &str) -> Result<String, Problem> {
    let reason = form.words("reason", REASON_CHARS_MAX)?;
    let wanted = viewer.role == Some(Role::Support) && what != "retry-now";
    if wanted && reason.is_empty() {
        return Err(Problem::query("reason", "say why, for those who read the history"));
    }
    Ok(reason)
}

fn back(viewer: &Viewer, path: &str, account: Option<AccountId>, done: &str) -> Result<Response, Problem> {
    let account = account.filter(|_| !viewer.is_customer());
    let account = account.map(|account| format!("account_id={account}&")).unwrap_or_default();
    go(&viewer.to(&format!("{path}?{account}done={done}")))
}

/// The page, being written.
struct Sheet<'a> {
    viewer: &'a Viewer,
    seen: &'a Answer,
    asked: &'a Asked,
}

impl Sheet<'_> {
    fn body(&self) -> Markup {
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

    /// What names the account, where an id alone may not do.
    fn account_query(&self) -> String {
        if self.viewer.is_customer() { String::new() } else { format!("account_id={}", self.seen.account) }
    }

    /// An address of this page at a moment.
    fn at(&self, moment_of: Option<Timestamp>) -> String {
        let account = self.account_query();
        let at = moment_of.map(|at| format!("at={}", moment(at)));
        let query: Vec<_> =
            [Some(account), at].into_iter().flatten().filter(|part| !part.is_empty()).collect();
        self.viewer.to(&format!("{}?{}", self.path(), query.join("&")))
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
                }
            }
        }
    }

    /// With several deliveries, what is dead of them is replayed at once.
    fn event_actions(&self) -> Markup {
        let seen = self.seen;
        let dead = seen.deliveries.iter().filter(|told| told.out.status == "dead").count();
        if seen.deliveries.len() < 2 || dead == 0 {
            return html! {};
        }
        let path = format!("/events/{}?{}", seen.id.as_str(), self.account_query());
        let words = format!("Replay the {dead} dead");
        html! { div.actions { (action(self.viewer, &path, "replay", &words, "replays", self.may_act(), self.reason())) } }
    }

    fn may_act(&self) -> Option<&'static str> {
        (!self.viewer.may(Right::Act)).then_some("Your key only looks.")
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
        let path = format!("/deliveries/{}?{}", told.id, self.account_query());
        let may = self.may_act();
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

    fn attempt(&self, told: &Told, attempt: &AttemptOut) -> Markup {
        let now = self.seen.now;
        let newest = told.attempts.last().map(|last| last.id);
        let open = self.asked.attempt.or(newest) == Some(attempt.id);
        let took = attempt.took_ms.map(|took| span(Millis(took)));
        let head = html! {
            b { "Request " (attempt.number) } " "
            (status(attempt.status, None))
            " " @match (attempt.status_code, attempt.error) {
                (Some(code), _) => span.code { "HTTP " (code) },
                (None, Some(error)) => span.code { (words(&error)) },
                (None, None) => {},
            }
            " " span.dim { @if let Some(took) = &took { (took) " · " } (at(read(&attempt.started_at), now)) }
        };
        let request = self.request(told, attempt);
        fold(
            head,
            open,
            html! {
                @if let Some(detail) = &attempt.detail { p { (text::sentence(detail)) } }
                p.dim {
                    "Try " (attempt.r#try) " of run " (attempt.run)
                    @if let Some(rule) = &attempt.rule { " · verdict by the rule " code { (short(rule)) } }
                    @if attempt.counted == Some(false) { " · used up no try" }
                    @if let Some(address) = &attempt.address { " · " code { (short(address)) } }
                    @if attempt.reused == Some(true) { " · on a kept connection" }
                    @if attempt.resent == Some(true) { " · sent once more on a fresh connection" }
                    " · " a href=(self.viewer.to(&format!("/attempts/{}?{}", attempt.id, self.account_query()))) { "link" }
                }
                @if let Some(timings) = &attempt.timings { (course(timings)) }
                @if let Some(request) = request { h4 { "Request, as sent" } (code("The request's head", request)) }
                @if attempt.status_code.is_some() {
                    h4 { "Answer" }
                    (code("The answer's head", html! {
                        "HTTP " (attempt.status_code.unwrap_or_default()) "\n"
                        @for (name, value) in &attempt.response_headers { (short(name)) ": " (text::line(value, 400)) "\n" }
                    }))
                    @match attempt.response_body.as_deref() {
                        Some(body) if !body.is_empty() => {
                            (code("The answer's body", text::bytes(body.as_bytes())))
                            @if let Some(cut) = text::cut(body.len()) { (cut) }
                            @if attempt.response_truncated == Some(true) { p.note { "The receiver sent more than is kept." } }
                        },
                        _ => p.dim { "The answer had no body, or none that is kept." },
                    }
                }
            },
        )
    }

    /// The head of a request, as it was made; what was never written down is said to be so.
    fn request(&self, told: &Told, attempt: &AttemptOut) -> Option<Markup> {
        let (_, made) = told.requests.iter().find(|(id, _)| *id == attempt.id)?;
        let keys: Vec<_> =
            made.signed_with.iter().map(|key| format!("key …{:06}", key.0 % 1_000_000)).collect();
        Some(html! {
            (made.method) " " (text::line(&made.url, 400)) "\n"
            @for (name, value) in &made.headers {
                (short(name)) ": "
                @match (&**value, &**name) {
                    ("[not kept]", "webhook-timestamp") => span.dim { "the second it left" },
                    ("[not kept]", "webhook-signature") => span.dim { "by " (keys.join(", ")) "; not kept" },
                    ("[not kept]", _) => span.dim { "by " @if told.endpoint.secret.is_some() { "the endpoint's own secret" } @else { "the account's secret" } "; not kept" },
                    ("[redacted]", _) => span.dim { "[redacted]" },
                    (value, _) => (text::line(value, 400)),
                }
                "\n"
            }
            "\n" span.dim { "[" (size(made.body.size)) " of payload, as below]" }
        })
    }

    fn meanwhile(&self, told: &Told) -> Markup {
        let Some((from, hour)) = &told.hour else { return html! {} };
        let (all, failed) = (hour.attempts(), hour.failed);
        let theirs = all >= 5 && failed * 5 >= all * 4;
        let parts = outcomes(hour);
        let since = moment(*from);
        let until = moment(Timestamp(from.0 + 3_600_000));
        let list = format!(
            "/deliveries?account_id={}&endpoint_id={}&since={since}&until={until}",
            self.seen.account, told.endpoint_key.endpoint
        );
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

    fn payload(&self) -> Markup {
        let (seen, body) = (self.seen, &self.seen.body);
        let hash: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
        let laid = std::str::from_utf8(body).ok().filter(|text| text.len() <= text::BODY_BYTES);
        let laid = laid.and_then(text::indented);
        let path = format!("/events/{}/payload?{}", seen.id.as_str(), self.account_query());
        html! {
            section.card.payload #payload {
                div.headline { h2 { "Payload" }
                    span.dim { (size(body.len() as u64)) " · " (short(&seen.event.body.content_type)) }
                    a.button href=(self.viewer.to(path.trim_end_matches('?'))) { (icon("down")) "Download" }
                }
                p.dim.hash { "SHA-256 " code { (hash) } (copy(&hash)) }
                @match &laid {
                    Some(laid) => {
                        (code("The payload, laid out", text::block(laid)))
                        (fold(html! { "Exact bytes" }, false, code("The payload, byte for byte", text::bytes(body))))
                    },
                    None => {
                        (code("The payload, byte for byte", text::bytes(body)))
                        @if let Some(cut) = text::cut(body.len()) { (cut) }
                    },
                }
            }
        }
    }
}

/// Where a person says why. Support must.
pub(super) fn reason_field(viewer: &Viewer) -> Markup {
    let wanted = viewer.role == Some(Role::Support);
    let example = if wanted { "why, for the history" } else { "for the history, if you like" };
    html! {
        label.reason { span { "Reason" }
            input type="text" name="reason" maxlength=(REASON_CHARS_MAX) required[wanted] placeholder=(example) autocomplete="off";
        }
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

/// Where an attempt's time went.
fn course(timings: &TimingsOut) -> Markup {
    let parts = [
        ("name", timings.dns_us),
        ("connect", timings.connect_us),
        ("TLS", timings.tls_us),
        ("first byte", timings.first_byte_us),
        ("body", timings.body_us),
    ];
    let known: Vec<_> = parts.into_iter().filter_map(|(name, us)| Some((name, us?))).collect();
    let total: u64 = known.iter().map(|(_, us)| us).sum::<u64>().max(1);
    let mut x = 0;
    let bars: Vec<(u64, u64)> = known
        .iter()
        .map(|(_, us)| {
            let (from, width) = (x, (us * 1_000 / total).max(2));
            x += width;
            (from, width)
        })
        .collect();
    html! {
        div.course {
            svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
                @for (at, (x, width)) in bars.iter().enumerate() {
                    rect.(format!("part{at}")) x=(x) y="0" width=(width) height="10" {}
                }
            }
            ul.legend { @for (at, (name, us)) in known.iter().enumerate() { li { span.swatch.(format!("part{at}")) {} (name) " " b { (micros(*us)) } } }
                li { "queued " b { (span(Millis(timings.queue_ms))) } }
            }
        }
    }
}

fn micros(us: u64) -> String {
    if us < 10_000 { format!("{}.{} ms", us / 1_000, us % 1_000 / 100) } else { span(Millis(us / 1_000)) }
}
