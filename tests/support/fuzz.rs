//! Everything that reads bytes from outside, as one function each over any bytes at all: what it says of them must
//! hold for all. `tests/fuzz.rs` calls them with what proptest makes up. A fuzzer calls the very same:
//!
//! ```text
//! #[path = "../../tests/support/fuzz.rs"]
//! mod bodies;
//! libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::url_guard(bytes));
//! ```
//!
//! Stands in for: receivers, name servers, producers and disks that send whatever they like.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hooklog::api::cursor::Cursors;
use hooklog::delivery::client::Options;
use hooklog::delivery::guard::{self, Policy};
use hooklog::delivery::{
    CONTENT_LENGTH, Client, KEPT_BODY_BYTES, KEPT_HEADER_BYTES, KEPT_HEADERS, Request, TextSecret,
    retry_after,
};
use hooklog::ids::IdCodec;
use hooklog::log::batch::Record;
use hooklog::log::codec;
use hooklog::secrets::MasterKey;
use hooklog::views::Place;
use hooklog_projections::fact::{Entry, Fact, Schemes};
use hooklog_projections::ids::{AccountId, DeliveryId, EndpointId, EventId, Seq};
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::time::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What one input does; it panics where a promise is broken.
pub type Body = fn(&[u8]);

/// Every body, by name.
pub const ALL: [(&str, Body); 7] = [
    ("retry_after", retry_after),
    ("url_guard", url_guard),
    ("address_judge", address_judge),
    ("response_reader", response_reader),
    ("log_codec", log_codec),
    ("id_codec", id_codec),
    ("cursor", cursor),
];

/// Up to three lines: two of `Retry-After` and a `Date`. No wait is beyond the cap, and none comes of two lines.
pub fn retry_after(bytes: &[u8]) {
    const NOW: Timestamp = Timestamp(784_111_777_000);
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(3, '\n');
    let (first, date, second) = (lines.next().unwrap_or_default(), lines.next(), lines.next());
    let wait = retry_after::parse([first], NOW, date);
    assert!(wait.is_none_or(|wait| wait <= retry_after::CAP), "{text:?}: {wait:?}");
    let digits = first.trim_matches([' ', '\t']);
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    assert!(!all_digits || wait.is_some(), "{first:?} is a number of seconds");
    if let Some(second) = second {
        assert_eq!(retry_after::parse([first, second], NOW, date), None, "two lines are none");
    }
}

/// A URL. What passes is written as it was, leads to nothing that is refused by address or by name, and passes
/// again as the same.
pub fn url_guard(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let policy = Policy { allow_http: true, ..Policy::default() };
    let Ok(url) = policy.check_url(text) else { return };
    assert_eq!(policy.check_url(url.as_str()).as_ref(), Ok(&url), "{text:?} is not stable");
    assert!(
        matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none()
    );
    assert!(url.fragment().is_none() && text.is_ascii());
    let port = url.port_or_known_default().expect("a port");
    assert!(policy.ports.contains(&port) || [80, 8080].contains(&port), "{text:?}: port {port}");
    let Some(url::Host::Domain(host)) = url.host() else { panic!("{text:?} names an address") };
    let host = host.to_ascii_lowercase();
    assert!(host.contains('.') && !host.ends_with('.') && !host.contains(".."), "{text:?}");
    for end in [".localhost", ".local", ".internal", ".arpa", ".test"] {
        assert!(!host.ends_with(end), "{text:?}");
    }
    assert!(host.parse::<IpAddr>().is_err(), "{text:?} is an address all the same");
}

/// Four or sixteen bytes of an address. Mapped is judged as plain; of IPv6 nothing passes outside 2000::/3; and one
/// that is refused condemns every list it stands in.
pub fn address_judge(bytes: &[u8]) {
    if let Some(four) = bytes.first_chunk::<4>() {
        let plain = Ipv4Addr::from(*four);
        let passes = guard::judge(plain.into()).is_ok();
        assert_eq!(passes, guard::judge(plain.to_ipv6_mapped().into()).is_ok(), "{plain}");
        let never = plain.is_private()
            || plain.is_loopback()
            || plain.is_link_local()
            || plain.is_multicast()
            || plain.is_broadcast()
            || plain.is_unspecified()
            || plain.is_documentation();
        assert!(!(passes && never), "{plain} passes");
        let list = [Ipv4Addr::new(8, 8, 8, 8).into(), IpAddr::from(plain)];
        let judged = Policy::default().check_addresses(&list, Some(443), &[]);
        assert_eq!(judged.is_ok(), passes, "{plain} beside a good one");
        assert!(Policy::default().check_addresses(&[plain.into()], Some(443), &[plain.into()]).is_err());
    }
    if let Some(sixteen) = bytes.first_chunk::<16>() {
        let address = Ipv6Addr::from(*sixteen);
        let global = address.segments()[0] & 0xe000 == 0x2000;
        let passes = guard::judge(address.into()).is_ok();
        assert!(!passes || global || address.to_ipv4_mapped().is_some(), "{address} passes");
    }
}

/// All that a receiver ever says, to its end. The outcome is an answer within the limits or a fault that another
/// try may mend; and only what begins like HTTP is an answer.
pub fn response_reader(bytes: &[u8]) {
    thread_local!(static RUNTIME: RefCell<tokio::runtime::Runtime> = RefCell::new(
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    ));
    RUNTIME.with_borrow(|runtime| runtime.block_on(respond(bytes)));
}

