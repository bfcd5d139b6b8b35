//! What a terminal is shown: foreign text made harmless, aligned tables, colour where it is wanted.
//!
//! Never knows what is shown.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use hooklog::api::csv;

/// Whether to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// In any case.
    Always,
    /// Not at all.
    Never,
}

/// Colours, or their absence.
#[derive(Clone, Copy, Debug)]
pub struct Paint(bool);

impl Paint {
    /// For standard output.
    pub fn stdout(color: Color) -> Paint {
        Paint(wanted(color, io::stdout().is_terminal()))
    }

    /// For standard error.
    pub fn stderr(color: Color) -> Paint {
        Paint(wanted(color, io::stderr().is_terminal()))
    }

    /// For what went well.
    pub fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// For what did not.
    pub fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    /// For what is under way.
    pub fn waiting(self, text: &str) -> String {
        self.with("33", text)
    }

    /// For headings.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// For what matters less.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// A status in its colour. Foreign text is made harmless.
    pub fn status(self, status: &str) -> String {
        let text = escape(status);
        match status {
            "delivered" | "active" => self.good(&text),
            "dead" | "failed" | "disabled" => self.bad(&text),
            "pending" | "in_flight" | "paused" => self.waiting(&text),
            _ => text.into_owned(),
        }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn wanted(color: Color, terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if set("NO_COLOR") => false,
        Color::Auto if set("CLICOLOR_FORCE") => true,
        Color::Auto => terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
    }
}

/// Foreign text for a terminal: control characters, and those that turn the direction of text, become
/// something visible that does nothing.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\0'..='\x1f' => out.push(char::from_u32(0x2400 + c as u32).expect("a control picture")),
            '\x7f' => out.push('\u{2421}'),
            c if harmful(c) => out.push_str(&format!("<U+{:04X}>", c as u32)),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn harmful(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Foreign text in at most `max` characters.
pub fn short(text: &str, max: usize) -> String {
    let text = escape(text);
    if text.chars().count() <= max {
        return text.into_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// Rows under a heading, aligned. Cells hold foreign text.
pub struct Table {
    /// As they are: made harmless when they are shown.
    rows: Vec<Vec<String>>,
    painted: Option<usize>,
}

impl Table {
    /// With its heading.
    pub fn new(heading: &[&str]) -> Table {
        Table { rows: vec![heading.iter().map(|cell| (*cell).to_owned()).collect()], painted: None }
    }

    /// Shows one column as a status.
    pub fn status_in(mut self, column: usize) -> Table {
        self.painted = Some(column);
        self
    }

    /// One more row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there is only the heading.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// Writes it as CSV; the cells are whole.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        self.rows.iter().enumerate().try_for_each(|(number, row)| match number {
            0 => writeln!(out, "{}", csv::line(row.iter().map(|name| name.to_lowercase().replace(' ', "_")))),
            _ => writeln!(out, "{}", csv::line(row)),
        })
    }

    /// Writes it.
    pub fn write(&self, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.rows[0].len();
        let shown: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(|cell| escape(cell).into_owned()).collect()).collect();
        let chars =
            |row: &Vec<String>, column| row.get(column).map_or(0, |cell: &String| cell.chars().count());
        let width = |column| shown.iter().map(|row| chars(row, column)).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in shown.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let last = column + 1 == row.len();
                let pad = if last { 0 } else { widths[column] - cell.chars().count() + 2 };
                let shown = match number {
                    0 => paint.bold(cell),
                    _ if self.painted == Some(column) => paint.status(cell),
                    _ => cell.clone(),
                };
                line.push_str(&shown);
                line.push_str(&" ".repeat(pad));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_does_nothing_to_a_terminal() {
        assert_eq!(escape("plain, ünïcode ✓"), "plain, ünïcode ✓");
        assert_eq!(escape("\x1b]0;owned\x07\r\n\tx\x7f"), "␛]0;owned␇␍␊␉x␡");
        assert_eq!(escape("\u{9b}31m \u{202e}txt.exe"), "<U+009B>31m <U+202E>txt.exe");
        assert_eq!(short("abcdef", 4), "abc…");
    }

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::new(&["ID", "STATUS", "LAST"]).status_in(1);
        table.row(["a\x1b".into(), "delivered".into(), "x".into()]);
        table.row(["long id".into(), "dead".into(), String::new()]);
        let mut out = Vec::new();
        table.write(Paint(false), &mut out).expect("written");
        insta::assert_snapshot!(String::from_utf8(out).expect("text"), @"
        ID       STATUS     LAST
        a␛       delivered  x
        long id  dead
        ");
    }
}
