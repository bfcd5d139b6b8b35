//! Worker queues over HTTP, as a worker on another machine sees them: a queue is made, jobs come in, are claimed,
//! extended, ended, listed and retried. The clock stands until it is told otherwise.

mod support;

use serde_json::{Value, json};
use support::case::{World, text};

async fn queue(world: &World) -> String {
    let account = world.account().await;
    let body = json!({ "account_id": account, "queue": "webhooks", "schedule": "ukue" });
    let made = world.post("/v1/endpoints", body).await.ok(201);
    assert_eq!(made["queue"], "webhooks", "{made}");
    for absent in ["url", "signing_secret"] {
        assert!(made.get(absent).is_none(), "{made}");
    }
    account
}

async fn job(world: &World, members: Value) -> String {
    let made = world.post("/v1/queues/webhooks/jobs", members).await.ok(202);
    text(&made["deliveries"][0]["id"])
}

async fn claim(world: &World, body: Value) -> Vec<Value> {
    let claimed = world.post("/v1/queues/webhooks/claim", body).await.ok(200);
    claimed["jobs"].as_array().expect("a list").clone()
}

async fn lease(world: &World, job: &Value, verb: &str, body: Value) -> support::case::Answer {
    world.post(&format!("/v1/leases/{}/{verb}", text(&job["lease"])), body).await
}

