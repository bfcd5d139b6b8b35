//! Pages of the history: whichever table a page is read from, it holds what a look at every delivery finds.

mod support;

use std::collections::BTreeSet;

use hooklog::clock::{Chance, SeededChance};
use hooklog::engine::Command;
use hooklog::views::Place;
use hooklog::views::history::{At, Filter, History};
use hooklog::views::query::SCAN_MAX;
use hooklog_projections::fact::{AccountSettings, Sealed};
use hooklog_projections::ids::{AccountId, DeliveryKey, EndpointId, EndpointKey, Seq};
use hooklog_projections::lifecycle::Status;
use hooklog_projections::policy::Rollout;
use hooklog_projections::time::Millis;
use support::stage::Stage;

const ACCOUNT: AccountId = AccountId(1);

/// Which list is read.
#[derive(Clone, Copy)]
enum List {
    Account,
    All,
}

fn page(stage: &Stage, list: List, filter: &Filter, place: Place<At>, limit: usize) -> History {
    let view = stage.engine.as_ref().expect("it runs").published().view();
    let page = match list {
        List::Account => view.history(ACCOUNT, filter, place, limit),
        List::All => view.history_of_all(filter, place, limit),
    };
    let page = page.expect("a page");
    assert!(page.rows.len() <= limit);
    page
}

fn seqs(page: &History) -> Vec<Seq> {
    page.rows.iter().map(|(key, _)| key.seq).collect()
}

/// All pages of a list, from the newest to the oldest and back again; `between` is done before each but the first.
fn there_and_back(
    stage: &mut Stage,
    list: List,
    filter: &Filter,
    limit: usize,
    mut between: impl FnMut(&mut Stage),
) -> [Vec<Seq>; 2] {
    let mut last = page(stage, list, filter, Place::First, limit);
    assert_eq!(last.prev, None, "nothing is before the first page");
    let mut there = seqs(&last);
    while let Some(next) = last.next {
        assert!(last.searched_to.is_some() || last.rows.len() == limit, "a short page says why");
        between(stage);
        last = page(stage, list, filter, Place::After(next), limit);
        assert_eq!(last.prev, Some(next));
        there.extend(seqs(&last));
    }
    let mut back = seqs(&last);
    while let Some(prev) = last.prev {
        between(stage);
        last = page(stage, list, filter, Place::UpTo(prev), limit);
        assert_eq!(last.next, Some(prev));
        back.splice(0..0, seqs(&last));
    }
    [there, back]
}

/// All pages of an account's list: the same rows there and back.
fn pages(stage: &mut Stage, filter: &Filter, limit: usize) -> Vec<Seq> {
    pages_of(stage, List::Account, filter, limit)
}

fn pages_of(stage: &mut Stage, list: List, filter: &Filter, limit: usize) -> Vec<Seq> {
    let [there, back] = there_and_back(stage, list, filter, limit, |_| ());
    assert_eq!(there, back, "{filter:?}, {limit} a page");
    there
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
    let cancelled = pages(&mut stage, &Filter { statuses: vec![Status::Pending], ..Filter::default() }, 100);
    for seq in cancelled.into_iter().step_by(4) {
        let delivery = DeliveryKey { account: ACCOUNT, seq };
        stage.ask(Command::Cancel { delivery, reason: "enough".into() }).expect("it waits");
    }
    stage.latency = Millis(60_000);
    stage.enqueue_many((0..5).map(|n| format!("out-{n}")), "a.out");
    let everything = pages(&mut stage, &Filter::default(), 1_000);
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
                assert_eq!(pages(&mut stage, &filter, limit), wanted, "{filter:?}, {limit} a page");
            }
            if let ([status], None) = (&filter.statuses[..], endpoint) {
                seen[Status::ALL.iter().position(|s| s == status).expect("one of them")] = wanted.len();
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "every status was there: {seen:?}");
}

/// Each row that is there all the time is seen once on the way there and once on the way back, whatever comes and
/// changes meanwhile.
#[test]
fn pages_hold_still_while_events_arrive_and_end() {
    for seed in 1..=2 {
        let mut stage = Stage::new();
        stage.account(None, Rollout::On);
        let good = stage.endpoint_with("good", "a.*", &["200"], |_| ());
        let paused = stage.endpoint_with("paused", "b.*", &["200"], |_| ());
        stage.endpoint_with("bad", "*", &["400"], |_| ());
        stage.ask(Command::PauseEndpoint { key: paused, reason: "they move".into() }).expect("it runs");
        for round in 0..3 {
            stage.enqueue_many((0..9).map(|n| format!("a{round}-{n}")), "a.one");
            stage.enqueue_many((0..9).map(|n| format!("b{round}-{n}")), "b.two");
            stage.run_for(Millis(1_000));
        }
        let of = |statuses: &[Status], endpoint, event_type: Option<&str>| Filter {
            statuses: statuses.to_vec(),
            endpoint,
            event_type: event_type.map(str::to_owned),
            ..Filter::default()
        };
        let mut chance = SeededChance::new(seed);
        let mut arrived = 0;
        for filter in [
            of(&[], None, None),
            of(&[Status::Pending], None, None),
            of(&[Status::Pending, Status::InFlight], Some(paused.endpoint), None),
            of(&[Status::Dead], None, None),
            of(&[Status::Delivered], Some(good.endpoint), None),
            of(&[Status::Dead, Status::Delivered], None, Some("a.*")),
            of(&[], Some(good.endpoint), Some("a.one")),
        ] {
            for limit in [5, 50] {
                let before = pages(&mut stage, &filter, 1_000);
                let mut gone = BTreeSet::new();
                let walks = there_and_back(&mut stage, List::Account, &filter, limit, |stage| {
                    arrived += 1;
                    match chance.draw() % 3 {
                        0 => stage.enqueue_many([format!("new-a{arrived}")], "a.one"),
                        1 => stage.enqueue_many([format!("new-b{arrived}")], "b.two"),
                        _ => {
                            let seq = before[(chance.draw() % before.len() as u64) as usize];
                            let delivery = DeliveryKey { account: ACCOUNT, seq };
                            if stage.ask(Command::Cancel { delivery, reason: "enough".into() }).is_ok() {
                                gone.insert(seq);
                            }
                        }
                    }
                    stage.run_for(Millis(20));
                });
                for seen in walks {
                    assert!(seen.is_sorted_by(|a, b| a > b), "seed {seed}, {filter:?}, {limit}: {seen:?}");
                    let there = |seq: &&Seq| before.contains(seq) && !gone.contains(seq);
                    let seen: Vec<_> = seen.iter().filter(there).collect();
                    let wanted: Vec<_> = before.iter().filter(there).collect();
                    assert_eq!(seen, wanted, "seed {seed}, {filter:?}, {limit} a page");
                }
            }
        }
        assert!(arrived > 100, "{arrived}");
    }
}

