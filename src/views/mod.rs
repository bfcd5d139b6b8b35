//! The views as kept on disk: the rows of a batch, reads, rebuilds and checks.
//!
//! Knows tables and the log; never decides anything, and never knows who asks.

pub mod as_of;
pub mod audit;
pub mod bulk;
pub mod check;
pub mod events;
pub mod history;
mod named;
mod newest;
pub mod paging;
pub mod plan;
pub mod query;
pub mod rebuild;
pub mod rows;
pub mod settled;
mod shadow;
mod stats;

pub use as_of::Moment;
pub use paging::{Page, Place};
pub use query::View;
pub use rows::{Live, Rows, Settled};
