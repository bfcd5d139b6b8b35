//! The components that pages are made of: badges, moments, ids, code, actions. One set for the console and the
//! portal. Never knows a page, and never reads anything.

use hooklog_projections::access::Role;
use hooklog_projections::hour::Hour;
use hooklog_projections::ids::{AccountId, EndpointKey};
use hooklog_projections::time::Timestamp;
use maud::{Markup, html};

use super::text::{self, short};
use super::viewer::Viewer;
use crate::api::endpoints::REASON_CHARS_MAX;
use crate::api::wire::DeliveryOut;
use crate::explain::{moment, moment_near, span};

/// An icon of the sprite that every page carries.
pub(super) fn icon(name: &str) -> Markup {
    html! { svg.icon aria-hidden="true" { use href={ "#i-" (name) }; } }
}

/// A status: an icon, a word and a colour.
pub(super) fn badge(tone: &str, picture: &str, word: &str) -> Markup {
    html! { span.badge.(tone) { (icon(picture)) (word) } }
}

/// A delivery's status, and what holds it.
pub(super) fn status(status: &str, held_by: Option<&str>) -> Markup {
    match (status, held_by) {
        ("pending", Some(held)) => badge("wait", "hold", &format!("held · {held}")),
        ("pending", None) => badge("wait", "clock", "pending"),
        ("in_flight", _) => badge("fly", "fly", "in flight"),
        ("delivered", _) => badge("good", "check", "delivered"),
        ("dead", _) => badge("bad", "cross", "dead"),
        ("cancelled", _) => badge("off", "stop", "cancelled"),
        ("failed", _) => badge("bad", "cross", "failed"),
        (other, _) => badge("off", "stop", other),
    }
}

/// A moment near now: the time, with its day if it is another one.
pub(super) fn at(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(moment(at)) title=(moment(at)) { (moment_near(at, now).trim_end_matches(" UTC")) } }
}

/// `3 h ago`, `in 28 min`.
pub(super) fn ago(at: Timestamp, now: Timestamp) -> Markup {
    let (past, future) = (now.since(at), at.since(now));
    let words = match () {
        () if future.0 >= 1_000 => format!("in {}", span(future)),
        () if past.0 < 1_000 => "just now".into(),
        () => format!("{} ago", span(past)),
    };
    html! { time datetime=(moment(at)) title=(moment(at)) { (words) } }
}

/// A moment, and how far off it is.
pub(super) fn when(moment: Timestamp, now: Timestamp) -> Markup {
    html! { (at(moment, now)) " " span.dim { "(" (ago(moment, now)) ")" } }
}

/// A moment of the API's, as a page shows it.
pub(super) fn read(moment: &str) -> Timestamp {
    let parsed: Option<jiff::Timestamp> = moment.parse().ok();
    Timestamp(parsed.and_then(|at| u64::try_from(at.as_millisecond()).ok()).unwrap_or_default())
}

/// An id that can be copied.
pub(super) fn id(text: &str) -> Markup {
    html! { span.id { code { (short(text)) } (copy(text)) } }
}

/// A long id by its end, which is what tells it from others.
pub(super) fn brief(id: &str) -> Markup {
    let (prefix, rest) = id.split_once('_').unwrap_or(("", id));
    let chars: Vec<char> = rest.chars().collect();
    let known = matches!(prefix, "evt" | "dlv" | "ep" | "acct" | "rpl" | "key" | "pl");
    html! {
        code title=(id) {
            @if known && chars.len() > 10 {
                (prefix) "_…" (chars[chars.len() - 6..].iter().collect::<String>())
            } @else {
                (text::line(id, 24))
            }
        }
    }
}

/// A button that copies a text; it is there only where scripts run.
pub(super) fn copy(text: &str) -> Markup {
    html! {
        button.copy.scripted type="button" data-copy=(text) title="Copy" aria-label={ "Copy " (text.chars().take(40).collect::<String>()) } {
            (icon("copy"))
        }
    }
}

