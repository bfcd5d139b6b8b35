//! Hooklog: a self-hosted outbound webhook delivery service on an event-sourced log.

pub mod clock;
pub mod delivery;
pub mod engine;
pub mod ids;
pub mod log;
pub mod scheduler;
pub mod secrets;
pub mod views;
