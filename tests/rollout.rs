//! The roll-out of retries, as the brief's plan has it: internal accounts, a tenth, everyone; and the check on
//! staging, where a sandbox account with a shortened schedule reaches dead and its owner is told.
//!
//! That accounts only join as the percentage grows is `src/engine/server_policy.rs`'s test; its picture is the
//! story `rollout-percent`.

mod support;

use hooklog::engine::Command;
use hooklog::notify::message::{About, Links, Message};
use hooklog_projections::fact::AccountSettings;
use hooklog_projections::ids::{DeliveryKey, Seq};
use hooklog_projections::lifecycle::Status;
use hooklog_projections::policy::{Jitter, Rollout, Schedule};
use hooklog_projections::time::Millis;
use support::stage::{Stage, account};

/// The plan's waits, a second for a minute.
fn shortened() -> Schedule {
    let waits = [1, 5, 30, 120, 720].map(Millis::from_secs).to_vec();
    Schedule::Custom { waits, jitter: Jitter { minus_percent: 10, plus_percent: 10 } }
}

/// What the owners of what is owed now would be told.
fn messages(stage: &Stage) -> Vec<Message> {
    let view = stage.engine.as_ref().unwrap().published().view();
    let owed = view.owed(None, 100).unwrap();
    let told = owed.into_iter().map(|(key, owing)| {
        let rows = owing.news.named.iter().map(|seq| {
            let delivery = DeliveryKey { account: key.account, seq: *seq };
            let row = view.delivery(delivery).unwrap().unwrap();
            (view.delivery_id(delivery, &row), row)
        });
        Message::about(&About {
            key,
            began: Seq(1),
            account: &view.account(key.account).unwrap().unwrap(),
            endpoint: &view.endpoint(key).unwrap().unwrap(),
            news: &owing.news,
            named: &rows.collect::<Vec<_>>(),
            disabled: None,
            waiting: 0,
            links: &Links::default(),
            now: stage.now,
        })
    });
    told.collect()
}

#[test]
fn a_sandbox_account_with_a_shortened_schedule_reaches_dead_and_its_owner_is_told() {
    let mut stage = Stage::new();
    // The percentage is 0 on the way: the sandbox account is switched on by itself.
    stage.policy.retries_percent = 0;
    stage.start();
    stage.account(Some(shortened()), Rollout::On);
    stage.endpoint("sandbox", "*", &["503"], None);
    stage.enqueue("evt_staging", "payment.settled", b"{}").unwrap();
    stage.run_for(Millis::from_secs(700));
    assert_eq!((stage.sent.len(), stage.counts().dead), (5, 0));
    assert_eq!(messages(&stage), []);
    stage.run_for(Millis::from_secs(400));
    assert_eq!((stage.sent.len(), stage.counts().dead), (6, 1));
    let told = messages(&stage);
    assert_eq!(told.len(), 1);
    insta::assert_snapshot!(format!("{}\n\n{}", told[0].subject, told[0].text), @r"
    1 event could not be delivered to sandbox.customer.net

    1 event could not be delivered to sandbox.customer.net and will not be tried again by itself.

    evt_staging (payment.settled): gave up after 6 tries; the last answer was HTTP 503

    Once the endpoint works again, replay them: nothing is lost.
    ");
    assert_eq!(told[0].owner_email.as_deref(), Some("owner@acme.example"));
    stage.always_true();
}

#[test]
fn switching_an_account_off_and_on_counts_from_the_next_failure() {
    let mut stage = Stage::new();
    stage.account(None, Rollout::Off);
    stage.endpoint("shop", "*", &["500"], None);
    let settings = |webhook_retries| AccountSettings {
        name: "Acme".into(),
        owner_email: None,
        schedule: None,
        response_policy: None,
        webhook_retries,
    };
    let status = |stage: &Stage, n: usize| {
        stage.delivery(*stage.known.keys().nth(n).expect("it was taken")).state.status()
    };
    stage.enqueue("evt_1", "payment.settled", b"{}").unwrap();
    stage.run_for(Millis::from_secs(1));
    assert_eq!((status(&stage, 0), messages(&stage)), (Status::Dead, Vec::new()));
    stage.ask(Command::ChangeAccount { account: account(), settings: settings(Rollout::On) }).unwrap();
    stage.enqueue("evt_2", "payment.settled", b"{}").unwrap();
    stage.run_for(Millis::from_secs(1));
    assert_eq!(status(&stage, 1), Status::Pending);
    stage.ask(Command::ChangeAccount { account: account(), settings: settings(Rollout::Off) }).unwrap();
    stage.run_for(Millis::from_secs(70));
    assert_eq!((status(&stage, 1), messages(&stage)), (Status::Dead, Vec::new()));
    assert_eq!(stage.sent.len(), 3);
    stage.always_true();
}
