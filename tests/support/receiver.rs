//! A receiver made of raw sockets: it logs every byte it is sent and answers exactly what a test tells it to.
//!
//! It never waits by the clock, unless it is told to drip: what it does next depends only on what arrived, and on
//! its peer going away.
#![allow(dead_code)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc};

/// One thing a receiver does in answer to a request. After the last one the connection stays open for the next
/// request.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends these bytes.
    Bytes(Vec<u8>),
    /// Sends these bytes again and again until the peer has gone.
    Endless(Vec<u8>),
    /// Sends these bytes one by one, with so much time before each.
    Drip(Vec<u8>, Duration),
    /// Sends nothing more, and waits until the peer has gone.
    Hold,
    /// Says that it sends nothing more, and goes on.
    HalfClose,
    /// Closes the connection in order.
    Close,
    /// Breaks the connection off (RST).
    Reset,
}

/// What a receiver does in answer to one request.
pub type Reply = Vec<Step>;

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Received {
    /// Of all requests to this receiver, from 0.
    pub number: usize,
    /// The connection it came in on, from 0.
    pub connection: usize,
    /// Of all requests on that connection, from 0.
    pub nth: usize,
    /// Every byte of it.
    pub bytes: Vec<u8>,
}

/// A receiver on a port of its own on 127.0.0.1. It lives as long as the test's runtime.
pub struct Receiver {
    /// Where it listens.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    ended: Arc<Ended>,
    received: mpsc::UnboundedReceiver<Received>,
}

impl Receiver {
    /// A receiver that answers each request as `reply` says.
    pub async fn answering(reply: impl FnMut(&Received) -> Reply + Send + 'static) -> Receiver {
        Receiver::start(ANYWHERE, true, reply).await
    }

    /// A receiver that answers its first request with the first reply and so on; the last one is repeated.
    pub async fn scripted(replies: Vec<Reply>) -> Receiver {
        assert!(!replies.is_empty(), "a script has at least one reply");
        Receiver::answering(move |r| replies[r.number.min(replies.len() - 1)].clone()).await
    }

    /// As [`scripted`](Self::scripted), at this address.
    pub async fn scripted_at(address: SocketAddr, replies: Vec<Reply>) -> Receiver {
        let reply = move |r: &Received| replies[r.number.min(replies.len() - 1)].clone();
        Receiver::start(address, true, reply).await
    }

    /// A receiver that answers as soon as the first bytes arrive, whatever they are. It has little room for more.
    pub async fn blurting(reply: Reply) -> Receiver {
        Receiver::start(ANYWHERE, false, move |_| reply.clone()).await
    }

    async fn start(
        address: SocketAddr,
        whole: bool,
        reply: impl FnMut(&Received) -> Reply + Send + 'static,
    ) -> Receiver {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.expect("a socket");
        socket.set_reuseaddr(true).expect("an option");
        if !whole {
            socket.set_recv_buffer_size(2048).expect("an option");
        }
        socket.bind(address).expect("a port");
        let listener = socket.listen(1024).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let connections = Arc::new(AtomicUsize::new(0));
        let ended = Arc::new(Ended::default());
        let (log, received) = mpsc::unbounded_channel();
        let state = Arc::new(State { whole, reply: Mutex::new((0, Box::new(reply))), log });
        let (counter, at_end) = (connections.clone(), ended.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = counter.fetch_add(1, Ordering::SeqCst);
                let (state, at_end) = (state.clone(), at_end.clone());
                tokio::spawn(async move {
                    serve(stream, connection, state).await;
                    at_end.count.fetch_add(1, Ordering::SeqCst);
                    at_end.changed.notify_waiters();
                });
            }
        });
        Receiver { address, connections, ended, received }
    }

    /// A URL of it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How many connections were made to it so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Waits until so many of them have ended.
    pub async fn ended(&self, count: usize) {
        loop {
            let changed = self.ended.changed.notified();
            if self.ended.count.load(Ordering::SeqCst) >= count {
                return;
            }
            changed.await;
        }
    }

    /// How many connections are open now.
    pub fn open(&self) -> usize {
        self.connections() - self.ended.count.load(Ordering::SeqCst)
    }

    /// The next request, once it is there.
    pub async fn next(&mut self) -> Received {
        self.received.recv().await.expect("the receiver runs as long as the test")
    }

    /// The requests that came in since the last look.
    pub fn so_far(&mut self) -> Vec<Received> {
        std::iter::from_fn(|| self.received.try_recv().ok()).collect()
    }
}

