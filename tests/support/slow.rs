//! Receivers that are slow, each in another phase of a request, all at once. Stands in for: whatever can keep a
//! worker from its next delivery.
//!
//! Of the time that an attempt takes, that it is not too short is always asserted; how much too long it was is told.
#![allow(dead_code)]

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use hooklog::delivery::client::Options;
use hooklog::delivery::{Client, Outcome, Reason, Request};
use hooklog_projections::policy::ErrorClass;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;

use super::receiver::{Receiver, Step, black_hole, raw, ticking};
use super::sender::{policy, request, send};

/// What the requests are given, and how many go to each receiver.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For the connection.
    pub connect: Duration,
    /// In all.
    pub total: Duration,
    /// A head that comes after so long is in time.
    pub early: Duration,
    /// One that comes after so long is not.
    pub late: Duration,
    /// Requests at a time to each of seven receivers.
    pub each: usize,
}

/// Asks all of them at once and checks what came of it; by how much the latest request overran its limit.
pub async fn everybody(limits: Limits) -> Duration {
    let Limits { connect, total, early, late, each } = limits;
    let good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let after = |time| vec![Step::Drip(good[..1].to_vec(), time), raw(&good[1..])];
    let hole = black_hole([127, 0, 0, 9].into(), 0).await;
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let in_time = Receiver::scripted(vec![after(early)]).await;
    let too_late = Receiver::scripted(vec![after(late)]).await;
    let head = Receiver::scripted(vec![vec![Step::Drip(good.to_vec(), total / 5)]]).await;
    let begun = raw("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
    let body = Receiver::scripted(vec![vec![begun, Step::Drip(vec![b'x'; 1000], total * 3 / 50)]]).await;
    let sips = sipping(total / 5).await;

    let options = Options { connect_timeout: connect, ..Options::default() };
    let client = Client::new(policy(&["127.0.0.0/8"]), options).expect("a client");
    let payload = Bytes::from(vec![b'x'; 64 << 10]);
    let ask = |address: std::net::SocketAddr| {
        let (url, payload) = (format!("http://{address}/h"), payload.clone());
        let requests =
            (0..each).map(move |_| Request { timeout: total, body: payload.clone(), ..request(&url) });
        let client = &client;
        async move { join_all(requests.map(|request| send(client, request))).await }
    };
    let deaf_at = deaf.local_addr().expect("its address");
    let outcomes = tokio::join!(
        ask(hole.address),
        ask(deaf_at),
        ask(in_time.address),
        ask(too_late.address),
        ask(head.address),
        ask(body.address),
        ask(sips),
    );
    let (hole, deaf, in_time, too_late, head, body, sips) = outcomes;
    let mut over = Duration::ZERO;
    let mut check = |outcomes: Vec<Outcome>, least: Duration, what: &str, so: &dyn Fn(&Outcome) -> bool| {
        assert_eq!(outcomes.len(), each);
        for outcome in outcomes {
            assert!(so(&outcome), "{what}: {outcome:?}");
            // Recorded in whole milliseconds.
            let took = Duration::from_millis(outcome.took.0 + 1);
            assert!(took >= least, "{what}: {outcome:?}");
            over = over.max(took.saturating_sub(least));
        }
    };
    let fault = |outcome: &Outcome, class: ErrorClass, reason: Option<Reason>| {
        outcome.result.as_ref().is_err_and(|fault| (fault.class, fault.reason) == (class, reason))
    };
    let timed_out = |outcome: &Outcome| fault(outcome, ErrorClass::Timeout, None);
    let status =
        |outcome: &Outcome| outcome.result.as_ref().ok().map(|answer| (answer.status, answer.truncated));
    check(hole, connect, "no connection", &|outcome| {
        fault(outcome, ErrorClass::Connect, Some(Reason::ConnectSlow)) && outcome.timings.connect.is_none()
    });
    check(deaf, total, "nothing is read", &|outcome| {
        timed_out(outcome) && outcome.timings.first_byte.is_none()
    });
    check(in_time, early, "a head in time", &|outcome| status(outcome) == Some((200, false)));
    check(too_late, total, "a head too late", &|outcome| {
        timed_out(outcome) && outcome.timings.first_byte.is_none()
    });
    check(head, total, "a head byte by byte", &|outcome| {
        timed_out(outcome) && outcome.timings.first_byte.is_some()
    });
    check(body, total, "a body byte by byte", &|outcome| status(outcome) == Some((200, true)));
    check(sips, total, "a request read byte by byte", &timed_out);
    over
}

/// Reads one byte in so long, and has little room for more.
async fn sipping(every: Duration) -> std::net::SocketAddr {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2048).expect("an option");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(1024).expect("a listener");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut ticks = ticking(every).await;
                while stream.read_u8().await.is_ok() {
                    ticks.tick().await;
                }
            });
        }
    });
    address
}
