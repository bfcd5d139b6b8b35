//! Hooklog: a self-hosted outbound webhook delivery service on an event-sourced log.
//!
//! Opens a store and assembles the rooms: what an embedding program calls, and what the command line and the
//! server use. Never knows routes, pages or flags.
//!
//! | room | what lives there |
//! | --- | --- |
//! | [`hooklog_projections`] | what happened and what is so: facts, states, folds |
//! | [`log`] | batches on disk and back, whatever they mean |
//! | [`views`] | the folds' rows on disk: reads, rebuilds, checks |
//! | [`scheduler`] | what to send next, within all limits |
//! | [`metrics`] | what a process measures of itself |
//! | [`delivery`] | one request to one receiver |
//! | [`engine`] | the one writer that decides |
//! | [`explain`] | one answer to "did we send it?" |
//! | [`notify`] | telling owners |
//! | [`alert`] | telling the operator that it stands still |
//! | [`replays`] | bulk replays at work |
//! | [`api`] | HTTP in, commands out |
//! | `outbox` | events out of an application's own PostgreSQL (feature `postgres`) |
//! | [`pages`] | the console: what people see |
//! | [`store`] | a folder opened: log, master key, engine, courier |
//! | [`embed`] | all of it in a program of one's own: begin here |

pub mod alert;
pub mod api;
pub mod clock;
pub mod delivery;
pub mod embed;
pub mod engine;
pub mod explain;
pub mod ids;
pub mod log;
pub mod metrics;
pub mod notify;
#[cfg(feature = "postgres")]
pub mod outbox;
pub mod pages;
pub mod replays;
pub mod scheduler;
pub mod secrets;
pub mod store;
pub mod views;

pub use embed::Hooklog;

/// The Rust snippets of the documents, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/receiving.md")]
pub struct Snippets;
