//! What is read from outside, on random bytes: any at all, and what was right once with some of it changed. The
//! bodies, which a fuzzer can call as well, and what each promises are `tests/support/fuzz.rs`'s.

#[path = "support/fuzz.rs"]
mod bodies;

use hooklog::api::cursor::Cursors;
use hooklog::ids::IdCodec;
use hooklog::log::batch::Record;
use hooklog::log::chain::Chain;
use hooklog::secrets::MasterKey;
use hooklog::views::Place;
use hooklog_projections::fact::{Actor, Entry, Fact};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey, Seq, StoreId};
use hooklog_projections::time::Timestamp;
use proptest::prelude::*;
use proptest::sample::Index;

/// Inputs that are right.
fn right(name: &str) -> Vec<Vec<u8>> {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    match name {
        "retry_after" => texts(&[
            "120",
            "99999999999999999999",
            "Sun, 06 Nov 1994 08:50:37 GMT\nSun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:50:37 GMT",
            "Sun Nov  6 08:50:37 1994\nnonsense\n5",
        ]),
        "url_guard" => texts(&[
            "https://hooks.customer.com/in?x=%2F#",
            "http://hooks.customer.com:8080/a/../b",
            "https://xn--bcher-kva.com/",
            "https://127.0.0.1.nip.io/",
            "http://user@2130706433/",
            "http://[::ffff:a9fe:a9fe]/",
        ]),
        "address_judge" => {
            let addresses = include_str!("../fixtures/guard/addresses.txt").split_whitespace();
            let parsed = addresses.filter_map(|word| word.parse::<std::net::IpAddr>().ok());
            let bytes = parsed.map(|address| match address {
                std::net::IpAddr::V4(four) => four.octets().to_vec(),
                std::net::IpAddr::V6(six) => six.octets().to_vec(),
            });
            bytes.collect()
        }
        "response_reader" => texts(&[
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nretry-after: 5\r\n\r\nok",
            "HTTP/1.1 503 \r\ntransfer-encoding: chunked\r\n\r\n3\r\nbad\r\n0\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 No\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/\r\ncontent-length: 0\r\n\r\n",
        ]),
        "log_codec" => {
            let key = EndpointKey { account: AccountId(1), endpoint: EndpointId(2) };
            let entry = |seq: u64| Entry {
                seq: Seq(seq),
                at: Timestamp(1_700_000_000_000 + seq),
                actor: Actor::Api("billing".into()),
                fact: Fact::EndpointPaused { key, reason: "maintenance".into() },
            };
            let record = Record::write(StoreId(9), Chain::genesis(), &[entry(1), entry(2)]).expect("a batch");
            let facts = hooklog::log::codec::encode(&entry(1).fact);
            vec![record.bytes().to_vec(), facts, hooklog::log::codec::encode(&entry(3))]
        }
        "id_codec" => {
            let id = IdCodec::new([7; 32], 1).delivery_id(Seq(70_000), Timestamp(1_700_000_000_000));
            vec![id.to_string().into_bytes(), id.0.to_be_bytes().to_vec(), b"evt_01-ok~".to_vec()]
        }
        "cursor" => {
            let cursors = Cursors::new(&MasterKey::from_bytes(zeroize::Zeroizing::new([5; 32])));
            vec![[&b"a"[..], cursors.write("list 97", Place::After(42)).as_bytes()].concat()]
        }
        other => panic!("no inputs for {other}"),
    }
}

/// One change: a byte set, taken out or put in, or the end cut off.
type Change = (u8, Index, u8);

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for (what, at, byte) in changes {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        match what % 4 {
            0 => bytes[at] = *byte,
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, *byte),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Runs a body on what is right, on any bytes, and on what is nearly right.
fn run(name: &str, cases: u32) {
    let (_, body) = bodies::ALL.iter().find(|(known, _)| *known == name).expect("a body");
    let right = right(name);
    right.iter().for_each(|bytes| body(bytes));
    body(&[]);
    let any_bytes = proptest::collection::vec(any::<u8>(), 0..300);
    let changes = proptest::collection::vec(any::<Change>(), 1..6);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
    let strategy = (any_bytes, any::<Index>(), changes);
    let ran = runner.run(&strategy, |(any_bytes, which, changes)| {
        body(&any_bytes);
        body(&changed(right[which.index(right.len())].clone(), &changes));
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn retry_after_on_any_bytes() {
    run("retry_after", 2_000);
}

#[test]
fn url_guard_on_any_bytes() {
    run("url_guard", 2_000);
}

#[test]
fn address_judge_on_any_bytes() {
    run("address_judge", 2_000);
}

#[test]
fn response_reader_on_any_bytes() {
    run("response_reader", 150);
}

#[test]
fn log_codec_on_any_bytes() {
    run("log_codec", 2_000);
}

#[test]
fn id_codec_on_any_bytes() {
    run("id_codec", 1_000);
}

#[test]
fn cursor_on_any_bytes() {
    run("cursor", 1_000);
}
