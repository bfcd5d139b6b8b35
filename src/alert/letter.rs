//! What the operator is told, as text, page and JSON. Pure: names no customer, no address and no payload.

use hooklog_projections::time::{Millis, Timestamp};
use serde::Serialize;

use super::alarm::News;
use crate::explain::span;

/// What is told beside the news itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub at: Timestamp,
    pub backlog: u64,
    pub in_flight: u64,
    pub in_flight_max: u64,
    /// Where the server's pages are, if people reach them.
    pub base: Option<&'a str>,
}

/// A message to the operator.
#[derive(Debug, Serialize)]
pub(super) struct Message {
    #[serde(rename = "type")]
    kind: &'static str,
    /// The same however often it is sent.
    pub id: String,
    late_ms: u64,
    lasted_ms: Option<u64>,
    backlog: u64,
    in_flight: u64,
    in_flight_max: u64,
    pub subject: String,
    pub text: String,
    pub html: String,
}

impl Message {
    pub(super) fn of(news: News, about: About<'_>) -> Message {
        let (backlog, out, most) = (about.backlog, about.in_flight, about.in_flight_max);
        let figures = format!("{backlog} deliveries wait in all; {out} of at most {most} requests are out.");
        let page = about.base.map(|base| format!("{base}/"));
        let (kind, late, lasted, subject, mut lines) = match news {
            News::Late { by } => (
                "hooklog.deliveries_late",
                by,
                None,
                format!("Hooklog: deliveries are late, the oldest by {}", span(by)),
                vec![
                    format!(
                        "The oldest due attempt is {} late through this server, not through its receiver. Nothing is \
                         lost; it is not being sent in time.",
                        span(by)
                    ),
                    figures,
                    "What to do: docs/runbook.md, OldestDueAttempt. `hooklog status` says how it goes. You are told \
                     once more, when it is over."
                        .to_owned(),
                ],
            ),
            News::OnTime { lasted, worst } => (
                "hooklog.deliveries_on_time",
                Millis(0),
                Some(lasted.0),
                "Hooklog: deliveries are on time again".to_owned(),
                vec![
                    format!("It lasted {}; at worst, the oldest was {} late.", span(lasted), span(worst)),
                    figures,
                ],
            ),
        };
        lines.extend(page);
        let html = lines.iter().map(|line| format!("<p>{}</p>\n", escaped(line))).collect();
        let what = if lasted.is_some() { "on_time" } else { "late" };
        Message {
            kind,
            id: format!("alr_{}_{what}", about.at.0),
            late_ms: late.0,
            lasted_ms: lasted,
            backlog,
            in_flight: out,
            in_flight_max: most,
            subject,
            text: lines.join("\n\n") + "\n",
            html,
        }
    }
}

fn escaped(line: &str) -> String {
    line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
