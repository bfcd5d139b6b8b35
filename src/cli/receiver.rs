//! A small HTTP/1.1 server for demonstrations and measurements: reads whole requests, asks a script what to
//! answer, and can leave a request without an answer.
//!
//! For loopback only. Never knows what a request means.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at a time: what hangs in the largest measurement, and the rest.
const CONNECTIONS_MAX: usize = 16_384;
/// Bytes of a request's head and body.
const HEAD_BYTES_MAX: usize = 64 << 10;
const BODY_BYTES_MAX: usize = 8 << 20;

/// A request, read whole.
pub struct Received {
    /// `GET`, `POST`.
    pub method: String,
    /// With its query.
    pub path: String,
    headers: Vec<(String, String)>,
    /// Its bytes.
    pub body: Vec<u8>,
}

impl Received {
    /// All header fields, in their order.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// A header's value; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }
}

/// What becomes of a request.
pub enum Reaction {
    /// An answer with a body of JSON.
    Answer(u16, Vec<u8>),
    /// The same, once it is known.
    Later(Pin<Box<dyn Future<Output = (u16, Vec<u8>)> + Send>>),
    /// No answer for as long as the connection lasts.
    Hang,
}

/// Decides what becomes of requests.
pub trait Script: Send + Sync + 'static {
    /// Of this one.
    fn react(&self, request: Received) -> Reaction;
}

/// A listener on a free port of loopback.
///
/// # Errors
/// As the system has it.
pub async fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Receives for ever.
pub async fn receive(listener: TcpListener, script: Arc<dyn Script>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(room) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else { continue };
        let script = script.clone();
        tokio::spawn(async move {
            // A sender that goes away ends its connection; that is all.
            let _ = serve(stream, &*script).await;
            drop(room);
        });
    }
}

async fn serve(mut stream: TcpStream, script: &dyn Script) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let Some(request) = read(&mut stream, &mut buffer).await? else { return Ok(()) };
        let reaction = match script.react(request) {
            Reaction::Later(answer) => {
                let (status, body) = answer.await;
                Reaction::Answer(status, body)
            }
            reaction => reaction,
        };
        match reaction {
            Reaction::Later(_) => unreachable!("it was waited for"),
            Reaction::Answer(status, body) => {
                let head = format!(
                    "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let mut answer = head.into_bytes();
                answer.extend_from_slice(&body);
                stream.write_all(&answer).await?;
            }
            Reaction::Hang => {
                // Until the sender gives up.
                while stream.read_buf(&mut buffer).await? > 0 {
                    buffer.clear();
                }
                return Ok(());
            }
        }
    }
}

/// The next request of a connection; `None` at its end. `buffer` keeps what was read beyond it.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
    let bad = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut seen: usize = 0;
    let head_end = loop {
        // The end of the head may straddle two reads.
        let from = seen.saturating_sub(3);
        if let Some(at) = buffer[from..].windows(4).position(|four| four == b"\r\n\r\n") {
            break from + at;
        }
        seen = buffer.len();
        if seen > HEAD_BYTES_MAX {
            return Err(bad("the head is too long"));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = std::str::from_utf8(&buffer[..head_end]).map_err(|_| bad("the head is not text"))?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let (method, path) = (method.to_owned(), path.to_owned());
    let header =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    let headers: Vec<_> = lines.filter_map(header).collect();
    let mut request = Received { method, path, headers, body: Vec::new() };
    let length = match request.header("content-length") {
        "" if request.header("transfer-encoding").is_empty() => 0,
        text => text.parse::<usize>().map_err(|_| bad("there is no length"))?,
    };
    if length > BODY_BYTES_MAX {
        return Err(bad("the body is too long"));
    }
    let end = head_end + 4 + length;
    while buffer.len() < end {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    request.body = buffer[head_end + 4..end].to_vec();
    buffer.drain(..end);
    Ok(Some(request))
}
