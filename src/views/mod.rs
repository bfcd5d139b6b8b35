//! The views as kept on disk: the rows of a batch, reads, rebuilds and checks.
//!
//! Knows tables and the log; never decides anything, and never knows who asks.

pub mod check;
pub mod query;
pub mod rebuild;
pub mod rows;
pub mod settled;
mod shadow;

pub use query::View;
pub use rows::{Live, Rows, Settled};