async fn respond(bytes: &[u8]) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("http://{}/h", listener.local_addr().expect("its address"));
    let allow = vec!["127.0.0.1".parse().expect("a line")];
    let policy = Policy { allow, allow_http: true, ..Policy::default() };
    let client = Client::new(policy, Options::default()).expect("a client");
    let serving = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let (mut head, mut chunk) = (Vec::new(), [0; 4096]);
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = stream.read(&mut chunk).await.unwrap_or(0);
            if read == 0 {
                return;
            }
            head.extend_from_slice(&chunk[..read]);
        }
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        // To the end of what it says, so that nothing is reset under what was said.
        while stream.read(&mut chunk).await.is_ok_and(|read| read > 0) {}
    };
    let sending = async {
        let outcome = client.send(request(url), || 1_700_000_000).await;
        drop(client);
        outcome
    };
    let (outcome, ()) = tokio::join!(sending, serving);
    match outcome.result {
        Ok(answer) => {
            assert!(bytes.starts_with(b"HTTP/1."), "{bytes:?} is an answer: {answer:?}");
            assert!((101..=999).contains(&answer.status), "{answer:?}");
            assert!(answer.body.len() <= KEPT_BODY_BYTES);
            let fits = |(name, value): &(&str, String)| {
                let kept = KEPT_HEADERS.contains(name) || (answer.truncated && *name == CONTENT_LENGTH);
                kept && value.len() <= KEPT_HEADER_BYTES
            };
            assert!(answer.headers.iter().all(fits), "{answer:?}");
        }
        Err(fault) => {
            assert!(matches!(fault.class, ErrorClass::Closed | ErrorClass::Protocol), "{bytes:?}: {fault:?}");
            assert!(fault.detail.chars().count() <= 300 && !fault.detail.contains("127.0.0.1"), "{fault:?}");
        }
    }
    assert!(!outcome.resent && !outcome.reused);
}

fn request(url: String) -> Request {
    Request {
        url,
        event_id: "evt_01".parse().expect("an id"),
        body: bytes::Bytes::from_static(b"{}"),
        content_type: "application/json".to_owned(),
        run: 1,
        keys: Vec::new(),
        account_secret: Some(TextSecret::new("a secret of sixteen".to_owned().into())),
        schemes: Schemes { standard: false, ledger: true },
        signature_header: Default::default(),
        headers: Vec::new(),
        timeout: Duration::from_secs(30),
    }
}

/// A stored value or a stored batch. What is read is written as something that reads the same, and a batch that
/// proves itself has every entry it says.
pub fn log_codec(bytes: &[u8]) {
    if let Ok(fact) = codec::decode::<Fact>(bytes) {
        assert_eq!(codec::decode::<Fact>(&codec::encode(&fact)).expect("just written"), fact);
    }
    if let Ok(entry) = codec::decode::<Entry>(bytes) {
        assert_eq!(codec::decode::<Entry>(&codec::encode(&entry)).expect("just written"), entry);
    }
    let Ok(record) = Record::read(bytes.to_vec().into()) else { return };
    let (first, last) = (record.header().first, record.header().last);
    assert!(first <= last && record.bytes().as_ref() == bytes);
    let _ = (record.last_at(), record.entry(last));
    let read = record.entries_from(first).take_while(Result::is_ok).count() as u64;
    assert!(read <= last.0 - first.0 + 1);
}

/// Text of an id, or sixteen bytes of one. What is read is written as something that reads the same, and a position
/// that comes out of an id goes back into that id.
pub fn id_codec(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(id) = text.parse::<DeliveryId>() {
            assert_eq!(id.to_string().parse(), Ok(id));
            assert!(text.eq_ignore_ascii_case(&id.to_string()), "{text} has two spellings");
        }
        assert!(text.parse::<AccountId>().is_err() || text.parse::<EndpointId>().is_err());
        if let Ok(id) = text.parse::<EventId>() {
            assert!(!text.contains(['.', ' ', ',']) && id.as_str() == text && text.len() <= 64);
        }
    }
    if let Some(sixteen) = bytes.first_chunk::<16>() {
        let (codec, id) = (IdCodec::new([7; 32], 1), DeliveryId(u128::from_be_bytes(*sixteen)));
        if let Some((seq, at)) = codec.delivery_seq(id) {
            assert_eq!(codec.delivery_id(seq, at), id, "{seq} at {at}");
        }
        let (seq, at) =
            (Seq(u64::from(sixteen[0]) << 40 | u64::from(sixteen[1])), Timestamp(id.0 as u64 >> 16));
        assert_eq!(codec.delivery_seq(codec.delivery_id(seq, at)), Some((seq, at)));
    }
}

/// A cursor, of which the first byte says the list. Only what this store wrote for that list is read, and gives the
/// position that was written.
pub fn cursor(bytes: &[u8]) {
    let cursors = Cursors::new(&MasterKey::from_bytes(zeroize::Zeroizing::new([5; 32])));
    let Some((list, text)) = bytes.split_first() else { return };
    let list = format!("list {list}");
    let text = String::from_utf8_lossy(text);
    if let Ok(place) = cursors.read(&list, &text) {
        assert_eq!(cursors.write(&list, place), text, "a forged cursor, or two spellings of one");
    }
    let position = text.bytes().take(16).fold(0, |sum: u128, byte| sum << 8 | u128::from(byte));
    for place in [Place::After(position), Place::UpTo(position)] {
        let written = cursors.write(&list, place);
        assert_eq!(cursors.read(&list, &written).ok(), Some(place));
        assert!(cursors.read("another list", &written).is_err());
    }
}
