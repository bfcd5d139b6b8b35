//! What went over the wire, on the answer page: each request as it was made, its answer as it is kept, where its time
//! went, and the payload byte for byte. What was never written down is said to be so, and nothing is made up.

use bytes::Bytes;
use hooklog_projections::time::Millis;
use maud::{Markup, html};
use sha2::{Digest, Sha256};

use super::answer::Sheet;
use super::parts::{at, code, copied, copy, fold, icon, read, status, words};
use super::text::{self, short, size};
use crate::api::answer::Told;
use crate::api::attempts::{AttemptOut, TimingsOut};
use crate::api::tried::RequestOut;
use crate::explain::span;

/// Bytes of a payload that stand in a command; more are read from its download.
const INLINE_BYTES_MAX: usize = 4 * 1024;

impl Sheet<'_> {
    pub(super) fn attempt(&self, told: &Told, attempt: &AttemptOut) -> Markup {
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
        let made = told.requests.iter().find(|(id, _)| *id == attempt.id);
        let command = made.map(|(_, made)| curl(made, &self.seen.body, self.seen.id.as_str()));
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
                    " · " a href=(self.viewer.to(&self.in_account(&format!("/attempts/{}", attempt.id)))) { "link" }
                }
                @if let Some(timings) = &attempt.timings { (course(timings)) }
                @if let Some(request) = request { h4 { "Request, as sent" } (code("The request's head", request)) }
                @if let Some(command) = command { (fold(html! { "As a curl command" }, false, copied(&format!("curl-{}", attempt.id), "The request as a command", text::block(&command)))) }
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

    pub(super) fn payload(&self) -> Markup {
        let (seen, body) = (self.seen, &self.seen.body);
        let hash: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
        let laid = std::str::from_utf8(body).ok().filter(|text| text.len() <= text::BODY_BYTES);
        let laid = laid.and_then(text::indented);
        let path = self.in_account(&format!("/events/{}/payload", seen.id.as_str()));
        html! {
            section.card.payload #payload {
                div.headline { h2 { "Payload" }
                    span.dim { (size(body.len() as u64)) " · " (short(&seen.event.body.content_type)) }
                    a.button href=(self.viewer.to(&path)) { (icon("down")) "Download" }
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

/// The request as a command for a shell. What is written down nowhere, or is nobody's to copy, is left out and named.
fn curl(made: &RequestOut, payload: &Bytes, event: &str) -> String {
    let (mut left, mut head) = (Vec::new(), String::new());
    for (name, value) in &made.headers {
        match value.as_str() {
            "[not kept]" | "[redacted]" => left.push(name.as_str()),
            _ if matches!(name.as_str(), "content-length" | "host") => {}
            value => head.push_str(&format!(" \\\n  -H {}", quoted(&format!("{name}: {value}")))),
        }
    }
    let sent = made.body.sent(payload, event);
    // What a page shows by signs would be copied as signs.
    let seen = std::str::from_utf8(&sent).ok();
    let seen = seen.filter(|seen| seen.len() <= INLINE_BYTES_MAX && text::shows_as_it_is(seen));
    let body = match seen {
        Some(text) => format!("--data-raw {}", quoted(text)),
        // As the download is called.
        None => format!("--data-binary @{event}.bin"),
    };
    let mut out = String::new();
    if !left.is_empty() {
        out.push_str(&format!("# Left out, for it is not kept or not to be copied: {}\n", left.join(", ")));
    }
    out.push_str(&format!("curl -g -X {} {}{head} \\\n  {body}", made.method, quoted(&made.url)));
    out
}

/// A text as a shell takes it, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
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

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_shell_takes_a_text_as_it_is() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $(x) `y`"), "'it'\\''s $(x) `y`'");
    }
}