impl Received {
    /// The request line.
    pub fn line(&self) -> &str {
        self.head().split("\r\n").next().unwrap_or("")
    }

    /// Names and values in the order they came, names as sent.
    pub fn headers(&self) -> Vec<(&str, &str)> {
        self.head().split("\r\n").skip(1).filter_map(|line| line.split_once(": ")).collect()
    }

    /// The values of one field.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.headers().into_iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v).collect()
    }

    /// The bytes after the head.
    pub fn body(&self) -> &[u8] {
        let end = head_end(&self.bytes).unwrap_or(self.bytes.len());
        &self.bytes[end..]
    }

    fn head(&self) -> &str {
        let end = head_end(&self.bytes).map_or(self.bytes.len(), |end| end - 4);
        std::str::from_utf8(&self.bytes[..end]).expect("our heads are ASCII")
    }
}

/// A whole response with a length, after which the connection can be used again.
pub fn answer(status: u16, headers: &str, body: &str) -> Reply {
    let text = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
    vec![Step::Bytes(text.into_bytes())]
}

/// Exactly these bytes.
pub fn raw(bytes: impl AsRef<[u8]>) -> Step {
    Step::Bytes(bytes.as_ref().to_vec())
}

/// An address that drops what would open a connection: nobody accepts, and the queue is full.
pub async fn black_hole(ip: Ipv4Addr, port: u16) -> BlackHole {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((ip, port).into()).expect("a port");
    let listener = socket.listen(1).expect("a listener");
    let address = listener.local_addr().expect("its address");
    let mut held = Vec::new();
    let within = Duration::from_millis(300);
    while let Ok(stream) = tokio::time::timeout(within, TcpStream::connect(address)).await {
        held.push(stream.expect("a connection"));
        assert!(held.len() < 100, "the queue never fills");
    }
    BlackHole { address, _held: (listener, held) }
}

/// One, for as long as it is held.
pub struct BlackHole {
    /// Where it is.
    pub address: SocketAddr,
    _held: (TcpListener, Vec<TcpStream>),
}

const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[derive(Default)]
struct Ended {
    count: AtomicUsize,
    changed: Notify,
}

type Replier = Box<dyn FnMut(&Received) -> Reply + Send>;

struct State {
    whole: bool,
    reply: Mutex<(usize, Replier)>,
    log: mpsc::UnboundedSender<Received>,
}

async fn serve(mut stream: TcpStream, connection: usize, state: Arc<State>) {
    let mut buffer = Vec::new();
    for nth in 0.. {
        let bytes = loop {
            if let Some(len) = request_len(&buffer, state.whole) {
                break buffer.drain(..len).collect();
            }
            match stream.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        };
        let reply = {
            let mut guard = state.reply.lock().expect("no test panics in a reply");
            let (number, reply) = &mut *guard;
            let received = Received { number: *number, connection, nth, bytes };
            *number += 1;
            let steps = reply(&received);
            state.log.send(received).ok();
            steps
        };
        for step in reply {
            match step {
                Step::Bytes(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Step::Drip(bytes, every) => {
                    let mut ticks = ticking(every).await;
                    for byte in bytes {
                        ticks.tick().await;
                        if stream.write_all(&[byte]).await.is_err() {
                            return;
                        }
                    }
                }
                Step::Endless(bytes) => while stream.write_all(&bytes).await.is_ok() {},
                Step::Hold => {
                    let mut rest = Vec::new();
                    stream.read_to_end(&mut rest).await.ok();
                    return;
                }
                Step::HalfClose => {
                    stream.shutdown().await.ok();
                }
                Step::Close => return,
                Step::Reset => {
                    stream.set_zero_linger().ok();
                    return;
                }
            }
        }
    }
}

/// Ticks for the first time after so long, and never sooner than that after the tick before.
pub async fn ticking(every: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    ticks
}

/// The length of the first request in these bytes, once it is there whole.
fn request_len(bytes: &[u8], whole: bool) -> Option<usize> {
    if !whole {
        return (!bytes.is_empty()).then_some(bytes.len());
    }
    let head = head_end(bytes)?;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.split("\r\n").find_map(|line| line.strip_prefix("content-length: "));
    let len = head + length.map_or(0, |length| length.parse().expect("a length"));
    (bytes.len() >= len).then_some(len)
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4)
}
