//! Hands a received request on to a program on this machine, byte for byte, and its answer back.
//!
//! To loopback only: what comes in is a customer's data. Never follows a redirect.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderName, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::exit::Failure;
use super::receiver::Received;
use super::render::escape;

/// The program has this long to answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of its answer that are handed back.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Header fields that belong to one connection.
const OF_A_CONNECTION: [&str; 6] =
    ["host", "connection", "content-length", "transfer-encoding", "keep-alive", "expect"];

/// Where to.
#[derive(Clone, Debug)]
pub struct Target {
    address: SocketAddr,
    host: String,
    path: String,
}

impl Target {
    /// From `http://localhost:3000/path`.
    ///
    /// # Errors
    /// It is no such URL, or another machine.
    pub fn read(text: &str) -> Result<Target, Failure> {
        let bad = |why: &str| Failure::usage(format!("--forward-to {}: {why}", escape(text)));
        let url = url::Url::parse(text).map_err(|error| bad(&error.to_string()))?;
        if url.scheme() != "http" {
            return Err(bad("use http://localhost:PORT"));
        }
        let ip = match url.host() {
            Some(url::Host::Ipv4(ip)) => IpAddr::V4(ip),
            Some(url::Host::Ipv6(ip)) => IpAddr::V6(ip),
            Some(url::Host::Domain("localhost")) => IpAddr::from([127, 0, 0, 1]),
            _ => return Err(bad("only programs on this machine get what comes in: use localhost")),
        };
        if !ip.to_canonical().is_loopback() {
            return Err(bad("only programs on this machine get what comes in: use localhost"));
        }
        let port = url.port_or_known_default().unwrap_or(80);
        let host = format!("{}:{port}", url.host_str().unwrap_or("localhost"));
        let path = url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        Ok(Target { address: SocketAddr::new(ip, port), host, path })
    }

    /// Hands a request on. An answer of 502 says that the program gave none.
    pub async fn forward(&self, request: &Received) -> (u16, Vec<u8>) {
        match tokio::time::timeout(TIMEOUT, self.post(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => (502, format!("{{\"error\":\"{}\"}}", error.replace('"', "'")).into_bytes()),
            Err(_) => (504, b"{\"error\":\"no answer in time\"}".to_vec()),
        }
    }

    async fn post(&self, received: &Received) -> Result<(u16, Vec<u8>), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let stream = TcpStream::connect(self.address).await.map_err(|error| text(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
        // It ends with the sender.
        tokio::spawn(connection);
        let method = Method::from_bytes(received.method.as_bytes()).map_err(|error| text(&error))?;
        let body = Body::from(Bytes::copy_from_slice(&received.body));
        let mut request =
            Request::builder().method(method).uri(&self.path).body(body).map_err(|e| text(&e))?;
        for (name, value) in received.headers() {
            let name = name.to_ascii_lowercase();
            let known = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
            if let Some((header, value)) = known
                && !OF_A_CONNECTION.contains(&name.as_str())
            {
                request.headers_mut().append(header, value);
            }
        }
        let host = HeaderValue::from_str(&self.host).map_err(|error| text(&error))?;
        request.headers_mut().insert(HOST, host);
        let response = sender.send_request(request).await.map_err(|error| text(&error))?;
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(Body::new(response.into_body()), ANSWER_BYTES_MAX).await;
        Ok((status, body.map_err(|error| text(&error))?.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_handed_anything() {
        for url in ["http://localhost:3000/hooks?x=1", "http://127.0.0.1:80", "http://[::1]:3000/"] {
            assert!(Target::read(url).is_ok(), "{url}");
        }
        for url in [
            "https://localhost",
            "http://10.0.0.1",
            "http://example.com",
            "http://0.0.0.0",
            "x",
            "ftp://localhost",
        ] {
            assert!(Target::read(url).is_err(), "{url}");
        }
    }
}
