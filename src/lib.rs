//! x
pub mod secrets;
