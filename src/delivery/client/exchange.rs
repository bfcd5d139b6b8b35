//! One request on one connection, and its answer: the head, then the body as far as it is kept.

use bytes::{Bytes, BytesMut};
use hooklog_projections::policy::ErrorClass;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use tokio::time::{Instant, timeout_at};
use url::{Position, Url};

use super::super::{Answer, CONTENT_LENGTH, Fault, KEPT_BODY_BYTES, KEPT_HEADER_BYTES, KEPT_HEADERS};
use super::Trip;
use super::connect::Conn;
use super::faults::{self, fault};

/// Bytes of a response head, status line and fields: more is no answer.
pub const READ_HEAD_BYTES_MAX: usize = 512 * 1024;

/// Bytes read of a response body before the connection is dropped. Reading a little more than is kept lets a
/// connection be used again after an error page of ordinary size.
pub const READ_BODY_BYTES_MAX: usize = 64 * 1024;

/// Bytes read of one answer in all. Interim answers, the frames of chunks and trailers count as neither head nor
/// body, and a receiver that sends them without end would keep a processor busy until the time-out. The HTTP
/// library reads at most a buffer of the head's size ahead.
pub(super) const READ_BYTES_MAX: u64 = 4 * READ_HEAD_BYTES_MAX as u64;

/// A request that is ready to leave, as often as need be.
pub(super) struct Call {
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Call {
    pub(super) fn new(url: &Url, headers: Vec<(String, String)>, body: Bytes) -> Result<Call, Fault> {
        let unsendable = |what: &str| fault(ErrorClass::NotSent, &format!("{what} cannot be sent"));
        let uri = Uri::try_from(&url[Position::BeforePath..Position::AfterQuery]);
        let uri = uri.map_err(|_| unsendable("the URL's path"))?;
        let mut map = HeaderMap::with_capacity(headers.len() + 2);
        for (name, value) in headers {
            let field = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::try_from(value).ok());
            let Some((field, value)) = field else { return Err(unsendable(&format!("the header `{name}`"))) };
            map.append(field, value);
        }
        let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]);
        map.insert(HOST, host.map_err(|_| unsendable("the URL's host"))?);
        Ok(Call { uri, headers: map, body })
    }

    /// The request, to be made again if need be.
    pub(super) fn request(&self) -> Request<Full<Bytes>> {
        Call { uri: self.uri.clone(), headers: self.headers.clone(), body: self.body.clone() }.last_request()
    }

    /// The request for the last time: while its answer is waited for, nothing of it is kept here.
    pub(super) fn last_request(self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri;
        *request.headers_mut() = self.headers;
        request
    }
}

/// How an exchange ended.
pub(super) enum Ended {
    /// A head came, and of the body what there was.
    Answered(Answer, Box<Conn>),
    /// Nothing of the request had left: why the connection had ended.
    NotBegun(Fault),
    /// No whole head.
    Lost {
        fault: Fault,
        /// Whether the connection ended, and not one byte of an answer had come.
        before_answer: bool,
    },
}

/// Sends the request on a connection and reads the answer.
pub(super) async fn exchange(mut conn: Box<Conn>, request: Request<Full<Bytes>>, trip: &mut Trip) -> Ended {
    let head = timeout_at(trip.deadline, conn.head(request)).await;
    trip.timings.first_byte = conn.first_byte();
    match head {
        // The HTTP library's own limit is that of a buffer, which may grow beyond it once.
        Ok(Ok(response)) if head_bytes(response.headers()) > READ_HEAD_BYTES_MAX => {
            let fault = trip.fault(ErrorClass::Protocol, faults::HEAD_TOO_LARGE);
            Ended::Lost { fault, before_answer: false }
        }
        Ok(Ok(response)) => {
            let answer = read(&mut conn, response, trip).await;
            Ended::Answered(answer, conn)
        }
        Ok(Err(error)) => {
            let fault = Fault { address: Some(conn.address), ..faults::of_exchange(error.error()) };
            if error.message().is_some() {
                return Ended::NotBegun(fault);
            }
            let before_answer = fault.class == ErrorClass::Closed && conn.bytes_read() == 0;
            Ended::Lost { fault, before_answer }
        }
        Err(_) => Ended::Lost { fault: trip.timed_out(), before_answer: false },
    }
}

fn head_bytes(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}

/// Reads a body as far as it is kept. The head has arrived, so nothing here can fail any more.
async fn read(conn: &mut Conn, response: Response<Incoming>, trip: &mut Trip) -> Answer {
    let begun = Instant::now();
    let (head, mut incoming) = response.into_parts();
    let mut headers = kept_headers(&head.headers);
    let mut body = BytesMut::new();
    let announced = incoming.size_hint().exact();
    let truncated = match incoming.is_end_stream() {
        true => false,
        false => {
            let whole = timeout_at(trip.deadline, read_body(conn, &mut incoming, &mut body)).await;
            trip.timings.body = Some(begun.elapsed());
            !whole.unwrap_or(false)
        }
    };
    headers.extend(announced.filter(|_| truncated).map(|len| (CONTENT_LENGTH, len.to_string())));
    let status = head.status.as_u16();
    Answer { status, headers, body: body.freeze(), truncated, address: Some(conn.address) }
}

/// Answers whether all of it is there.
async fn read_body(conn: &mut Conn, incoming: &mut Incoming, body: &mut BytesMut) -> bool {
    // A body announced to be larger than we would read costs its connection anyway: only what is kept is read.
    let read_max = match incoming.size_hint().exact() {
        Some(len) if len > READ_BODY_BYTES_MAX as u64 => KEPT_BODY_BYTES,
        _ => READ_BODY_BYTES_MAX,
    };
    let mut read = 0;
    loop {
        let chunk = match conn.frame(incoming).await {
            // Trailers tell nothing.
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(_)) => return false,
            None => return read == body.len(),
        };
        read += chunk.len();
        let room = KEPT_BODY_BYTES - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if read >= read_max {
            return false;
        }
    }
}

pub(super) fn kept_headers(all: &HeaderMap) -> Vec<(&'static str, String)> {
    let mut kept = Vec::new();
    for name in KEPT_HEADERS {
        // A field that stands there more often than twice tells no more than twice.
        for value in all.get_all(name).iter().take(2) {
            let mut text = String::from_utf8_lossy(value.as_bytes()).into_owned();
            if text.len() > KEPT_HEADER_BYTES {
                text.truncate(text.floor_char_boundary(KEPT_HEADER_BYTES));
            }
            kept.push((name, text));
        }
    }
    kept
}
