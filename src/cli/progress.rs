//! How far a long command has come, on standard error: one moving line on a terminal, nothing elsewhere.
//!
//! Never writes to standard output.

use std::io::{self, IsTerminal, Write};

/// A moving line; gone when dropped.
pub struct Progress {
    what: String,
    shown: bool,
    terminal: bool,
    percent: Option<u64>,
}

impl Progress {
    /// Of something.
    pub fn new(what: impl Into<String>) -> Progress {
        Progress { what: what.into(), shown: false, terminal: io::stderr().is_terminal(), percent: None }
    }

    /// What is under way now.
    pub fn stage(&mut self, what: &str) {
        if self.what != what {
            self.what = what.to_owned();
            self.percent = None;
        }
    }

    /// How far it is.
    pub fn show(&mut self, done: u64, of: u64) {
        let percent = (u128::from(done) * 100 / u128::from(of.max(1))).min(100) as u64;
        if self.terminal && self.percent != Some(percent) {
            self.percent = Some(percent);
            self.shown = true;
            // A terminal that is gone is no reason to stop.
            let _ = write!(io::stderr(), "\r\x1b[K{} {percent:>3} % ({done} of {of})", self.what);
            let _ = io::stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
            let _ = io::stderr().flush();
        }
    }
}
