//! Makes a recorded attempt's request: reads the body, opens the sealed keys, hands both to the client.
//!
//! Never knows retries: it brings back whatever the client heard.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hooklog_projections::fact::BodyForm;
use hooklog_projections::policy::{ErrorClass, Text};
use hooklog_projections::time::Millis;
use zeroize::Zeroizing;

use super::Attempt;
use super::driver::Courier;
use crate::clock::Clock;
use crate::delivery::request::SignatureHeader;
use crate::delivery::{Client, Fault, Key, Outcome, Request, TextSecret};
use crate::log::BodySlot;
use crate::secrets::{MasterKey, Purpose};
use crate::views::query::Published;

/// Delivers over HTTP.
pub struct HttpCourier {
    client: Arc<Client>,
    master: Arc<MasterKey>,
    published: Arc<Published>,
    clock: Arc<dyn Clock>,
    signature_header: SignatureHeader,
}

impl HttpCourier {
    /// One for an engine's published states.
    pub fn new(
        client: Arc<Client>,
        master: Arc<MasterKey>,
        published: Arc<Published>,
        clock: Arc<dyn Clock>,
        signature_header: SignatureHeader,
    ) -> HttpCourier {
        HttpCourier { client, master, published, clock, signature_header }
    }

    async fn request(&self, attempt: Attempt) -> Result<Request, String> {
        let (body, content_type) = match attempt.fresh {
            Some(fresh) => fresh,
            None => self.read(attempt.delivery.account, &attempt.event, attempt.accepted).await?,
        };
        let settings = &attempt.target.settings;
        let body = match settings.body_form {
            BodyForm::Envelope => body,
            BodyForm::Data => data_of(&body, attempt.event.as_str()),
        };
        let (account, endpoint) = (attempt.endpoint.account, attempt.endpoint.endpoint);
        let mut keys = Vec::with_capacity(attempt.signing.len());
        for key in &attempt.signing {
            let purpose = Purpose::SigningKey { account, endpoint, key: key.id };
            let secret = self.master.open(&purpose, &key.secret).map_err(|error| error.to_string())?;
            keys.push(Key::from_bytes(secret).map_err(|error| error.to_string())?);
        }
        let secret = match &attempt.target.secret {
            Some(own) => self.master.open(&Purpose::EndpointSecret { account, endpoint }, own),
            None => self.master.open(&Purpose::AccountSecret { account }, &attempt.account_secret),
        };
        let secret = secret.map_err(|error| error.to_string())?;
        let secret = String::from_utf8(secret.to_vec()).map_err(|_| "the webhook secret is no text")?;
        Ok(Request {
            url: settings.url.to_string(),
            event_id: attempt.event,
            body,
            content_type: content_type.to_string(),
            run: attempt.run,
            keys,
            account_secret: Some(TextSecret::new(Zeroizing::new(secret))),
            schemes: settings.schemes,
            signature_header: self.signature_header.clone(),
            headers: settings.headers.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
            timeout: Duration::from_millis(settings.timeout.0),
        })
    }

    /// Reads an event's body on a thread that may block: it can lie cold on disk.
    async fn read(
        &self,
        account: hooklog_projections::ids::AccountId,
        event: &hooklog_projections::ids::EventId,
        accepted: hooklog_projections::ids::Seq,
    ) -> Result<(Bytes, Text), String> {
        let (published, event) = (self.published.clone(), event.clone());
        let read = tokio::task::spawn_blocking(move || {
            let view = published.view();
            let row = view.event(account, &event).map_err(|error| error.to_string())?;
            let row = row.ok_or("the event's record is missing")?;
            let body = view.body(BodySlot::Event(accepted)).map_err(|error| error.to_string())?;
            Ok((body.ok_or("the event's body is missing")?.bytes, row.body.content_type))
        });
        read.await.map_err(|_| "reading the event's body failed")?
    }
}

/// The data of an envelope that was built at acceptance; bytes that are none go as they are.
pub(crate) fn data_of(body: &Bytes, event: &str) -> Bytes {
    const DATA: &[u8] = b"\",\"data\":";
    let head = format!("{{\"id\":\"{event}\",\"type\":\"");
    // Neither id nor type holds a quotation mark, so the first one after the head ends the type.
    let typed = body.strip_prefix(head.as_bytes());
    let quote = typed.and_then(|rest| rest.iter().position(|byte| *byte == b'"'));
    match quote.map(|at| head.len() + at) {
        Some(at) if body[at..].starts_with(DATA) && body.ends_with(b"}") => {
            body.slice(at + DATA.len()..body.len() - 1)
        }
        _ => body.clone(),
    }
}

impl Courier for HttpCourier {
    fn carry(&self, attempt: Attempt) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move {
            let begun = self.clock.monotonic();
            match self.request(attempt).await {
                Ok(request) => {
                    let prepared = self.clock.monotonic().0.saturating_sub(begun.0);
                    let mut outcome = self.client.send(request, || self.clock.now().0 / 1000).await;
                    outcome.timings.queue += Duration::from_millis(prepared);
                    outcome
                }
                Err(detail) => {
                    tracing::error!(%detail, "an attempt could not be made");
                    Outcome::of(Err(Fault::new(ErrorClass::NotSent, detail)), Millis(0))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_envelope_of_ours_gives_its_data() {
        let data = |body: &'static str| data_of(&Bytes::from_static(body.as_bytes()), "evt_1");
        assert_eq!(data(r#"{"id":"evt_1","type":"a.b","data":{"x": 1.00}}"#), r#"{"x": 1.00}"#);
        assert_eq!(data(r#"{"id":"evt_1","type":"a.b","data":null}"#), "null");
        for raw in ["", "{}", r#"{"id":"evt_2","type":"a.b","data":1}"#, "plain text"] {
            assert_eq!(data(raw), raw);
        }
    }
}
