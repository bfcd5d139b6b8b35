//! What several tests need. Each file says what it stands in for.
#![allow(dead_code)]

pub mod case;
pub mod chance;
pub mod counting;
pub mod exposition;
pub mod judge;
pub mod outage;
pub mod receiver;
pub mod server;
pub mod stage;
pub mod tmpfs;
