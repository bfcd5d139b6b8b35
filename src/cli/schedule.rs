//! `hooklog schedule`: when each try of a schedule happens, counted from the first.
//!
//! Asks no server: the presets are part of the program.

use hooklog::scheduler::RetryPolicy;
use hooklog_projections::policy::Schedule;
use hooklog_projections::time::Millis;
use serde::Serialize;

use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::Table;
use super::span::spell;
use crate::config::{SCHEDULES, ScheduleText};

/// Shows schedules.
#[derive(clap::Args)]
pub struct Args {
    /// ledger, ledger-5, ukue, standard-webhooks, or waits such as 1m,5m,30m; all presets if absent
    name: Option<ScheduleText>,
}

#[derive(Serialize)]
struct Shown {
    name: String,
    tries: u32,
    jitter_minus_percent: u8,
    jitter_plus_percent: u8,
    tries_at_seconds: Vec<u64>,
}

/// Shows them.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, Failure> {
    let schedules: Vec<(&str, Schedule)> = match &args.name {
        Some(ScheduleText(schedule)) => {
            let preset = SCHEDULES.iter().find(|(_, preset)| preset == schedule);
            vec![(preset.map_or("custom", |(name, _)| name), schedule.clone())]
        }
        None => SCHEDULES.to_vec(),
    };
    if out.for_programs() {
        let shown: Vec<_> = schedules.iter().map(|(name, schedule)| shown(name, schedule)).collect();
        out.json_list(&shown)?;
        return Ok(Exit::Fine);
    }
    for (number, (name, schedule)) in schedules.iter().enumerate() {
        if number > 0 {
            out.line("")?;
        }
        table(name, schedule, out)?;
    }
    Ok(Exit::Fine)
}

fn shown(name: &str, schedule: &Schedule) -> Shown {
    let policy = RetryPolicy::of(schedule);
    Shown {
        name: name.to_owned(),
        tries: policy.tries(None),
        jitter_minus_percent: policy.jitter().minus_percent,
        jitter_plus_percent: policy.jitter().plus_percent,
        tries_at_seconds: policy.cumulative().iter().map(|at| at.0 / 1000).collect(),
    }
}

fn table(name: &str, schedule: &Schedule, out: &mut Output) -> Result<(), Failure> {
    let policy = RetryPolicy::of(schedule);
    let (jitter, moments) = (policy.jitter(), policy.cumulative());
    let spread = match (jitter.minus_percent, jitter.plus_percent) {
        (0, 0) => "exact".to_owned(),
        (minus, plus) if minus == plus => format!("± {plus} %"),
        (0, plus) => format!("+ 0 to {plus} %"),
        (minus, plus) => format!("- {minus} % to + {plus} %"),
    };
    let total = spell(moments.last().copied().unwrap_or_default());
    let paint = out.paint;
    let tries = policy.tries(None);
    let word = if tries == 1 { "try" } else { "tries" };
    out.line(format!("{}  {tries} {word} over {total}, each wait {spread}", paint.bold(name)))?;
    let mut table = Table::new(&["  TRY", "WAIT", "AFTER THE FIRST"]);
    let mut before = Millis(0);
    for (number, at) in moments.iter().enumerate() {
        let wait = if number == 0 { "at once".into() } else { spell(Millis(at.0 - before.0)) };
        let after = if number == 0 { String::new() } else { spell(*at) };
        table.row([format!("  {}", number + 1), wait, after]);
        before = *at;
    }
    out.table(&table)
}
