//! Hooklog embedded in a program: queues and workers, webhooks over HTTP, the log's facts, an end in order, and the
//! real command line beside it on the same folder. `examples/ukue.rs` is run here, against receivers on loopback.

#[path = "support/receiver.rs"]
mod receiver;
#[path = "../examples/ukue.rs"]
mod ukue;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hooklog::Hooklog;
use hooklog::clock::ManualClock;
use hooklog::delivery::guard;
use hooklog::embed::{Concurrency, Error, JobError, Options, Queue, failed, permanent, retry_after};
use hooklog_projections::fact::Fact;
use hooklog_projections::ids::Seq;
use hooklog_projections::lifecycle::Status;
use hooklog_projections::time::{Millis, Timestamp};
use receiver::{Receiver, answer};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
const START: Timestamp = Timestamp(1_796_000_000_000);

fn loopback() -> Options {
    let allow = vec!["127.0.0.1".parse().expect("a line")];
    let guard = guard::Policy { allow, allow_http: true, ..guard::Policy::default() };
    Options { guard, ..Options::default() }
}

async fn open(folder: &Path) -> Hooklog {
    Hooklog::open(folder, loopback()).await.expect("it opens")
}

/// A receiver that always answers so.
async fn receiver(status: u16, fields: &str) -> Receiver {
    Receiver::scripted(vec![answer(status, fields, "")]).await
}

