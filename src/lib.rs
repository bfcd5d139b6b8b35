//! Hooklog: a self-hosted outbound webhook delivery service.
pub mod clock;
pub mod ids;
pub mod scheduler;
