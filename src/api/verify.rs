//! `/v1/verify`: whether a request that somebody captured is signed as it should be, and if not, why. Checked with
//! secrets that it brings, which are kept nowhere, or with those of an endpoint, which nobody is shown.
//!
//! Never writes, and never knows whether the request was ours.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hooklog_projections::ids::EndpointId;
use serde::Serialize;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::ApiState;
use super::accounts::known;
use super::endpoints::lookup;
use super::fields::{Bad, Fields, bad, id, parse};
use super::policies::moment;
use super::problem::Problem;
use super::rim::{json, json_body};
use super::secrets::{account_secret, ledger_secret, opened, signing_secret};
use crate::delivery::checker::{Found, Secrets, is_valid};

/// Bytes of a check: the largest event, written as JSON text, and room for the rest.
const BYTES_MAX: usize = 512 * 1024;
/// Secrets that one check tries: a rotation has three.
const SECRETS_MAX: usize = 10;

#[derive(Serialize)]
struct Verdict<'a> {
    valid: bool,
    checks: &'a [Found],
}

pub(super) async fn verify(api: ApiState, request: Request) -> Result<Response, Problem> {
    let body = json_body(request, BYTES_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let headers = headers(&mut fields);
    let text = fields.optional("body", |value| parse::<String>(value, "a text"));
    let bytes = fields.optional("body_base64", |value| {
        let text: String = parse(value, "a text")?;
        STANDARD.decode(text).map_err(|_| bad("bad-base64", "standard base64 with padding is wanted"))
    });
    let endpoint = fields.optional("endpoint_id", id::<EndpointId>);
    let signing = fields.optional("signing_secrets", several(|value| signing_secret(value).map(drop)));
    let ledger = fields.optional("ledger_secrets", several(|value| account_secret(value).map(drop)));
    let at = fields.optional("at", |value| {
        let wrong = || bad("bad-time", "an RFC 3339 time with an offset is wanted, as 2026-11-30T09:14:02Z");
        moment(&parse::<String>(value, "a text")?).ok_or_else(wrong)
    });
    if fields.raw("body").is_some() == fields.raw("body_base64").is_some() {
        fields.fail("body", bad("choose-one", "one of `body` and `body_base64` is wanted"));
    }
    let brings = fields.raw("signing_secrets").is_some() || fields.raw("ledger_secrets").is_some();
    if fields.raw("endpoint_id").is_some() == brings {
        let detail = "`endpoint_id` is wanted, or `signing_secrets`, `ledger_secrets` or both in its place";
        fields.fail("endpoint_id", bad("choose-one", detail));
    }
    fields.finish()?;
    let (signing, ledger) = match endpoint {
        Some(endpoint) => of_endpoint(&api, endpoint).await?,
        None => (signing.unwrap_or_default(), ledger.unwrap_or_default()),
    };
    let secrets = Secrets::of(signing, ledger).map_err(|error| Problem::internal(&error))?;
    let body = text.map(String::into_bytes).or(bytes).unwrap_or_default();
    let now = at.unwrap_or_else(|| api.now());
    // A body is tried in several forms with each secret: that is for a thread that may be busy.
    let found = api.read(move |_, _| Ok(secrets.check(&headers, &body, now.0 / 1_000))).await?;
    json(StatusCode::OK, &Verdict { valid: is_valid(&found), checks: &found })
}

type Texts = Vec<Zeroizing<String>>;

/// What an endpoint's requests are signed with now.
async fn of_endpoint(api: &ApiState, endpoint: EndpointId) -> Result<(Texts, Texts), Problem> {
    let account = api.caller.account;
    let (key, row, owner) = api
        .read(move |_, view| {
            let (key, row) = lookup(view, endpoint, account)?;
            Ok((key, row, known(view, key.account)?))
        })
        .await?;
    let signing = opened(api, key, &row)?.into_iter().map(|(_, secret)| secret.reveal()).collect();
    Ok((signing, vec![ledger_secret(api, key, &row, &owner)?]))
}

/// A list of secrets, each of which `fits`.
fn several(fits: impl Fn(&RawValue) -> Result<(), Bad>) -> impl Fn(&RawValue) -> Result<Texts, Bad> {
    move |value| {
        let values: Vec<&RawValue> = parse(value, "a list of texts")?;
        if !(1..=SECRETS_MAX).contains(&values.len()) {
            return Err(bad("length", format!("1 to {SECRETS_MAX} secrets are tried")));
        }
        let read = |value: &RawValue| {
            fits(value)?;
            parse::<String>(value, "a text").map(Zeroizing::new)
        };
        values.into_iter().map(read).collect()
    }
}

/// The captured fields: each name with a text, or a list of texts where it stood there several times.
fn headers(fields: &mut Fields<'_>) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let Some(value) = fields.required("headers", Ok) else { return out };
    let mut inner = match Fields::of(value, fields.pointer("headers")) {
        Ok(inner) => inner,
        Err(problem) => {
            fields.absorb(problem);
            return out;
        }
    };
    for (name, value) in inner.rest() {
        let values = parse::<String>(value, "").map(|one| vec![one]);
        match values.or_else(|_| parse::<Vec<String>>(value, "a text, or a list of texts")) {
            Ok(values) => out.extend(values.into_iter().map(|value| (name.clone(), value))),
            Err(wrong) => inner.fail(&name, wrong),
        }
    }
    if let Err(problem) = inner.finish() {
        fields.absorb(problem);
    }
    out
}
