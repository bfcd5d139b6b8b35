//! The pictures of the README: made here, of a day at work, so that they show what is.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hooklog_projections::time::Timestamp;
use serde_json::json;

use crate::chromium::{Browser, Scripts};
use crate::stage::{MONDAY, Stage};
use crate::support::case::delivery;
use crate::support::receiver::{Receiver, Reply, Step, answer};

/// A picture is no more than this.
const BYTES_MAX: usize = 200_000;
const HOURS: u64 = 23;
/// The event whose page is shown.
const TOLD: &str = "evt_01KB9Q4T2M8V";

#[tokio::test(flavor = "multi_thread")]
async fn the_pictures_show_what_is() {
    let (stage, nord, mut pages) = day().await;
    let write = std::env::var("HOOKLOG_SCREENS").is_ok_and(|wish| wish == "write");
    let folder = PathBuf::from("docs/screens");
    let browser = Browser::open(&stage.origin, Scripts::On).await;
    stage.enter(&browser, &nord, "account").await;
    pages.push(("portal", "/portal/".to_owned()));
    for (name, path) in &pages {
        browser.go(path).await;
        for scheme in ["light", "dark"] {
            browser.prefer(scheme).await;
            let picture = browser.screen().await;
            let file = folder.join(format!("{name}-{scheme}.png"));
            if write {
                std::fs::create_dir_all(&folder).expect("a folder");
                std::fs::write(&file, &picture).expect("it is written");
            }
            assert!(picture.len() <= BYTES_MAX, "{name}-{scheme}: {} bytes", picture.len());
            assert_eq!(size(&picture), (1280, 800));
            let kept = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert_eq!(size(&kept), (1280, 800), "{}", file.display());
            let readme = include_str!("../../README.md");
            assert!(readme.contains(&*file.to_string_lossy()), "the README does not show {}", file.display());
        }
    }
    browser.was_quiet().await;
    browser.quit().await;
    stage.end().await;
}

/// Width and height, as a PNG's head has them.
fn size(picture: &[u8]) -> (u32, u32) {
    assert_eq!(&picture[..8], b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().expect("four bytes"));
    (number(16), number(20))
}

/// Three customers: one had an outage in the morning, one took its endpoint away, all else goes well.
async fn day() -> (Stage, String, Vec<(&'static str, String)>) {
    let outage = Arc::new(AtomicBool::new(false));
    let receiver = Receiver::answering(replies(outage.clone())).await;
    let start = Timestamp(MONDAY.0 - HOURS * 3_600_000);
    let stage = Stage::at(start, receiver, outage.clone()).await;
    let other = async |name: &str, mail: &str| {
        stage.world.account_of(json!({ "name": name, "owner_email": mail })).await
    };
    let acme = stage.account.clone();
    let nordwind = other("Nord Retail", "it@nord.example").await;
    let kestrel = other("Kestrel Freight", "dev@kestrel.example").await;
    stage.endpoint(&acme, "acme.example.com", &["payment.*"]).await;
    stage.endpoint(&nordwind, "nord.example.com", &["invoice.*", "payment.*"]).await;
    stage.endpoint(&nordwind, "crm.nord.example.com", &["customer.*"]).await;
    stage.endpoint(&kestrel, "kestrel.example.com", &["shipment.*"]).await;
    stage.endpoint(&kestrel, "old.kestrel.example.com", &["label.*"]).await;

    for hour in 0..=HOURS {
        outage.store((18..20).contains(&hour), Ordering::SeqCst);
        let busy = 4 + 14 * (hour % 24).min(30 - hour) / 15;
        let mut events = Vec::new();
        for n in 0..busy {
            let mut take = |account: &str, kind: &str, tries: Option<u32>| {
                let mut event = json!({ "account_id": account, "type": kind,
                    "data": { "invoice": format!("INV-{}", 2_000 + hour * 40 + n), "amount": "129.00", "currency": "EUR" } });
                if let Some(tries) = tries {
                    event["max_tries"] = tries.into();
                }
                events.push(event);
            };
            take(&acme, "payment.settled", None);
            take(&nordwind, "invoice.paid", (n % 3 == 0).then_some(1));
            if n % 2 == 0 {
                take(&kestrel, "shipment.left", None);
            }
            if n % 4 == 0 {
                take(&nordwind, "customer.updated", None);
            }
            if n % 9 == 4 {
                take(&kestrel, if hour < 21 { "shipment.refused" } else { "label.made" }, None);
            }
        }
        let taken = stage.world.post("/v1/events/batch", json!({ "events": events })).await.ok(202);
        assert_eq!(taken["results"].as_array().map(Vec::len), Some(events.len()));
        settled(&stage).await;
        if hour == HOURS {
            break;
        }
        if hour + 1 == HOURS {
            // The one whose page is shown: it arrives with its third try, a few minutes before now.
            stage.pass(45).await;
            let event = json!({ "id": TOLD, "data": { "invoice": "INV-2041", "amount": "1290.00",
                "currency": "EUR", "customer": { "id": "C-118", "name": "Møller & Søn" } } });
            let event = stage.send(&acme, "payment.settled", event).await;
            let id = delivery(&event);
            stage.world.until_tried(&id, 1).await;
            for (tries, minutes) in [(2, 2), (3, 6)] {
                stage.pass(minutes).await;
                stage.world.until_tried(&id, tries).await;
            }
            stage.world.until(&id, "delivered").await;
            stage.pass(7).await;
        } else {
            stage.pass(60).await;
        }
        settled(&stage).await;
    }
    let pages = vec![
        ("overview", "/".to_owned()),
        ("answer", format!("/events/{TOLD}?account_id={acme}")),
        ("dead", "/dead".to_owned()),
    ];
    (stage, nordwind, pages)
}

/// Waits until nothing is in flight.
async fn settled(stage: &Stage) {
    crate::chromium::eventually("nothing is in flight", crate::chromium::PATIENCE, async || {
        let status = stage.world.get("/v1/status").await.ok(200);
        (status["deliveries"]["in_flight"] == 0).then_some(())
    })
    .await;
}

fn replies(
    outage: Arc<AtomicBool>,
) -> impl FnMut(&crate::support::receiver::Received) -> Reply + Send + 'static {
    let (mut usual, mut told) = (crate::stage::reply(Arc::new(AtomicBool::new(false))), 0);
    move |request| {
        let host = request.values("host").first().map(|host| (*host).to_owned()).unwrap_or_default();
        let body = String::from_utf8_lossy(request.body()).into_owned();
        told += u32::from(request.values("webhook-id") == [TOLD]);
        match () {
            () if request.values("webhook-id") == [TOLD] && told < 3 => answer(
                503,
                "server: nginx\r\ncontent-type: text/html\r\n",
                "<h1>503 Service Unavailable</h1>",
            ),
            () if host.starts_with("old.") => answer(410, "", "gone"),
            () if host.starts_with("nord.") && outage.load(Ordering::SeqCst) => {
                answer(503, "retry-after: 120\r\n", "down for maintenance")
            }
            () if host.starts_with("crm.") && outage.load(Ordering::SeqCst) => vec![Step::Close],
            () if body.contains("shipment.refused") => answer(422, "", "unknown shipment"),
            () => usual(request),
        }
    }
}
