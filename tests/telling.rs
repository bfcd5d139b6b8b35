//! What gathers for an endpoint's owner, fact by fact; facts of logs from before messages had a beginning included.

use hooklog::log::memory::MemoryDisk;
use hooklog::log::{Disk, Space};
use hooklog::views::rows::Rows;
use hooklog_projections::fact::{Actor, DeadReason, DisabledReason, Ended, Entry, Fact, Of};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey, Seq};
use hooklog_projections::tables::{Table, Tables};
use hooklog_projections::telling::{self, NAMED_MAX, News, Owed, Owing};
use hooklog_projections::time::{Millis, Timestamp};

const KEY: EndpointKey = EndpointKey { account: AccountId(1), endpoint: EndpointId(2) };

struct Case {
    rows: Rows,
    disk: MemoryDisk,
    seq: u64,
}

impl Case {
    fn new() -> Case {
        let disk = MemoryDisk::new();
        disk.ensure(Space::View { name: Owed::NAME, version: 1 }).expect("a space");
        Case { rows: Rows::new(1, Default::default()), disk, seq: 100 }
    }

    /// Folds a fact at the next second; its position.
    fn then(&mut self, fact: Fact) -> Seq {
        self.seq += 1;
        let seq = Seq(self.seq);
        let entry = Entry { seq, at: Timestamp(self.seq * 1_000), actor: Actor::Hooklog, fact };
        telling::fold(&mut self.rows.over(&self.disk), &entry).expect("it folds");
        seq
    }

    fn died(&mut self, delivery: u64) -> Seq {
        self.then(Fact::Dead {
            of: of(delivery),
            reason: DeadReason::Refused,
            was_due_at: None,
            tell_owner: true,
        })
    }

    fn replayed(&mut self, delivery: u64) {
        let (was, due_at, reason) = (Ended::Dead, Timestamp(0), "".into());
        self.then(Fact::Replayed { of: of(delivery), was, run: 2, due_at, reason, bulk: None });
    }

    fn told(&mut self, began: Option<Seq>, deliveries: &[u64]) {
        let deliveries = deliveries.iter().map(|seq| Seq(*seq)).collect();
        self.then(Fact::OwnerTold { key: KEY, deliveries, channel: "log".into(), began, refused: None });
    }

    fn row(&mut self) -> Option<Owing> {
        self.rows.over(&self.disk).get::<Owed>(&KEY).expect("it can be read")
    }

    fn news(&mut self) -> News {
        self.row().expect("something is owed").news
    }
}

fn of(delivery: u64) -> Of {
    Of { account: KEY.account, endpoint: KEY.endpoint, delivery: Seq(delivery), previous: Seq(delivery) }
}

#[test]
fn a_storm_is_one_small_row_that_a_message_takes_whole() {
    let mut case = Case::new();
    for delivery in 1..=500 {
        case.died(delivery);
    }
    let news = case.news();
    assert_eq!((news.dead, news.named.len(), news.since), (500, NAMED_MAX, Some(Timestamp(101_000))));
    assert_eq!(news.due_at(Millis(900_000)), Some(Timestamp(1_001_000)));
    let began = case.then(Fact::TellingBegan { key: KEY });
    case.died(501);
    let owing = case.row().expect("a message is under way");
    assert_eq!((owing.telling.as_ref().map(|telling| telling.news.dead), owing.news.dead), (Some(500), 1));
    // Another message's end ends nothing.
    case.told(Some(Seq(began.0 - 1)), &[]);
    assert!(case.row().expect("a row").telling.is_some());
    case.told(Some(began), &[]);
    assert_eq!(case.row(), Some(Owing { news: case.news(), telling: None }));
    assert_eq!(case.news().named, [Seq(501)]);
}

#[test]
fn what_is_replayed_or_resumed_in_time_is_owed_no_more() {
    let mut case = Case::new();
    (case.died(1), case.died(2));
    case.replayed(1);
    assert_eq!((case.news().dead, case.news().named), (1, vec![Seq(2)]));
    case.replayed(2);
    assert_eq!(case.row(), None);
    case.then(Fact::EndpointDisabled { key: KEY, reason: DisabledReason::Gone });
    assert_eq!(case.news().due_at(Millis(900_000)), Some(Timestamp(0)), "at once");
    case.then(Fact::EndpointKeptFailing { key: KEY, since: Timestamp(5) });
    case.then(Fact::EndpointResumed { key: KEY });
    assert_eq!(case.row(), None);
    // A person knows what they disabled.
    case.then(Fact::EndpointDisabled { key: KEY, reason: DisabledReason::Requested("moved".into()) });
    case.then(Fact::Dead { of: of(3), reason: DeadReason::RetriesOff, was_due_at: None, tell_owner: false });
    assert_eq!(case.row(), None);
}

#[test]
fn facts_from_before_messages_had_a_beginning_end_what_they_name() {
    let mut case = Case::new();
    (case.died(1), case.died(2), case.died(3));
    let disabled = case.then(Fact::EndpointDisabled { key: KEY, reason: DisabledReason::Gone });
    case.told(None, &[1, 2]);
    assert_eq!((case.news().dead, case.news().named), (1, vec![Seq(3)]));
    case.told(None, &[disabled.0]);
    assert_eq!((case.news().dead, case.news().disabled), (1, None));
    case.told(None, &[3]);
    assert_eq!(case.row(), None);
}
