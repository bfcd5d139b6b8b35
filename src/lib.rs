//! x
pub mod delivery;
pub mod secrets;
