//! How moments, spans and actors are said, here and wherever the API writes them. Never knows what is told.

use hooklog_projections::fact::Actor;
use hooklog_projections::time::{Millis, Timestamp};

/// RFC 3339, UTC, three digits of a second: every moment in the API.
pub fn moment(at: Timestamp) -> String {
    jiff::fmt::temporal::DateTimePrinter::new().precision(Some(3)).timestamp_to_string(&stamp(at))
}

/// `15:04:10 UTC`, with the day if it is another one.
pub fn moment_near(at: Timestamp, now: Timestamp) -> String {
    let same_day = at.0 / 86_400_000 == now.0 / 86_400_000;
    let format = if same_day { "%H:%M:%S UTC" } else { "%Y-%m-%d %H:%M:%S UTC" };
    stamp(at).strftime(format).to_string()
}

/// `184 ms`, `1.2 s`, `28 min`, `2 h 5 min`, `3 d 4 h`.
pub fn span(span: Millis) -> String {
    let (secs, minutes) = (span.0 / 1000, (span.0 + 30_000) / 60_000);
    match span.0 {
        0..1_000 => format!("{} ms", span.0),
        1_000..10_000 if !span.0.is_multiple_of(1000) => format!("{}.{} s", secs, span.0 % 1000 / 100),
        1_000..60_000 => format!("{secs} s"),
        60_000..3_570_000 => format!("{minutes} min"),
        3_570_000..172_800_000 => match minutes % 60 {
            0 => format!("{} h", minutes / 60),
            rest => format!("{} h {rest} min", minutes / 60),
        },
        _ => format!("{} d {} h", secs / 86_400, secs % 86_400 / 3600),
    }
}

/// A name for whoever did it.
pub fn actor(actor: &Actor) -> String {
    match actor {
        Actor::Hooklog => "Hooklog".into(),
        Actor::Api(name) => name.to_string(),
        Actor::Cli => "the command line".into(),
        Actor::Portal { link, .. } => format!("the portal ({link})"),
    }
}

/// Foreign text within a sentence of ours: on one line, at most so long, without characters that hide, turn or end
/// others, and without what mail clients make a link of.
pub fn plain(text: &str, chars_max: usize) -> String {
    let shown = |c: char| if c.is_control() || is_invisible(c) { '\u{fffd}' } else { c };
    let mut plain: String = text.chars().take(chars_max).map(shown).collect();
    if text.chars().nth(chars_max).is_some() {
        plain.push('…');
    }
    plain.replace("://", ": //")
}

/// Whether a character shows nothing, or turns others around.
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn stamp(at: Timestamp) -> jiff::Timestamp {
    i64::try_from(at.0)
        .ok()
        .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
        .unwrap_or(jiff::Timestamp::MAX)
}

/// What fits into a sentence of a longer text.
pub(super) fn first_line(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    &line[..line.floor_char_boundary(200)]
}

pub(super) fn quoted(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" (“{reason}”)") }
}

pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