/// An account, by its name.
pub(super) fn account(_viewer: &Viewer, id: AccountId, name: &str) -> Markup {
    html! { span title=(id.to_string()) { (text::line(name, 40)) } }
}

/// One figure of a strip.
pub(super) fn tile(name: &str, figure: &str, note: &str) -> Markup {
    toned(name, figure, note, "off")
}

/// One figure of a strip, with a colour.
pub(super) fn toned(name: &str, figure: &str, note: &str, tone: &str) -> Markup {
    html! { div.tile.(tone) { dt { (name) } dd { b { (figure) } span.dim { (note) } } } }
}

/// `28 min`: how long it is until a moment.
pub(super) fn until(at: Timestamp, now: Timestamp) -> String {
    span(at.since(now))
}

/// `3 h`: how long a moment is past.
pub(super) fn since(at: Timestamp, now: Timestamp) -> String {
    span(now.since(at))
}

/// A block of text that was sent or received.
pub(super) fn code(label: &str, body: Markup) -> Markup {
    html! { pre.code tabindex="0" role="group" aria-label=(label) { code { (body) } } }
}

/// The same with a button that copies it; the text stands on the page once, and in no mark.
pub(super) fn copied(id: &str, label: &str, body: Markup) -> Markup {
    html! {
        pre.code #(id) tabindex="0" role="group" aria-label=(label) { code { (body) } }
        button.scripted type="button" data-copy-of=(id) { (icon("copy")) "Copy" }
    }
}

/// Something that is opened to be seen.
pub(super) fn fold(summary: Markup, open: bool, body: Markup) -> Markup {
    html! { details.fold open[open] { summary { (summary) } div.folded { (body) } } }
}

/// A form that changes something: one button, with why it cannot be pressed if so.
pub(super) fn action(
    viewer: &Viewer,
    path: &str,
    what: &str,
    words: &str,
    picture: &str,
    refused: Option<&str>,
    more: Markup,
) -> Markup {
    html! {
        @match refused {
            Some(why) => span.action.refused {
                button type="button" aria-disabled="true" disabled { (icon(picture)) (words) }
                span.why { (why) }
            },
            None => form.action method="post" action=(viewer.to(path)) {
                (hidden(viewer, what))
                (more)
                button type="submit" { (icon(picture)) (words) }
            },
        }
    }
}

