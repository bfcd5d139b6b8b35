//! What happened and what is so: the vocabulary of the delivery log and the folds over it.
//!
//! No clock, no chance, no disk, no network, no async: given the same entries, the same rows.
#![no_std]

extern crate alloc;

pub mod fact;
pub mod ids;
pub mod policy;
pub mod time;
