//! Lines of CSV (RFC 4180) that a spreadsheet takes as text: foreign cells that it would run as a formula get a quote
//! in front (rule A24). Never knows what is exported.

use serde_json::Value;

/// What a column is called, and where its value stands in a row as JSON (RFC 6901).
pub type Columns = &'static [(&'static str, &'static str)];

/// A list of deliveries.
pub const DELIVERIES: Columns = &[
    ("id", "/id"),
    ("event_id", "/event_id"),
    ("event_type", "/event_type"),
    ("account_id", "/account_id"),
    ("endpoint_id", "/endpoint_id"),
    ("endpoint_url", "/endpoint_url"),
    ("status", "/status"),
    ("held_by", "/held_by"),
    ("due_at", "/due_at"),
    ("run", "/run"),
    ("try", "/try"),
    ("tries", "/tries"),
    ("attempts", "/attempts"),
    ("created_at", "/created_at"),
    ("updated_at", "/updated_at"),
    ("last_code", "/last_attempt/status_code"),
    ("last_error", "/last_error"),
    ("dead_reason", "/dead_reason"),
];

/// The line of a row; what it does not have is empty.
pub fn row(row: &Value, columns: Columns) -> String {
    line(columns.iter().map(|(_, pointer)| match row.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }))
}

/// A line without its end.
pub fn line<S: AsRef<str>>(cells: impl IntoIterator<Item = S>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|text| cell(text.as_ref())).collect();
    cells.join(",")
}

fn cell(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    let special = text.contains([',', '"', '\n', '\r']) || text.starts_with(' ') || text.ends_with(' ');
    if special { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_never_a_formula() {
        assert_eq!(line(["a", "", "b c", "1.5"]), "a,,b c,1.5");
        assert_eq!(
            line(["a,b", "say \"x\"", "two\nlines", " x"]),
            "\"a,b\",\"say \"\"x\"\"\",\"two\nlines\",\" x\""
        );
        let hostile = ["=HYPERLINK(\"http://x\")", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1"];
        assert_eq!(line(hostile), "\"'=HYPERLINK(\"\"http://x\"\")\",'+1,'-1+1,'@SUM(A1),'\t=1,\"'\r=1\"");
    }
}