/// What every form carries: the page's token, and what is to be done.
pub(super) fn hidden(viewer: &Viewer, what: &str) -> Markup {
    html! {
        input type="hidden" name="csrf" value=(viewer.api.csrf_token());
        @if !what.is_empty() { input type="hidden" name="do" value=(what); }
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

/// The host of an endpoint, or its queue.
pub(super) fn receiver(url: &str, queue: Option<&str>) -> Markup {
    html! {
        @match queue {
            Some(queue) => span title="A worker queue" { "queue " (short(queue)) },
            None => span title=(url.chars().take(400).collect::<String>()) { (short(&host(url))) },
        }
    }
}

/// The host of an endpoint and the path there, by which two at one host are told apart. Never its query.
pub(super) fn address(url: &str, queue: Option<&str>) -> Markup {
    let path = url::Url::parse(url).ok().map(|url| url.path().to_owned()).filter(|path| path != "/");
    html! { (receiver(url, queue)) @if let (Some(path), None) = (path, queue) { span.dim.path { (text::line(&path, 40)) } } }
}

/// The path of an endpoint's page.
pub(super) fn endpoint_path(viewer: &Viewer, key: EndpointKey) -> String {
    viewer.in_account(&format!("/endpoints/{}", key.endpoint), key.account)
}

/// The host in a URL, with its port if it is no usual one.
pub(super) fn host(url: &str) -> String {
    let parsed = url::Url::parse(url).ok();
    let host = parsed.as_ref().and_then(|url| {
        let host = url.host_str()?;
        Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    });
    host.unwrap_or_else(|| url.to_owned())
}

/// Rows of deliveries; on a narrow page each is a card.
pub(super) fn deliveries<'a>(
    viewer: &Viewer,
    caption: &str,
    rows: &[DeliveryOut],
    account: impl Fn(AccountId) -> Option<&'a str>,
) -> Markup {
    let accounts = !viewer.is_customer();
    html! {
        table.rows {
            caption.unseen { (caption) }
            thead { tr {
                th scope="col" { "Time" }
                th scope="col" { "Event" }
                @if accounts { th scope="col" { "Account" } }
                th scope="col" { "Endpoint" }
                th scope="col" { "Status" }
                th.number scope="col" { "Try" }
                th scope="col" { "Last answer" }
                th scope="col" { "Next try" }
            } }
            tbody {
                @for row in rows { (delivery(viewer, row, accounts.then(|| account(row.account_id).unwrap_or_default()))) }
            }
        }
    }
}

fn delivery(viewer: &Viewer, row: &DeliveryOut, account: Option<&str>) -> Markup {
    let created = read(&row.created_at);
    let path = format!("/deliveries/{}", row.id);
    html! {
        tr {
            td data-label="Time" { (at(created, viewer.now)) }
            th.main scope="row" data-label="Event" {
                a.row href=(viewer.to(&path)) { (text::line(&row.event_type, 48)) }
                " " span.dim { (brief(row.event_id.as_str())) }
            }
            @if let Some(name) = account { td data-label="Account" { (self::account(viewer, row.account_id, name)) } }
            td data-label="Endpoint" { (receiver(&row.endpoint_url, row.queue.as_deref())) }
            td data-label="Status" { (status(row.status, row.held_by)) }
            td.number data-label="Try" { (row.r#try) "/" (row.tries) @if row.run > 1 { span.dim title={ "Run " (row.run) ": it was replayed" } { " ·r" (row.run) } } }
            td data-label="Last answer" { (last_answer(row)) }
            td data-label="Next try" {
                @match row.due_at.as_deref().filter(|_| row.held_by.is_none()) {
                    Some(due) => (ago(read(due), viewer.now)),
                    None => span.dim { "–" },
                }
            }
        }
    }
}

fn last_answer(row: &DeliveryOut) -> Markup {
    let Some(last) = &row.last_attempt else { return html! { span.dim { "–" } } };
    let took = span(hooklog_projections::time::Millis(last.took_ms));
    html! {
        @match (last.status_code, last.error) {
            (Some(status), _) => span { (status) },
            (None, Some(error)) => span { (words(&error)) },
            (None, None) => span { "done" },
        }
        " " span.dim { (took) }
    }
}

/// The word of a kind, as the API has it, with blanks.
pub(super) fn words(kind: &impl serde::Serialize) -> String {
    let word = serde_json::to_value(kind).ok().and_then(|value| value.as_str().map(str::to_owned));
    word.unwrap_or_default().replace('_', " ")
}

/// `97.3 %`, and never 100 % if one failed; `–` of nothing.
pub(super) fn ratio(good: u64, all: u64) -> String {
    if all == 0 {
        return "–".into();
    }
    let tenths = (u128::from(good) * 1_000 / u128::from(all)) as u64;
    if tenths == 1_000 { "100 %".into() } else { format!("{}.{} %", tenths / 10, tenths % 10) }
}

/// How many attempts had no answer, of a sort that is the receiver's.
pub(super) fn outcomes(hour: &Hour) -> [u64; 4] {
    let class = &hour.classes;
    // 2xx and done; 3xx and 4xx; 5xx and a worker's no; no answer at all.
    let silent: u64 = class[4..13].iter().sum::<u64>() + class[15];
    [class[0] + class[13], class[1] + class[2], class[3] + class[14], silent]
}
