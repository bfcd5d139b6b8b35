//! Pictures of every message, and what a hostile name, type or host makes of one.

use hooklog_projections::fact::{AccountSettings, Schemes, Sealed};
use hooklog_projections::ids::{AccountId, EndpointId};
use hooklog_projections::lifecycle::LastAttempt;
use hooklog_projections::policy::Rollout;
use hooklog_projections::telling::NAMED_MAX;
use hooklog_projections::time::Millis;
use lettre::message::Mailbox;

use super::super::{Letter, letter};
use super::*;

const NOW: Timestamp = Timestamp(1_796_000_000_000);

/// Everything that a message is made from, to be changed by a test.
struct Case {
    account: Account,
    endpoint: Endpoint,
    named: Vec<(DeliveryId, Delivery)>,
    news: News,
    disabled: Option<DisabledReason>,
    waiting: u64,
    public_url: Option<&'static str>,
    began: Seq,
}

fn row(n: usize, reason: DeadReason, status: Option<u16>, error: Option<ErrorClass>) -> Delivery {
    Delivery {
        event: format!("evt_{n}").parse().unwrap(),
        event_type: "payment.settled".into(),
        accepted: Seq(1),
        endpoint: EndpointId(2),
        enqueued_at: Timestamp(0),
        state: State::Dead { at: Timestamp(9), reason },
        run: 1,
        attempts: 6,
        tries: 6,
        interruptions: 0,
        max_tries: None,
        latest: Seq(9),
        expire_at: None,
        bulk: None,
        last_attempt: Some(LastAttempt { attempt: 6, at: Timestamp(9), took: Millis(5), status, error }),
    }
}

impl Case {
    /// So many died, of which the first are named.
    fn dead(count: usize) -> Case {
        let settings = AccountSettings {
            name: "Acme".into(),
            owner_email: Some("owner@acme.example".into()),
            schedule: None,
            response_policy: None,
            webhook_retries: Rollout::On,
        };
        let account = Account { settings, secret: Sealed(vec![]), created_at: Timestamp(0) };
        let settings = EndpointSettings {
            url: "https://hooks.acme.example/in?token=s3cret".into(),
            event_types: vec![],
            description: "".into(),
            schedule: None,
            response_policy: None,
            timeout: Millis(10_000),
            in_flight_max: 8,
            schemes: Schemes { standard: true, ledger: true },
            headers: vec![],
            rate_per_second: None,
            disable_after: None,
            body_form: Default::default(),
            queue: None,
        };
        let endpoint = Endpoint {
            settings,
            signing: vec![],
            version: 1,
            hold: None,
            created_at: Timestamp(0),
            secret: None,
        };
        let died = |n| (DeliveryId(n as u128), row(n, DeadReason::Exhausted, Some(503), None));
        let named = (1..=count.min(NAMED_MAX)).map(died).collect();
        let news = News { since: Some(NOW), dead: count as u64, ..News::default() };
        let (disabled, public_url) = (None, Some("https://hooks.product.example/"));
        Case { account, endpoint, named, news, disabled, waiting: 0, public_url, began: Seq(7) }
    }

    fn with(mut self, change: impl FnOnce(&mut Case)) -> Case {
        change(&mut self);
        self
    }

    fn message(&self) -> Message {
        let url = self.public_url.map(|url| url.parse().unwrap());
        Message::about(&About {
            key: EndpointKey { account: AccountId(1), endpoint: EndpointId(2) },
            began: self.began,
            account: &self.account,
            endpoint: &self.endpoint,
            news: &self.news,
            named: &self.named,
            disabled: self.disabled.clone(),
            waiting: self.waiting,
            links: &Links::below(url.as_ref()),
            now: NOW,
        })
    }

    /// The mail, byte for byte.
    fn mail(&self) -> String {
        let message = self.message();
        let from: Mailbox = "Product webhooks <hooks@product.example>".parse().unwrap();
        let letter = Letter {
            id: &message.id,
            to: message.owner_email.as_deref(),
            subject: &message.subject,
            text: &message.text,
            html: &message.html,
            json: Default::default(),
            at: NOW,
        };
        String::from_utf8(letter::mail(&letter, &from).expect("a mail").1).unwrap()
    }
}

fn gone() -> Case {
    Case::dead(1).with(|case| {
        case.named = vec![(DeliveryId(1), row(1, DeadReason::Refused, Some(410), None))];
        (case.disabled, case.waiting) = (Some(DisabledReason::Gone), 19);
    })
}

fn picture(message: &Message) -> String {
    let html = message.html.replace("><", ">\n<");
    format!("{} ({})\n\n{}\n{html}\n", message.subject, message.kind, message.text)
}

