//! `Retry-After` (RFC 9110 §10.2.3): how long a receiver asks to be left alone. Rules H1 to H3.
//!
//! Pure. Never knows the schedule that the wait is weighed against.

use std::time::{SystemTime, UNIX_EPOCH};

use hooklog_projections::time::{Millis, Timestamp};

/// The longest wait that is obeyed. Without one, a receiver could park a delivery for ever.
pub const CAP: Millis = Millis::from_secs(24 * 60 * 60);

/// How far the receiver's own `Date` may be from our clock to be believed.
const DATE_SKEW_MAX: Millis = Millis::from_secs(24 * 60 * 60);

/// Whether the field means anything with this status: 413, 429 and 503 (rule H1).
pub fn is_read_on(status: u16) -> bool {
    matches!(status, 413 | 429 | 503)
}

/// The wait that the field's lines ask for, at most [`CAP`]; zero if the moment has passed. `None` if there is
/// no line, more than one, or one that is neither ASCII digits nor an HTTP date in one of its three forms. A
/// date is measured from the response's own `date` field if that is one and within 24 h of `now`, else from
/// `now`.
pub fn parse<'a>(
    lines: impl IntoIterator<Item = &'a str>,
    now: Timestamp,
    date: Option<&str>,
) -> Option<Millis> {
    let mut lines = lines.into_iter();
    let (line, None) = (lines.next()?, lines.next()) else { return None };
    let value = line.trim_matches([' ', '\t']);
    // Digits are checked before parsing: Rust's own parser takes `+5`.
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // All digits and still no number: too large for one.
        return Some(value.parse().map_or(CAP, |secs| Millis::from_secs(secs).min(CAP)));
    }
    let until = http_date(value)?;
    let from = date
        .and_then(|date| http_date(date.trim_matches([' ', '\t'])))
        .filter(|date| date.since(now).max(now.since(*date)) <= DATE_SKEW_MAX)
        .unwrap_or(now);
    Some(until.since(from).min(CAP))
}

/// A moment in one of the three forms of RFC 9110 §5.6.7.
fn http_date(text: &str) -> Option<Timestamp> {
    let moment: SystemTime = httpdate::parse_http_date(text).ok()?;
    let since = moment.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp(u64::try_from(since.as_millis()).ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOW: Timestamp = Timestamp(784_111_777_000);
    const NOW_TEXT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn check(value: &str) -> Option<u64> {
        parse([value], NOW, Some(NOW_TEXT)).map(|wait| wait.0 / 1000)
    }

    #[test]
    fn seconds() {
        assert_eq!(check("120"), Some(120));
        assert_eq!(check("0"), Some(0));
        assert_eq!(check(" 5 "), Some(5));
        assert_eq!(check("\t5\t"), Some(5));
        assert_eq!(check("86401"), Some(86_400));
        assert_eq!(check("99999999999999999999"), Some(86_400));
        assert_eq!(check("18446744073709551615"), Some(86_400));
        for ignored in ["-1", "+5", "1.5", "1e3", "0x10", "５", "", " ", "5 s", "5,6", "1 2", "\u{fffd}"] {
            assert_eq!(check(ignored), None, "{ignored:?}");
        }
    }

    #[test]
    fn dates() {
        assert_eq!(check("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(check("Sunday, 06-Nov-94 08:50:37 GMT"), Some(60));
        assert_eq!(check("Sun Nov  6 08:50:37 1994"), Some(60));
        assert_eq!(check("Sun, 06 Nov 1994 08:48:37 GMT"), Some(0));
        assert_eq!(check("Fri, 31 Dec 9999 23:59:59 GMT"), Some(86_400));
        for ignored in [
            "Sat, 06 Nov 1994 08:50:37 GMT",
            "Sun, 06 Nov 1994 08:50:37 +0000",
            "Sun, 06 Nov 1994 08:50:60 GMT",
        ] {
            assert_eq!(check(ignored), None, "{ignored:?}");
        }
    }

    #[test]
    fn a_date_is_measured_on_the_receivers_clock_if_it_is_plausible() {
        let in_a_minute = "Sun, 06 Nov 1994 10:50:37 GMT";
        let wait = |date| parse([in_a_minute], NOW, date).map(|wait| wait.0 / 1000);
        assert_eq!(wait(Some("Sun, 06 Nov 1994 10:49:37 GMT")), Some(60), "two hours ahead of us");
        assert_eq!(wait(None), Some(7260));
        assert_eq!(wait(Some("nonsense")), Some(7260));
        assert_eq!(wait(Some("Sat, 05 Nov 1994 08:49:37 GMT")), Some(86_400), "24 h behind still counts");
        assert_eq!(wait(Some("Sat, 05 Nov 1994 08:49:36 GMT")), Some(7260), "more does not");
    }

    #[test]
    fn two_lines_are_none() {
        assert_eq!(parse(["5", "5"], NOW, None), None);
        assert_eq!(parse([], NOW, None), None);
    }

    proptest! {
        #[test]
        fn nothing_panics_and_nothing_exceeds_the_cap(
            lines in prop::collection::vec(any::<String>(), 0..3),
            date in any::<Option<String>>(),
            now in any::<u64>(),
        ) {
            let wait = parse(lines.iter().map(String::as_str), Timestamp(now), date.as_deref());
            prop_assert!(wait.is_none_or(|wait| wait <= CAP));
        }

        #[test]
        fn all_digits_are_seconds(secs in 0..=86_400u64, zeros in 0..30usize) {
            let text = format!("{}{secs}", "0".repeat(zeros));
            prop_assert_eq!(parse([text.as_str()], NOW, None), Some(Millis::from_secs(secs)));
        }

        #[test]
        fn whatever_looks_like_a_date_never_panics(
            text in "[A-Z][a-z]{2,8},? [0-9]{1,3}[ -][A-Z][a-z]{2}[ -][0-9]{1,5} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
        ) {
            parse([text.as_str()], NOW, Some(&text));
        }
    }
}
