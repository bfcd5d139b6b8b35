//! What a command says: results on standard output, as a table for people or as JSON for programs; hints on
//! standard error.
//!
//! Never knows what is said.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

use super::exit::{Exit, Failure};
use super::render::{Color, Paint, Table};

/// How results look.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Look {
    /// How results are written: table, json, jsonl or, for lists, csv
    #[arg(
        long,
        value_name = "FORMAT",
        global = true,
        default_value = "table",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub format: Format,
    /// Short for --format json
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// Whether to colour: auto, always or never
    #[arg(
        long,
        value_name = "WHEN",
        global = true,
        default_value = "auto",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub color: Color,
    /// Show times as this machine's clock does, not in UTC
    #[arg(long, global = true, help_heading = "Output")]
    pub local: bool,
}

/// A form of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One JSON document a line
    Jsonl,
    /// Lines of CSV, for lists
    Csv,
}

/// Where a command writes.
pub struct Output {
    /// The form of results.
    pub format: Format,
    /// Colours of standard output.
    pub paint: Paint,
    color: Color,
    out: io::BufWriter<io::Stdout>,
}

impl Output {
    /// As the flags say.
    pub fn new(look: &Look) -> Output {
        Output {
            format: if look.json { Format::Json } else { look.format },
            paint: Paint::stdout(look.color),
            color: look.color,
            out: io::BufWriter::new(io::stdout()),
        }
    }

    /// Whether results are for programs.
    pub fn for_programs(&self) -> bool {
        matches!(self.format, Format::Json | Format::Jsonl)
    }

    /// Whether lists go to a spreadsheet.
    pub fn csv(&self) -> bool {
        self.format == Format::Csv
    }

    /// Colours of standard error.
    pub fn paint_err(&self) -> Paint {
        Paint::stderr(self.color)
    }

    /// A line of the result, out at once.
    pub fn line(&mut self, line: impl AsRef<str>) -> Result<(), Failure> {
        writeln!(self.out, "{}", line.as_ref())?;
        Ok(self.out.flush()?)
    }

    /// Part of the result; a later line brings it out.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.out.write_all(bytes)?)
    }

    /// A table.
    pub fn table(&mut self, table: &Table) -> Result<(), Failure> {
        match self.format {
            Format::Csv => table.write_csv(&mut self.out)?,
            _ => table.write(self.paint, &mut self.out)?,
        }
        self.end()
    }

    /// Brings out all that was written.
    pub fn end(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }

    /// A JSON document: over several lines, or on one.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = match self.format {
            Format::Jsonl => serde_json::to_string(value),
            _ => serde_json::to_string_pretty(value),
        };
        self.line(text.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?)
    }

    /// A list: one JSON array, or a document a line.
    pub fn json_list<T: Serialize>(&mut self, values: &[T]) -> Result<(), Failure> {
        match self.format {
            Format::Jsonl => values.iter().try_for_each(|value| self.json(value)),
            _ => self.json(&values),
        }
    }

    /// A hint for people.
    pub fn hint(&self, hint: impl AsRef<str>) {
        eprintln!("{}", self.paint_err().dim(hint.as_ref()));
    }
}