/// Accounts 2 and on, each with an endpoint that answers, one that refuses and one that is paused.
fn more_accounts(stage: &mut Stage, last: u128) {
    let settings = AccountSettings {
        name: "Another".into(),
        owner_email: None,
        schedule: None,
        response_policy: None,
        webhook_retries: Rollout::On,
    };
    for n in 1..=last {
        let account = AccountId(n);
        if account != ACCOUNT {
            let (settings, secret) = (settings.clone(), Sealed(vec![0]));
            stage.ask(Command::CreateAccount { account, settings, secret }).expect("it is new");
        }
        for (part, (wanted, word)) in [("a.*", "200"), ("b.*", "200"), ("c.*", "400")].into_iter().enumerate()
        {
            let key = EndpointKey { account, endpoint: EndpointId(n * 10 + part as u128) };
            stage.endpoint_at(key, &format!("e{n}-{part}"), wanted, &[word], |_| ());
            if wanted == "b.*" {
                stage.ask(Command::PauseEndpoint { key, reason: "they move".into() }).expect("it runs");
            }
        }
    }
}

/// The list of all accounts, put together out of theirs, is what all their deliveries are in the order of the log.
#[test]
fn the_list_of_all_accounts_is_the_lists_of_each() {
    const ACCOUNTS: u128 = 6;
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    more_accounts(&mut stage, ACCOUNTS);
    let first = stage.moment();
    for n in 0..150u32 {
        // The first account has half of them, the next a quarter, the last nearly none.
        let account = AccountId(u128::from((n + 1).trailing_zeros()).min(ACCOUNTS - 1) + 1);
        let event_type = ["a.one", "a.two", "b.one", "c.one", "a.one"][n as usize % 5];
        stage
            .enqueue_with(&format!("e{n}"), event_type, b"{}", |event| event.account = account)
            .expect("it fits");
        stage.run_for(Millis(100));
    }
    let view = stage.engine.as_ref().expect("it runs").published().view();
    let of_account = |n| view.history(AccountId(n), &Filter::default(), Place::First, 1_000).expect("a page");
    let mut every: Vec<_> = (1..=ACCOUNTS).flat_map(|n| of_account(n).rows).collect();
    every.sort_by_key(|(key, _)| std::cmp::Reverse(key.seq));
    assert_eq!(every.len(), 150);
    let of = |statuses: &[Status], event_type: Option<&str>| Filter {
        statuses: statuses.to_vec(),
        event_type: event_type.map(str::to_owned),
        ..Filter::default()
    };
    let between =
        |since, until| Filter { since: Some(first + since), until: Some(first + until), ..Filter::default() };
    for (filter, count) in [
        (of(&[], None), 150),
        (of(&[Status::Dead], None), 30),
        (of(&[Status::Pending], None), 30),
        (of(&[Status::Delivered, Status::Dead], None), 120),
        (of(&[Status::Cancelled], None), 0),
        (of(&[], Some("a.two")), 30),
        (of(&[], Some("never")), 0),
        (between(Millis(3_000), Millis(9_000)), 60),
    ] {
        let wanted: Vec<_> =
            every.iter().filter(|(_, row)| filter.matches(row)).map(|(key, _)| key.seq).collect();
        assert!(wanted.len().abs_diff(count) <= 1, "{filter:?}: {}", wanted.len());
        for limit in [1, 7, 50, 1_000] {
            let found = pages_of(&mut stage, List::All, &filter, limit);
            assert_eq!(found, wanted, "{filter:?}, {limit} a page");
        }
    }
}

/// A search that is given up says how far it came and goes on from there, and finds what lies at the very end.
#[test]
fn a_search_through_all_accounts_is_given_up_and_goes_on() {
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    more_accounts(&mut stage, 3);
    let seldom = |stage: &mut Stage, id: &str| {
        let sent = stage.enqueue_with(id, "b.seldom", b"{}", |event| event.account = AccountId(2));
        sent.expect("it fits");
    };
    seldom(&mut stage, "oldest");
    stage.enqueue_many((0..SCAN_MAX + 1_000).map(|n| format!("e{n}")), "b.often");
    seldom(&mut stage, "newest");
    let filter = Filter { event_type: Some("b.seldom".into()), ..Filter::default() };
    let newest = page(&stage, List::All, &filter, Place::First, 50);
    assert_eq!((newest.rows.len(), newest.searched_to.is_some()), (1, true));
    assert_eq!(pages_of(&mut stage, List::All, &filter, 50).len(), 2);
}
