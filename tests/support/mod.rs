//! What several tests need. Each file says what it stands in for.
#![allow(dead_code)]

pub mod receiver;
pub mod stage;