#[tokio::test]
async fn a_job_goes_in_and_its_worker_gets_the_payload_byte_for_byte() {
    let world = World::new().await;
    queue(&world).await;
    let payload = r#"{"amount": 12900.00,"amount":1}"#;
    let body = format!(r#"{{"payload":{payload},"id":"inv-7","type":"invoice.paid","max_tries":30}}"#);
    let made =
        world.call(axum::http::Method::POST, "/v1/queues/webhooks/jobs", "application/json", body).await;
    let delivery = text(&made.ok(202)["deliveries"][0]["id"]);
    let claimed = world.post("/v1/queues/webhooks/claim", json!({ "max": 16 })).await;
    assert!(String::from_utf8_lossy(&claimed.body).contains(payload), "its bytes are its own");
    let job = claimed.ok(200)["jobs"][0].clone();
    for (member, wanted) in [
        ("id", json!(delivery)),
        ("event_id", json!("inv-7")),
        ("event_type", json!("invoice.paid")),
        ("content_type", json!("application/json")),
        ("queue", json!("webhooks")),
        ("status", json!("in_flight")),
        ("try", json!(1)),
        ("tries", json!(30)),
        ("run", json!(1)),
        ("lease_expires_at", json!("2023-11-14T22:14:20.000Z")),
    ] {
        assert_eq!(job[member], wanted, "{member} of {job:#}");
    }
    assert!(text(&job["lease"]).starts_with("lease_"));
    assert!(claim(&world, json!({})).await.is_empty());
    let done = lease(&world, &job, "complete", json!({})).await.ok(200);
    assert_eq!(done["status"], "delivered");
    insta::assert_snapshot!(text(&done["explanation"]["sentence"]), @"Yes. `invoice.paid` was done by a worker of queue `webhooks` at 22:13:20 UTC (just now) on attempt 1 of 30 after 0 ms.");
    // Of an event its workers get what a URL would be sent: the envelope, or the data where that is wanted.
    let account = text(&done["account_id"]);
    world.event(&account, "evt_2", r#"{"a": 1.0}"#).await;
    let payload = claim(&world, json!({})).await[0]["payload"].clone();
    assert_eq!(payload, json!({ "id": "evt_2", "type": "payment.settled", "data": { "a": 1.0 } }));
    let path = format!("/v1/endpoints/{}", text(&done["endpoint_id"]));
    world.patch(&path, json!({ "body_form": "data" })).await.ok(200);
    world.event(&account, "evt_3", r#"{"a": 1.0}"#).await;
    assert_eq!(claim(&world, json!({})).await[0]["payload"], json!({ "a": 1.0 }));
}

#[tokio::test]
async fn failures_wait_end_or_come_back_when_the_worker_says_so() {
    let world = World::new().await;
    queue(&world).await;
    let ids = [job(&world, json!({ "payload": 1 })).await, job(&world, json!({ "payload": 2 })).await];
    let jobs = claim(&world, json!({ "max": 10 })).await;
    assert_eq!(jobs.len(), 2);
    let dead = json!({ "error": "answered 410 Gone", "permanent": true });
    let dead = lease(&world, &jobs[0], "fail", dead).await.ok(200);
    assert_eq!((&dead["status"], &dead["dead_reason"]), (&json!("dead"), &json!("refused")), "{dead:#}");
    assert_eq!(dead["last_error"], "answered 410 Gone");
    insta::assert_snapshot!(text(&dead["explanation"]["sentence"]), @"No. Attempt 1 of 30 failed after 0 ms: its worker said “answered 410 Gone”, which says that trying again is pointless; given up at 22:13:20 UTC.");
    let later = json!({ "error": "answered 429", "retry_after_ms": 90_000 });
    let later = lease(&world, &jobs[1], "fail", later).await.ok(200);
    assert_eq!((&later["status"], &later["due_at"]), (&json!("pending"), &json!("2023-11-14T22:14:50.000Z")));
    world.advance_secs(90).await;
    let again = claim(&world, json!({})).await.remove(0);
    assert_eq!((&again["id"], &again["try"]), (&json!(ids[1]), &json!(2)));
    let plain = lease(&world, &again, "fail", json!({ "error": "no route to host" })).await.ok(200);
    assert_eq!((&plain["status"], &plain["last_error"]), (&json!("pending"), &json!("no route to host")));
    // The dead letters, with payload and last error, and back in line by id.
    let list =
        world.get("/v1/deliveries?queue=webhooks&status=dead&include=payload,last_error").await.ok(200);
    let row = &list["data"][0];
    assert_eq!((&row["id"], &row["payload"]), (&json!(ids[0]), &json!(1)), "{list:#}");
    assert_eq!(row["last_error"], "answered 410 Gone");
    world.post(&format!("/v1/deliveries/{}/replay", ids[0]), json!({})).await.ok(202);
    let again = claim(&world, json!({})).await.remove(0);
    assert_eq!((&again["id"], &again["try"], &again["run"]), (&json!(ids[0]), &json!(1), &json!(2)));
    let attempts = world.attempts(&ids[0]).await;
    assert_eq!((&attempts[0]["error"], &attempts[0]["rule"]), (&json!("worker"), &json!("worker-permanent")));
}

#[tokio::test]
async fn a_killed_workers_job_is_claimable_within_a_minute_and_its_late_word_is_refused() {
    let world = World::new().await;
    queue(&world).await;
    let id = job(&world, json!({ "payload": {} })).await;
    let lost = claim(&world, json!({})).await.remove(0);
    world.advance_secs(40).await;
    let extended = lease(&world, &lost, "extend", json!({})).await.ok(200);
    assert_eq!(extended["lease_expires_at"], "2023-11-14T22:15:00.000Z");
    // Killed. A minute after it was last heard of, the job is another's.
    world.advance_secs(59).await;
    assert!(claim(&world, json!({})).await.is_empty());
    world.advance_secs(1).await;
    insta::assert_snapshot!(
        text(&world.delivery(&id).await["explanation"]["sentence"]),
        @"Not yet. Attempt 1 of 30 was cut off, for its worker was not heard of any more, and is repeated. The next try starts as soon as there is room."
    );
    let found = claim(&world, json!({})).await.remove(0);
    assert_eq!((&found["id"], &found["try"], &found["attempts"]), (&json!(id), &json!(1), &json!(2)));
    for verb in ["extend", "complete", "release"] {
        assert_eq!(lease(&world, &lost, verb, json!({})).await.refused(409), ["lease-over"], "{verb}");
    }
    let late = lease(&world, &lost, "fail", json!({ "error": "late", "permanent": true })).await;
    assert_eq!(late.refused(409), ["lease-over"]);
    assert_eq!(world.delivery(&id).await["status"], "in_flight");
    lease(&world, &found, "complete", json!({})).await.ok(200);
}

#[tokio::test]
async fn a_claim_waits_for_work_and_a_worker_gives_back_what_it_did_not_begin() {
    let world = World::new().await;
    queue(&world).await;
    let waiting = claim(&world, json!({ "max": 5, "wait_ms": 20_000 }));
    let enqueueing = async {
        // The claim is in the writer's hands once it has taken a turn for this.
        world.turn().await;
        job(&world, json!({ "payload": 7 })).await
    };
    let (jobs, id) = tokio::join!(waiting, enqueueing);
    assert_eq!((jobs.len(), &jobs[0]["id"]), (1, &json!(id)));
    assert_eq!(lease(&world, &jobs[0], "release", json!({})).await.ok(200)["try"], 0);
    // In vain, until its time is over.
    assert_eq!(claim(&world, json!({ "max": 5 })).await.len(), 1);
    let mut claiming = std::pin::pin!(claim(&world, json!({ "wait_ms": 3_000 })));
    let jobs = loop {
        // Time may pass before the claim is in the writer's hands: then more of it passes.
        let passing = async {
            world.turn().await;
            world.advance_secs(3).await;
        };
        tokio::select! {
            jobs = &mut claiming => break jobs,
            () = passing => {}
        }
    };
    assert!(jobs.is_empty());
}

#[tokio::test]
async fn a_queue_is_shown_paused_and_refuses_what_only_requests_have() {
    let world = World::new().await;
    let account = queue(&world).await;
    job(&world, json!({ "payload": 1 })).await;
    let shown = world.get("/v1/queues/webhooks").await.ok(200);
    assert_eq!((&shown["waiting"], &shown["in_flight"]), (&json!(1), &json!(0)), "{shown:#}");
    let id = text(&shown["id"]);
    assert_eq!(world.get("/v1/queues/nobody").await.refused(404), ["not-found"]);
    assert_eq!(world.post("/v1/queues/nobody/claim", json!({})).await.refused(404), ["not-found"]);
    let again = json!({ "account_id": account, "queue": "webhooks" });
    assert_eq!(world.post("/v1/endpoints", again).await.refused(409), ["exists-already"]);
    let both =
        json!({ "account_id": account, "queue": "x", "url": "http://127.0.0.1:9/", "timeout_ms": 5_000 });
    let refused = world.post("/v1/endpoints", both).await.refused(422);
    assert_eq!(refused, ["invalid", "/url not-of-a-queue", "/timeout_ms not-of-a-queue"]);
    let odd = json!({ "account_id": account, "queue": "a/b" });
    assert_eq!(world.post("/v1/endpoints", odd).await.refused(422), ["invalid", "/queue bad-name"]);
    let path = format!("/v1/endpoints/{id}");
    let moved = world.patch(&path, json!({ "url": "http://127.0.0.1:9/" })).await;
    assert_eq!(moved.refused(422), ["invalid", "/url not-of-a-queue"]);
    world.patch(&path, json!({ "in_flight_max": 2 })).await.ok(200);
    assert_eq!(world.post(&format!("{path}/secret/rotate"), json!({})).await.refused(404), ["not-found"]);
    world.post(&format!("{path}/pause"), json!({ "reason": "maintenance" })).await.ok(200);
    assert!(claim(&world, json!({})).await.is_empty());
    world.post(&format!("{path}/resume"), json!({})).await.ok(200);
    assert_eq!(claim(&world, json!({})).await.len(), 1);
    for (body, wanted) in [
        (json!({ "max": 0 }), "/max out-of-range"),
        (json!({ "max": 101 }), "/max out-of-range"),
        (json!({ "wait_ms": 20_001 }), "/wait_ms out-of-range"),
        (json!({ "who": 1 }), "/who unknown-member"),
    ] {
        let refused = world.post("/v1/queues/webhooks/claim", body).await.refused(422);
        assert_eq!(refused, ["invalid", wanted]);
    }
    for lease in
        ["lease_00000000000000000000000000", "nonsense", &text(&json!("dlv_00000000000000000000000001"))]
    {
        let refused = world.post(&format!("/v1/leases/{lease}/complete"), json!({})).await.refused(409);
        assert_eq!(refused, ["lease-over"]);
    }
}

#[tokio::test]
async fn a_restart_takes_leases_back_and_says_so() {
    let mut world = World::new().await;
    queue(&world).await;
    let id = job(&world, json!({ "payload": 1 })).await;
    let before = claim(&world, json!({})).await.remove(0);
    world.restart().await;
    assert_eq!(lease(&world, &before, "complete", json!({})).await.refused(409), ["lease-over"]);
    let after = claim(&world, json!({})).await.remove(0);
    assert_eq!((&after["id"], &after["try"]), (&json!(id), &json!(1)));
    let attempts = world.attempts(&id).await;
    assert_eq!(attempts[0]["detail"], "the server stopped while a worker had it");
    lease(&world, &after, "complete", json!({})).await.ok(200);
    world.always_true(&mut []).await;
}

#[tokio::test]
async fn a_long_error_is_cut_and_a_contradiction_refused() {
    let world = World::new().await;
    queue(&world).await;
    job(&world, json!({ "payload": 1 })).await;
    let job = claim(&world, json!({})).await.remove(0);
    let both = json!({ "error": "x", "permanent": true, "retry_after_ms": 5 });
    let refused = lease(&world, &job, "fail", both).await.refused(422);
    assert_eq!(refused, ["invalid", "/retry_after_ms contradiction"]);
    let failed = lease(&world, &job, "fail", json!({ "error": "é".repeat(5_000) })).await.ok(200);
    assert_eq!(text(&failed["last_error"]).len(), 4_096);
    assert_eq!(failed["status"], "pending");
}
