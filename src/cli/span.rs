//! Spans and moments as people write and read them: `90s`, `24h`, `1 min`, `14 h 36 min`.
//!
//! Pure. Never reads a clock.

use hooklog_projections::time::{Millis, Timestamp};

/// A span as it is written on a command line: a whole number and `ms`, `s`, `m`, `h` or `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Millis);

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor = match unit.trim() {
            "ms" => 1,
            "s" | "" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => {
                return Err(format!("`{text}` is no span: write a number and ms, s, m, h or d, such as 90s"));
            }
        };
        let number: u64 = number.parse().map_err(|_| format!("`{text}` is no span: write 90s, 15m, 24h"))?;
        Ok(Span(Millis(number.saturating_mul(factor))))
    }
}

impl Span {
    /// For timers.
    pub fn duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0.0)
    }
}

/// A span for people: two units at most.
pub fn spell(span: Millis) -> String {
    let ms = span.0;
    let two = |big: u64, big_unit: &str, small: u64, small_unit: &str| {
        if small == 0 {
            format!("{big} {big_unit}")
        } else {
            format!("{big} {big_unit} {small} {small_unit}")
        }
    };
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => two(ms / 60_000, "min", ms % 60_000 / 1_000, "s"),
        3_600_000..172_800_000 => two(ms / 3_600_000, "h", ms % 3_600_000 / 60_000, "min"),
        _ => two(ms / 86_400_000, "d", ms % 86_400_000 / 3_600_000, "h"),
    }
}

/// A moment as the API writes it.
pub fn moment(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(i64::try_from(at.0).unwrap_or(i64::MAX)) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => "never".into(),
    }
}

/// A moment from the API's text, in milliseconds since 1970.
pub fn read_moment(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(Timestamp(at.as_millisecond().max(0) as u64))
}

/// `--since 24h` or `--since 2026-11-30T00:00:00Z`, as the API takes it.
pub fn since(text: &str, now: Timestamp) -> Result<String, String> {
    if read_moment(text).is_some() {
        return Ok(text.to_owned());
    }
    let Span(span) = text
        .parse()
        .map_err(|_| format!("`{text}` is no moment: write a span ago (24h) or 2026-11-30T09:00:00Z"))?;
    Ok(moment(now - span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_spelled() {
        let both = |text: &str| text.parse::<Span>().map(|span| spell(span.0));
        assert_eq!(both("8ms").as_deref(), Ok("8 ms"));
        assert_eq!(both("60s").as_deref(), Ok("1 min"));
        assert_eq!(both("90").as_deref(), Ok("1 min 30 s"));
        assert_eq!(both("1500ms").as_deref(), Ok("1.5 s"));
        assert_eq!(both("876m").as_deref(), Ok("14 h 36 min"));
        assert_eq!(both("3d").as_deref(), Ok("3 d"));
        assert!(both("soon").is_err());
        assert!(both("-5s").is_err());
    }

    #[test]
    fn moments_go_both_ways() {
        let at = read_moment("2026-11-30T09:14:02.113Z").expect("a moment");
        assert_eq!(moment(at), "2026-11-30T09:14:02.113Z");
        assert_eq!(since("1h", at).as_deref(), Ok("2026-11-30T08:14:02.113Z"));
        assert_eq!(since("2026-11-30T00:00:00Z", at).as_deref(), Ok("2026-11-30T00:00:00Z"));
        assert!(since("yesterday", at).is_err());
    }
}
