//! Pages of the history: whichever table a page is read from, it holds what a look at every delivery finds.

mod support;

use hooklog::engine::Command;
use hooklog::views::query::Filter;
use hooklog_projections::ids::{AccountId, DeliveryKey, Seq};
use hooklog_projections::lifecycle::Status;
use hooklog_projections::policy::Rollout;
use hooklog_projections::time::Millis;
use support::stage::Stage;

const ACCOUNT: AccountId = AccountId(1);

/// All pages of a list.
fn pages(stage: &Stage, filter: &Filter, limit: usize) -> Vec<Seq> {
    let view = stage.engine.as_ref().expect("it runs").published().view();
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = view.history(ACCOUNT, filter, before, limit).expect("a page");
        assert!(page.rows.len() <= limit);
        found.extend(page.rows.iter().map(|(key, _)| key.seq));
        match page.next {
            Some((next, _)) => before = Some(next),
            None => return found,
        }
    }
}

#[test]
fn every_filter_finds_what_a_look_at_every_delivery_finds() {
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    stage.start();
    let good = stage.endpoint_with("good", "a.*", &["200"], |_| ());
    let paused = stage.endpoint_with("paused", "b.*", &["200"], |_| ());
    stage.endpoint_with("bad", "c.*", &["400"], |_| ());
    stage.ask(Command::PauseEndpoint { key: paused, reason: "they move".into() }).expect("it runs");
    for round in 0..4 {
        stage.enqueue_many((0..15).map(|n| format!("a{round}-{n}")), "a.one");
        stage.enqueue_many((0..3).map(|n| format!("b{round}-{n}")), "b.two");
        stage.enqueue_many((0..2).map(|n| format!("c{round}-{n}")), "c.three");
        stage.run_for(Millis(1_000));
    }
    let cancelled = pages(&stage, &Filter { statuses: vec![Status::Pending], ..Filter::default() }, 100);
    for seq in cancelled.into_iter().step_by(4) {
        let delivery = DeliveryKey { account: ACCOUNT, seq };
        stage.ask(Command::Cancel { delivery, reason: "enough".into() }).expect("it waits");
    }
    stage.latency = Millis(60_000);
    stage.enqueue_many((0..5).map(|n| format!("out-{n}")), "a.out");
    let everything = pages(&stage, &Filter::default(), 1_000);
    assert_eq!(everything.len(), 85);
    let mut seen = [0; 5];
    for endpoint in [None, Some(good.endpoint), Some(paused.endpoint)] {
        for statuses in (0..32usize).map(|bits| {
            Status::ALL.into_iter().enumerate().filter(|(n, _)| bits >> n & 1 == 1).map(|(_, s)| s).collect()
        }) {
            let filter = Filter { statuses, endpoint, ..Filter::default() };
            let wanted: Vec<_> = everything
                .iter()
                .copied()
                .filter(|seq| {
                    let row = stage.delivery(*seq);
                    (filter.statuses.is_empty() || filter.statuses.contains(&row.state.status()))
                        && endpoint.is_none_or(|endpoint| endpoint == row.endpoint)
                })
                .collect();
            for limit in [1, 7, 1_000] {
                assert_eq!(pages(&stage, &filter, limit), wanted, "{filter:?}, {limit} a page");
            }
            if let ([status], None) = (&filter.statuses[..], endpoint) {
                seen[Status::ALL.iter().position(|s| s == status).expect("one of them")] = wanted.len();
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "every status was there: {seen:?}");
}
