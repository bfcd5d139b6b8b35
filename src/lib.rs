//! Self-hosted outbound webhook delivery: an event-sourced log with projections.

pub mod log;
