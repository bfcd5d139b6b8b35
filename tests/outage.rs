//! An endpoint that is down for hours and then well again: what waited for it drains oldest first and at its
//! rate, the endpoint beside it notices nothing, and a restart in the middle does not make a storm.
//!
//! Figures are printed. The full sizes, 10,000 and 100,000, are `tests/long.rs`'s.

mod support;

use support::outage::{drain_after_a_restart, never_again, outage};

#[test]
fn after_six_hours_down_what_waited_drains_at_the_rate_oldest_first() {
    outage(1_500);
}

#[test]
fn a_restart_with_thousands_due_at_once_drains_without_a_storm() {
    drain_after_a_restart(5_000);
}

#[test]
fn an_endpoint_that_never_comes_back_gets_all_tries_and_no_death_is_late() {
    never_again(200);
}
