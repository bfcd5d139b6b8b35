//! Foreign text on a page: escaped, bounded, and what cannot be seen made visible. Never a link, never markup.

use maud::{Markup, PreEscaped, html};

/// Characters of a text in a line, unless a page says otherwise.
pub(super) const LINE_CHARS: usize = 160;
/// Characters of a sentence.
const SENTENCE_CHARS: usize = 600;
/// Bytes of a body that a page shows.
pub(super) const BODY_BYTES: usize = 16 * 1024;

/// A text in a line: no line ends, at most so many characters.
pub(super) fn line(text: &str, chars_max: usize) -> Markup {
    let mut out = String::new();
    let mut chars = text.chars();
    for c in chars.by_ref().take(chars_max) {
        push(&mut out, c, false);
    }
    if chars.next().is_some() {
        out.push_str("<span class=\"cut\" title=\"cut here\">…</span>");
    }
    PreEscaped(out)
}

/// A text in a line.
pub(super) fn short(text: &str) -> Markup {
    line(text, LINE_CHARS)
}

/// A sentence of ours: what stands in it between grave accents is somebody's, and is set apart.
pub(super) fn sentence(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    // An accent without its fellow is no mark.
    if parts.len().is_multiple_of(2) {
        return line(text, SENTENCE_CHARS);
    }
    html! {
        @for (at, part) in parts.iter().enumerate() {
            @if at % 2 == 1 { code { (line(part, LINE_CHARS)) } } @else { (line(part, SENTENCE_CHARS)) }
        }
    }
}

/// A text of several lines, for a `pre`.
pub(super) fn block(text: &str) -> Markup {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| push(&mut out, c, true));
    PreEscaped(out)
}

/// Bytes as text, for a `pre`: at most [`BODY_BYTES`] of them; what is no UTF-8 is shown byte by byte.
pub(super) fn bytes(bytes: &[u8]) -> Markup {
    let mut out = String::with_capacity(bytes.len().min(BODY_BYTES));
    let shown = &bytes[..bytes.len().min(BODY_BYTES)];
    for chunk in shown.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push(&mut out, c, true));
        for byte in chunk.invalid() {
            out.push_str(&format!("<span class=\"ctl\">\\x{byte:02x}</span>"));
        }
    }
    PreEscaped(out)
}

/// What was left out of a body of so many bytes.
pub(super) fn cut(len: usize) -> Option<Markup> {
    let more = len.checked_sub(BODY_BYTES).filter(|more| *more > 0)?;
    Some(html! { p.note { (size(more as u64)) " more; the download has all of it." } })
}

/// `512 bytes`, `12.3 KB`.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".into(),
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{}.{} KB", bytes / 1_000, bytes % 1_000 / 100),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

/// `1 234 567`, as it is read in any language.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// JSON with line ends and indents between its parts, each part as it came: no number is rounded, no key moved.
/// `None` if it is none, or nothing is gained.
pub(super) fn indented(text: &str) -> Option<String> {
    serde_json::from_str::<&serde_json::value::RawValue>(text).ok()?;
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    let mut rest = text.trim().chars().peekable();
    let newline = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth.min(64)));
    };
    while let Some(c) = rest.next() {
        if in_text {
            out.push(c);
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match c {
            ' ' | '\t' | '\r' | '\n' => {}
            '"' => {
                in_text = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                while rest.peek().is_some_and(|c| c.is_ascii_whitespace()) {
                    rest.next();
                }
                match rest.peek() {
                    Some('}' | ']') => {
                        out.extend(rest.next());
                    }
                    _ => {
                        depth += 1;
                        newline(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                newline(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                newline(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => out.push(c),
        }
    }
    Some(out)
}

/// Whether a block shows every character of a text as it is, and none by a sign.
pub(super) fn shows_as_it_is(text: &str) -> bool {
    text.chars().all(is_seen)
}

/// A text for a field that is filled in: without what could not be seen there.
pub(super) fn filled(text: &str) -> String {
    text.chars().filter(|c| is_seen(*c)).collect()
}

fn is_seen(c: char) -> bool {
    let mut out = String::new();
    push(&mut out, c, true);
    !out.starts_with('<')
}

/// One character, escaped; as a sign if it would not be seen or would change what is.
fn push(out: &mut String, c: char, lines: bool) {
    match c {
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '&' => out.push_str("&amp;"),
        '"' => out.push_str("&quot;"),
        '\n' | '\t' if lines => out.push(c),
        '\0'..='\u{1f}' => {
            // The pictures of control characters stand in their order.
            let picture = char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}');
            out.push_str(&format!("<span class=\"ctl\" title=\"U+{:04X}\">{picture}</span>", c as u32));
        }
        '\u{7f}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => {
            out.push_str(&format!("<span class=\"ctl\">U+{:04X}</span>", c as u32));
        }
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_shown_and_nothing_is_markup() {
        assert_eq!(short("a<b>\"&'").0, "a&lt;b&gt;&quot;&amp;'");
        assert_eq!(short("\u{1b}]0;x\u{7}").0.matches("ctl").count(), 2);
        assert!(short("\u{202e}gpj").0.starts_with("<span class=\"ctl\">U+202E</span>"));
        assert!(short("a\nb").0.contains('\u{240a}') && block("a\nb").0 == "a\nb");
        assert_eq!(sentence("`a<` is `b`.").0, "<code>a&lt;</code> is <code>b</code>.");
        assert_eq!(sentence("one ` alone").0, "one ` alone");
        assert_eq!(bytes(b"a\xffb").0, "a<span class=\"ctl\">\\xff</span>b");
        assert!(line(&"x".repeat(200), 10).0.starts_with("xxxxxxxxxx<span"));
        assert!(shows_as_it_is("a<\n\t\"é") && !shows_as_it_is("a\r") && !shows_as_it_is("\u{2028}"));
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!((count(0), count(999), count(1000)), ("0".into(), "999".into(), "1\u{202f}000".into()));
        assert_eq!(
            (size(1), size(999), size(65_536)),
            ("1 byte".into(), "999 bytes".into(), "65.5 KB".into())
        );
    }

    #[test]
    fn json_is_laid_out_and_left_as_it_is() {
        let text = r#"{ "n":1.10e400,"a":[1, {}],"s":"x,{\"}\u0000", "n":[ ]}"#;
        let laid = indented(text).expect("it is JSON");
        insta::assert_snapshot!(laid, @r#"
        {
          "n": 1.10e400,
          "a": [
            1,
            {}
          ],
          "s": "x,{\"}\u0000",
          "n": []
        }
        "#);
        assert_eq!(indented("{"), None);
    }
}
