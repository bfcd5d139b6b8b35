//! Calls to the operator's own services: another HTTP client, whose addresses are not judged.
//!
//! The only file that knows `reqwest`. These calls are few: what they cost does not matter, and what a delivery
//! must record is not asked of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hooklog_projections::policy::ErrorClass;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls::ClientConfig;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::guard;
use super::super::{Answer, Fault, KEPT_BODY_BYTES, Outcome, request};
use super::exchange::{READ_BODY_BYTES_MAX, kept_headers};
use super::faults::{fault, find, innermost, millis};
use super::{Error, Lookup, Options};

/// Posts to the operator's own services.
pub(super) struct Operator(reqwest::Client);

impl Operator {
    pub(super) fn new(
        tls: ClientConfig,
        options: &Options,
        lookup: Arc<dyn Lookup>,
    ) -> Result<Operator, Error> {
        let client = reqwest::Client::builder()
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .retry(reqwest::retry::never())
            .connect_timeout(options.connect_timeout)
            .pool_max_idle_per_host(0)
            .tls_backend_preconfigured(tls)
            .dns_resolver(Arc::new(Unjudged { lookup, limit: options.lookup_timeout }))
            .build();
        client.map(Operator).map_err(|error| Error::Setup(innermost(&error.without_url())))
    }

    pub(super) async fn post_json(
        &self,
        url: &str,
        body: Bytes,
        headers: &[(String, String)],
        time: Duration,
    ) -> Outcome {
        let started = Instant::now();
        let result = self.post(url, body, headers, started + time, time).await;
        Outcome::of(result, millis(started.elapsed()))
    }

    async fn post(
        &self,
        url: &str,
        body: Bytes,
        headers: &[(String, String)],
        deadline: Instant,
        time: Duration,
    ) -> Result<Answer, Fault> {
        let url = guard::check_operator_url(url);
        let url = url.map_err(|refusal| fault(ErrorClass::EgressDenied, &refusal.to_string()))?;
        let mut call = self.0.post(url).body(body);
        call = call.header("content-type", "application/json").header("user-agent", request::USER_AGENT);
        for (name, value) in headers {
            call = call.header(name, value);
        }
        let late = || fault(ErrorClass::Timeout, &format!("no answer within {} ms", time.as_millis()));
        match timeout_at(deadline, call.send()).await {
            Ok(Ok(response)) => Ok(read(response, deadline).await),
            Ok(Err(error)) => Err(told(error.without_url())),
            Err(_) => Err(late()),
        }
    }
}

/// What an error of this client is in our words, roughly: the innermost cause says the rest.
fn told(error: reqwest::Error) -> Fault {
    let class = match () {
        () if find::<Unresolved>(&error).is_some() => ErrorClass::Dns,
        () if find::<rustls::Error>(&error).is_some() => ErrorClass::Tls,
        () if error.is_connect() => ErrorClass::Connect,
        () if error.is_builder() => ErrorClass::NotSent,
        () if find::<hyper::Error>(&error).is_some_and(|e| e.is_parse()) => ErrorClass::Protocol,
        () => ErrorClass::Closed,
    };
    fault(class, &innermost(&error))
}

async fn read(mut response: reqwest::Response, deadline: Instant) -> Answer {
    let (status, address) = (response.status().as_u16(), response.remote_addr());
    let headers = kept_headers(response.headers());
    let mut body = BytesMut::new();
    let mut read = 0;
    let truncated = loop {
        match timeout_at(deadline, response.chunk()).await {
            Ok(Ok(Some(chunk))) => {
                read += chunk.len();
                let room = KEPT_BODY_BYTES - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if read >= READ_BODY_BYTES_MAX {
                    break true;
                }
            }
            Ok(Ok(None)) => break read > body.len(),
            Ok(Err(_)) | Err(_) => break true,
        }
    };
    Answer { status, headers, body: body.freeze(), truncated, address }
}

/// Why a name gave no address.
#[derive(Debug, thiserror::Error)]
enum Unresolved {
    #[error("the name was not resolved in time")]
    Slow,
    #[error("the name cannot be resolved: {0}")]
    Failed(std::io::Error),
}

struct Unjudged {
    lookup: Arc<dyn Lookup>,
    limit: Duration,
}

impl Resolve for Unjudged {
    fn resolve(&self, name: Name) -> Resolving {
        let answer = timeout(self.limit, self.lookup.lookup(name.as_str().to_owned()));
        Box::pin(async move {
            match answer.await {
                // Port 0: the URL's own is used.
                Ok(Ok(found)) => Ok(Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs),
                Ok(Err(error)) => Err(Unresolved::Failed(error).into()),
                Err(_) => Err(Unresolved::Slow.into()),
            }
        })
    }
}
