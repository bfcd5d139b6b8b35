//! The pages in a real browser, with scripts and without: what a person does with them, from the first visit to a
//! bulk replay, what they look like, who can use them, and that nothing a stranger wrote is ever obeyed.
//!
//! `tests/run` installs the browser. `HOOKLOG_SCREENS=write` writes the pictures of `docs/screens`.

#[path = "browser/access.rs"]
mod access;
#[path = "browser/answers.rs"]
mod answers;
#[path = "support/chromium.rs"]
mod chromium;
#[path = "browser/hostile.rs"]
mod hostile;
#[path = "browser/live.rs"]
mod live;
#[path = "browser/portal.rs"]
mod portal;
#[path = "browser/replays.rs"]
mod replays;
#[path = "browser/screens.rs"]
mod screens;
#[path = "browser/stage.rs"]
mod stage;
mod support;
#[path = "browser/visit.rs"]
mod visit;
