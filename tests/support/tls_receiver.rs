//! A receiver behind TLS, with certificates of an authority that a test makes.
//!
//! It answers every request with 200, and logs what it was offered and sent.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::{Acceptor, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::LazyConfigAcceptor;

/// When a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Good {
    /// Now.
    Now,
    /// No more.
    Before,
    /// Not yet.
    Later,
}

/// An authority. Its own certificate lies in a file.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    /// A new one of this name.
    pub fn named(name: &str) -> Authority {
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).expect("a file");
        std::fs::write(folder.path().join("ca.key"), key.serialize_pem()).expect("a file");
        Authority { certificate, issuer: Issuer::new(params, key), folder }
    }

    /// Its own certificate.
    pub fn pem_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// What a receiver of this name shows.
    pub fn receiver(&self, name: &str, good: Good) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let certificate = params(name, good).signed_by(&key, &self.issuer).expect("a certificate");
        config(vec![certificate.der().clone()], &key)
    }

    /// As `receiver`, for clients that show a certificate of this authority only.
    pub fn choosy_receiver(&self, name: &str) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let certificate = params(name, Good::Now).signed_by(&key, &self.issuer).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("a root");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let config = builder().with_client_cert_verifier(verifier.build().expect("a verifier"));
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        Arc::new(config.with_single_cert(vec![certificate.der().clone()], key).expect("they fit"))
    }

    /// A chain whose middle the receiver does not show.
    pub fn receiver_without_intermediate(&self, name: &str) -> Arc<ServerConfig> {
        let mut between = CertificateParams::new(vec![]).expect("no names");
        between.distinguished_name.push(DnType::CommonName, "Between");
        between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = Issuer::new(between, KeyPair::generate().expect("a key"));
        let key = KeyPair::generate().expect("a key");
        let certificate = params(name, Good::Now).signed_by(&key, &issuer).expect("a certificate");
        config(vec![certificate.der().clone()], &key)
    }
}

/// What a receiver shows that vouches for itself.
pub fn self_signed(name: &str, authority: bool) -> Arc<ServerConfig> {
    let key = KeyPair::generate().expect("a key");
    let mut params = params(name, Good::Now);
    if authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let certificate = params.self_signed(&key).expect("a certificate");
    config(vec![certificate.der().clone()], &key)
}

fn params(name: &str, good: Good) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    (params.not_before, params.not_after) = match good {
        Good::Now => (date_time_ymd(2020, 1, 1), date_time_ymd(2120, 1, 1)),
        Good::Before => (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1)),
        Good::Later => (date_time_ymd(2110, 1, 1), date_time_ymd(2120, 1, 1)),
    };
    params
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn builder() -> rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier> {
    ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("versions")
}

fn config(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> Arc<ServerConfig> {
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    Arc::new(builder().with_no_client_auth().with_single_cert(chain, key).expect("they fit"))
}

/// What a server says that speaks at most TLS 1.`minor - 1`, whatever is offered to it: its greeting (RFC 2246
/// §7.4.1.3), which picks that version and one of its time's ciphers.
pub fn old_greeting(minor: u8) -> Vec<u8> {
    // Version, random, no session, TLS_RSA_WITH_AES_128_CBC_SHA, no compression.
    let hello = [&[3, minor][..], &[7; 32], &[0, 0x00, 0x2f, 0]].concat();
    let message = [&[2, 0, 0, hello.len() as u8][..], &hello].concat();
    [&[0x16, 3, minor, 0, message.len() as u8][..], &message].concat()
}

/// What a client offered before anything was encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Server name.
    pub name: Option<String>,
    /// Protocols.
    pub alpn: Vec<String>,
}

/// The receiver. It lives as long as the test's runtime.
pub struct TlsReceiver {
    /// Where it listens.
    pub address: SocketAddr,
    shows: Arc<Mutex<Arc<ServerConfig>>>,
    greetings: mpsc::UnboundedReceiver<Greeting>,
    requests: mpsc::UnboundedReceiver<String>,
}

impl TlsReceiver {
    /// One that shows this.
    pub async fn showing(config: Arc<ServerConfig>) -> TlsReceiver {
        TlsReceiver::showing_at(([127, 0, 0, 1], 0).into(), config).await
    }

    /// As [`showing`](Self::showing), at this address.
    pub async fn showing_at(address: SocketAddr, config: Arc<ServerConfig>) -> TlsReceiver {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let shows = Arc::new(Mutex::new(config));
        let (greeted, greetings) = mpsc::unbounded_channel();
        let (asked, requests) = mpsc::unbounded_channel();
        let shown = shows.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let config = shown.lock().expect("no panic").clone();
                tokio::spawn(serve(stream, config, greeted.clone(), asked.clone()));
            }
        });
        TlsReceiver { address, shows, greetings, requests }
    }

    /// Shows this from the next connection on.
    pub fn show(&self, config: Arc<ServerConfig>) {
        *self.shows.lock().expect("no panic") = config;
    }

    /// The next client's greeting, once it is there.
    pub async fn greeting(&mut self) -> Greeting {
        self.greetings.recv().await.expect("the receiver runs as long as the test")
    }

    /// The heads of the requests that came in since the last look.
    pub fn requests(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).collect()
    }
}

async fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    greeted: mpsc::UnboundedSender<Greeting>,
    asked: mpsc::UnboundedSender<String>,
) -> std::io::Result<()> {
    let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let hello = begun.client_hello();
    let alpn = hello.alpn().into_iter().flatten().map(|p| String::from_utf8_lossy(p).into_owned()).collect();
    greeted.send(Greeting { name: hello.server_name().map(str::to_owned), alpn }).ok();
    let mut stream = match begun.into_stream(config).into_fallible().await {
        Ok(stream) => stream,
        Err((error, mut socket)) => {
            // A request may be there already. Unread, it would have the connection reset, and the alert lost.
            socket.read_to_end(&mut Vec::new()).await?;
            return Err(error);
        }
    };
    let mut buffer = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&buffer).into_owned();
        let head = text.find("\r\n\r\n").map(|at| at + 4);
        let length = text.split("\r\n").find_map(|line| line.strip_prefix("content-length: "));
        match (head, length.and_then(|length| length.parse::<usize>().ok())) {
            (Some(head), Some(length)) if buffer.len() >= head + length => {
                buffer.drain(..head + length);
                asked.send(text[..head].to_owned()).ok();
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await?;
            }
            _ if stream.read_buf(&mut buffer).await? == 0 => return Ok(()),
            _ => {}
        }
    }
}