/// Waits until all jobs of a queue are in a status, and shows them.
async fn until(queue: &Queue, status: Status, count: usize) -> Vec<hooklog::embed::Delivery> {
    let looking = async {
        loop {
            let found = queue.list(status).await.expect("it can be read");
            if found.len() == count {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, looking).await.unwrap_or_else(|_| panic!("never {count} {status:?}"))
}

/// Runs the real command line on a folder.
async fn hooklog(folder: &Path, args: &[&str]) -> (Option<i32>, Value, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hooklog"));
    command.args(args).arg("--store").arg(folder).arg("--json").env_remove("HOOKLOG_URL");
    let output = command.output().await.expect("the binary runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), serde_json::from_str(&text).unwrap_or(Value::Null), said)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_says_decides_what_becomes_of_its_job() {
    let folder = tempfile::tempdir().unwrap();
    let hooklog = open(folder.path()).await;
    let queue = hooklog.queue("webhooks").await.unwrap();
    for word in ["done", "broken", "later", "error", "panic"] {
        queue.enqueue(&json!({ "word": word })).id(word).event_type("invoice.paid").await.unwrap();
    }
    let (told, mut tells) = mpsc::unbounded_channel();
    let workers = queue.work(Concurrency(2), move |job| {
        let told = told.clone();
        async move {
            let _ = told.send((job.id.to_string(), job.tried));
            match job.json::<Value>()?["word"].as_str() {
                Some("done") => Ok(()),
                Some("broken") => Err(permanent("answered 410 Gone")),
                Some("later") => Err(retry_after("answered 429", Duration::from_secs(3_600))),
                Some("panic") => panic!("it cannot go on"),
                _ => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()),
            }
        }
    });
    for _ in 0..5 {
        let (_, tried) = tells.recv().await.expect("each is tried");
        assert_eq!(tried, 1);
    }
    until(&queue, Status::Delivered, 1).await;
    let dead = until(&queue, Status::Dead, 1).await;
    let pending = until(&queue, Status::Pending, 3).await;
    workers.stop().await;
    assert_eq!(dead[0].event_id.as_str(), "broken");
    assert_eq!(dead[0].last_error.as_deref(), Some("answered 410 Gone"));
    assert_eq!(dead[0].payload.as_ref().map(|payload| payload.get()), Some(r#"{"word":"broken"}"#));
    let errors: BTreeMap<_, _> =
        pending.iter().map(|job| (job.event_id.as_str(), job.last_error.clone().unwrap())).collect();
    assert_eq!(errors["later"], "answered 429");
    assert_eq!(errors["error"], "connection refused");
    assert_eq!(errors["panic"], "the worker panicked");
    assert_eq!((pending[0].tried, pending[0].tries, pending[0].queue.as_deref()), (1, 10, Some("webhooks")));
    // A retried job starts again at its first try; what is not dead is refused with the reason.
    let refused = queue.retry(["broken", "done", "nobody"]).await;
    assert_eq!(refused.keys().collect::<Vec<_>>(), ["done", "nobody"]);
    assert!(refused["done"].to_string().contains("delivered"), "{refused:?}");
    assert_eq!(until(&queue, Status::Pending, 4).await[3].run, 2);
    let answer = hooklog.explain("broken").await.unwrap();
    assert!(answer.sentence.starts_with("Not yet."), "{answer:?}");
    hooklog.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ukues_program_runs_beside_ours_and_the_command_line_sees_into_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("jobs");
    let hooklog = open(&store).await;
    let webhooks = hooklog.queue("webhooks").await.unwrap();
    let well = receiver(200, "").await;
    let gone = receiver(410, "").await;
    let busy = receiver(429, "retry-after: 600\r\n").await;
    let broken = receiver(503, "").await;
    let workers = ukue::work(&webhooks);
    let mut put_in = BTreeMap::new();
    for (name, url) in [
        ("well", well.url("/")),
        ("gone", gone.url("/")),
        ("busy", busy.url("/")),
        ("broken", broken.url("/")),
    ] {
        let event = ukue::Event { id: format!("pay_{name}"), url, amount: 12_900 };
        put_in.insert(name, ukue::payment(&webhooks, &event).await.unwrap().delivery);
    }
    webhooks.enqueue_bytes("no json").await.unwrap();
    assert_eq!(until(&webhooks, Status::Delivered, 1).await[0].id, put_in["well"]);
    until(&webhooks, Status::Dead, 2).await;
    let pending = until(&webhooks, Status::Pending, 2).await;
    let waits = |name: &str| {
        let job = pending.iter().find(|job| job.id == put_in[name]).expect("it waits");
        (job.last_error.clone().unwrap(), job.tries)
    };
    assert_eq!(waits("busy"), (format!("{} answered 429", busy.url("/")), 30));
    assert_eq!(waits("broken"), (format!("{} answered 503", broken.url("/")), 30));

    // The dead letters, with payload and last error, while the program runs.
    let (code, dead, said) = self::hooklog(&store, &["list", "--queue", "webhooks", "--state", "dead"]).await;
    assert_eq!(code, Some(0), "{said}");
    let dead = dead.as_array().expect("a list").clone();
    assert_eq!(dead.len(), 2, "{dead:#?}");
    let letter = dead.iter().find(|job| job["payload"]["id"] == "pay_gone").expect("it is among them");
    assert_eq!(letter["last_error"], format!("{} answered 410 Gone", gone.url("/")));
    assert_eq!(dead.iter().filter(|job| job["payload_base64"] == "bm8ganNvbg==").count(), 1);
    // Put back in line by id: the program itself delivers it again, and it is refused again.
    let id = letter["id"].as_str().expect("an id");
    let (code, _, said) = self::hooklog(&store, &["retry", id]).await;
    assert_eq!(code, Some(0), "{said}");
    let again = async {
        while hooklog.delivery(put_in["gone"]).await.unwrap().attempts < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, again).await.expect("the worker gets it again");
    until(&webhooks, Status::Dead, 2).await;
    assert_eq!(ukue::resend(&webhooks, &gone.url("/")).await.unwrap(), 1);
    until(&webhooks, Status::Dead, 2).await;
    workers.stop().await;
    hooklog.close().await.unwrap();
    // And on the stopped store.
    let (code, dead, said) = self::hooklog(&store, &["list", "--queue", "webhooks", "--state", "dead"]).await;
    assert_eq!((code, dead.as_array().map(Vec::len)), (Some(0), Some(2)), "{said}");
    let (code, ..) = self::hooklog(&store, &["store", "verify"]).await;
    assert_eq!(code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_at_once_and_never_more() {
    let folder = tempfile::tempdir().unwrap();
    let hooklog = open(folder.path()).await;
    let queue = hooklog.queue("mails").await.unwrap();
    let put_in = queue.enqueue_many((0..200).map(|n| queue.enqueue(&n))).await;
    assert!(put_in.iter().all(Result::is_ok));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let full = Arc::new(tokio::sync::Barrier::new(16));
    let (now, peak, gate) = (running.clone(), most.clone(), full.clone());
    let workers = queue.work(Concurrency(16), move |job| {
        let (now, peak, gate) = (now.clone(), peak.clone(), gate.clone());
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            if job.json::<u64>()? < 160 {
                // None ends before sixteen run.
                gate.wait().await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    until(&queue, Status::Delivered, 200).await;
    assert_eq!(most.load(Ordering::SeqCst), 16);
    workers.stop().await;
    hooklog.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_in_order_lets_jobs_end_and_gives_back_what_was_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let hooklog = open(folder.path()).await;
    let queue = hooklog.queue("mails").await.unwrap();
    for n in 0..3 {
        queue.enqueue(&n).await.unwrap();
    }
    let (began, mut begins) = mpsc::unbounded_channel();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let inner = gate.clone();
    queue.work(Concurrency(1), move |job| {
        let (began, gate) = (began.clone(), inner.clone());
        async move {
            let _ = began.send(job.id);
            gate.acquire().await.map_err(failed)?.forget();
            Ok::<(), JobError>(())
        }
    });
    begins.recv().await.expect("one runs");
    let closing = tokio::spawn(hooklog.close());
    gate.add_permits(3);
    closing.await.unwrap().unwrap();
    // One was done, the others wait for the next start: none is lost, none was interrupted.
    let hooklog = open(folder.path()).await;
    let queue = hooklog.queue("mails").await.unwrap();
    let (done, pending) =
        (queue.list(Status::Delivered).await.unwrap(), queue.list(Status::Pending).await.unwrap());
    assert_eq!(done.len() + pending.len(), 3);
    assert!(!done.is_empty() && pending.iter().all(|job| job.attempts == 0), "{pending:?}");
    hooklog.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_put_in_once_by_its_id_and_not_before_its_delay() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(START);
    let options = Options { clock: Some(clock.clone()), ..loopback() };
    let hooklog = Hooklog::open(folder.path(), options).await.unwrap();
    let queue = hooklog.queue("mails").await.unwrap();
    let first = queue.enqueue(&1).id("mail-1").delay(Duration::from_secs(30)).await.unwrap();
    let again = queue.enqueue(&1).id("mail-1").delay(Duration::from_secs(30)).await.unwrap();
    assert!(!first.duplicate && again.duplicate && first.delivery == again.delivery);
    let other = queue.enqueue(&2).id("mail-1").await;
    assert!(matches!(other, Err(Error::Rejected(_))), "{other:?}");
    for wrong in [queue.enqueue(&1).id("a b").await, queue.enqueue_bytes(vec![0; 65_537]).await] {
        assert!(matches!(wrong, Err(Error::Refused { .. })), "{wrong:?}");
    }
    assert!(hooklog.queue("a/b").await.is_err());
    let (told, mut tells) = mpsc::unbounded_channel();
    queue.work(Concurrency(4), move |job| {
        let _ = told.send(job.id.to_string());
        async { Ok(()) }
    });
    clock.advance(Millis(29_999));
    queue.enqueue(&3).id("mail-3").await.unwrap();
    assert_eq!(tells.recv().await.as_deref(), Some("mail-3"), "the other one waits");
    clock.advance(Millis(1));
    queue.enqueue(&4).id("mail-4").await.unwrap();
    let next = [tells.recv().await.unwrap(), tells.recv().await.unwrap()];
    assert!(next.contains(&"mail-1".to_owned()), "{next:?}");
    hooklog.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_go_out_and_every_fact_is_heard_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let hooklog = open(folder.path()).await;
    let receiver = receiver(204, "").await;
    let acme = hooklog.account("Acme").await.unwrap();
    let mut facts = hooklog.subscribe(Seq(0));
    let endpoint = hooklog.endpoint(acme, &receiver.url("/in")).await.unwrap();
    assert!(endpoint.signing_secret.starts_with("whsec_"));
    let sent = hooklog
        .send(acme, "payment.settled", &json!({ "amount": 1 }))
        .id("pay-1")
        .max_tries(3)
        .await
        .unwrap();
    assert_eq!((sent.id.as_str(), sent.deliveries.len(), sent.duplicate), ("pay-1", 1, false));
    let (mut names, mut last) = (Vec::new(), Seq(0));
    while names.last() != Some(&"Delivered") {
        let entry =
            tokio::time::timeout(LONG, facts.next()).await.expect("in time").unwrap().expect("it is open");
        assert_eq!(entry.seq, last.next(), "none is missed, none is told twice");
        last = entry.seq;
        names.push(entry.fact.name());
    }
    assert_eq!(
        names,
        ["Founded", "AccountCreated", "EndpointCreated", "Accepted", "Enqueued", "Attempted", "Delivered"]
    );
    let answer = hooklog.explain("pay-1").await.unwrap();
    assert!(answer.sentence.starts_with("Yes. `payment.settled` was delivered to 127.0.0.1"), "{answer:?}");
    assert_eq!(hooklog.delivery(sent.deliveries[0]).await.unwrap().status, Status::Delivered);
    let refused = hooklog.replay("pay-1").await.unwrap_err();
    assert!(matches!(&refused, Error::Refused { code, .. } if code == "nothing-to-replay"), "{refused:?}");
    // A reader that comes back goes on after what it heard; one that waits hears of the end.
    let mut later = hooklog.subscribe(last);
    let waiting = tokio::spawn(async move { later.next().await });
    hooklog.close().await.unwrap();
    let heard = tokio::time::timeout(LONG, waiting).await.expect("in time").unwrap().unwrap();
    assert!(heard.is_none_or(|entry| !matches!(entry.fact, Fact::Delivered { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_elsewhere_share_the_queue_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let mut hooklog = open(folder.path()).await;
    let queue = hooklog.queue("webhooks").await.unwrap();
    queue.enqueue(&json!({ "n": 1 })).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    hooklog.serve(listener);
    let client = reqwest::Client::new();
    let ready = client.get(format!("http://{address}/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), 200);
    // Over the socket's file, as the command line does it.
    let (code, shown, said) = self::hooklog(folder.path(), &["list", "--queue", "webhooks"]).await;
    assert_eq!((code, shown[0]["status"].as_str()), (Some(0), Some("pending")), "{said}");
    hooklog.close().await.unwrap();
}