#[test]
fn every_message() {
    let mixed = Case::dead(3).with(|case| {
        case.named[0].1 = row(1, DeadReason::Exhausted, None, Some(ErrorClass::Timeout));
        case.named[1].1 = row(2, DeadReason::Expired, None, None);
        case.named[1].1.last_attempt = None;
        case.named[2].1 = row(3, DeadReason::Exhausted, Some(500), None);
        case.named[2].1.tries = 1;
        case.public_url = None;
    });
    let failing = Case::dead(0).with(|case| {
        (case.news.since, case.news.failing) = (None, Some(Timestamp(NOW.0 - 86_400_000)));
    });
    let disabled = Case::dead(0).with(|case| {
        let since = Timestamp(5);
        (case.news.since, case.disabled, case.waiting) = (None, Some(DisabledReason::Failing { since }), 1);
    });
    let queue = Case::dead(1).with(|case| {
        (case.endpoint.settings.url, case.endpoint.settings.queue) = ("".into(), Some("mails".into()));
    });
    let replayed = Case::dead(30).with(|case| case.named.clear());
    let cases = [
        ("one died", Case::dead(1)),
        ("some died, without a public address", mixed),
        ("a storm", Case::dead(500)),
        ("what is named was replayed meanwhile", replayed),
        ("it answered 410", gone()),
        ("it failed for too long", disabled),
        ("it keeps failing", failing),
        ("of a queue", queue),
    ];
    let pictures = cases.map(|(what, case)| format!("== {what}\n\n{}", picture(&case.message())));
    insta::assert_snapshot!(pictures.join("\n"));
}

#[test]
fn a_mail_byte_for_byte() {
    insta::assert_snapshot!(gone().mail().replace('\r', ""));
}

#[test]
fn its_json_names_it_and_holds_no_secret() {
    let message = Case::dead(500).message();
    assert_eq!((message.count, message.deliveries.len()), (500, NAMED_MAX));
    let json = serde_json::to_string(&message).unwrap();
    assert!(json.contains("and 480 more") && !json.contains("s3cret"), "{json}");
    insta::assert_snapshot!(serde_json::to_string_pretty(&gone().message()).unwrap());
}

#[test]
fn a_message_has_one_id() {
    assert_eq!(Case::dead(500).message().id, Case::dead(499).message().id);
    let another = Case::dead(500).with(|case| case.began = Seq(8));
    assert_ne!(Case::dead(500).message().id, another.message().id);
}

/// Whatever names hold, a mail has the fields that it should have, each once, lines that any server takes, and a page
/// that has no element of theirs.
#[test]
fn hostile_names_stay_words() {
    let long = "x".repeat(5_000);
    let names = [
        "x\r\nBcc: a@evil.test",
        "x\nSubject: y",
        "x\r\n\r\n<p>body</p>",
        "<img src=http://evil.test/x>",
        "\"><script>alert(1)</script>",
        "A & B <unclosed",
        "{{7*7}}",
        &long,
        "😀 smile",
        "evil\u{202e}gpj.exe",
        "zero\u{200b}width\u{2066}isolate",
        "nul\0byte\u{85}next",
        "=?utf-8?q?Bcc:_a@evil.test?=",
        "line\u{2028}separator",
        "\t tab",
    ];
    let fields = ["from", "to", "subject", "date", "message-id", "mime-version", "content-type"];
    for name in names {
        let case = Case::dead(2).with(|case| {
            case.account.settings.name = name.into();
            case.endpoint.settings.url = "".into();
            case.endpoint.settings.queue = Some(name.into());
            for (_, row) in &mut case.named {
                row.event_type = name.into();
            }
        });
        let (message, mail) = (case.message(), case.mail());
        assert!(mail.is_ascii() && mail.lines().all(|line| line.len() <= 998), "{mail}");
        let head = mail.split("\r\n\r\n").next().unwrap();
        // A field begins at the start of a line; what begins with a space goes on.
        let names: Vec<_> = head.split("\r\n").filter(|line| !line.starts_with([' ', '\t'])).collect();
        for field in fields {
            let count =
                names.iter().filter(|line| line.to_lowercase().starts_with(&format!("{field}:"))).count();
            assert_eq!(count, 1, "{field} in {head}");
        }
        assert!(!names.iter().any(|line| line.to_lowercase().starts_with("bcc")), "{head}");
        assert!(!message.subject.chars().any(char::is_control), "{}", message.subject);
        let tags = ["<img", "<script", "<unclosed", "<p>body"];
        assert!(!tags.iter().any(|tag| message.html.contains(tag)), "{}", message.html);
        for turned in ['\u{202e}', '\u{200b}', '\u{2066}', '\u{2028}', '\0', '\u{85}', '\r'] {
            assert!(!message.text.contains(turned) && !message.html.contains(turned), "{name:?}");
        }
        assert!(message.text.len() < 2_000 && !message.text.contains("http://evil.test"), "{}", message.text);
        assert!(message.text.lines().count() < 20, "{}", message.text);
    }
}

#[test]
fn a_mail_to_nobody_says_so() {
    let from: Mailbox = "hooks@product.example".parse().unwrap();
    let to = |to: Option<&str>| {
        let letter =
            Letter { id: "ntf_1", to, subject: "s", text: "t", html: "h", json: Default::default(), at: NOW };
        letter::mail(&letter, &from).map(drop).expect_err("no mail")
    };
    assert_eq!(to(None), "the account names no e-mail address");
    for bad in ["nobody", "a@b\r\nBcc: c@d", "a@b, c@d", "<a@b>", "a b@c.example", ""] {
        assert_eq!(to(Some(bad)), "the account's e-mail address is none that mail can go to", "{bad:?}");
    }
}
