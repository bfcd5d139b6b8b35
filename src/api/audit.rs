//! `/v1/audit`: what was administered and which secrets were shown, by whom, newest first. Never knows what
//! became of a delivery.

use axum::extract::Request;
use axum::http::Uri;
use axum::response::Response;
use hooklog_projections::audit::scope;
use hooklog_projections::fact::{DisabledReason, Entry, Fact};
use hooklog_projections::ids::Seq;
use serde_json::{Map, Value, json};

use super::ApiState;
use super::paging::{Asked, PageOut, reply};
use super::policies::moment_text;
use super::problem::Problem;
use super::query::Params;
use crate::explain::actor;

pub(super) async fn list(api: ApiState, request: Request) -> Result<Response, Problem> {
    let found = listed(&api, request.uri()).await?;
    reply(request.uri(), found)
}

/// What the query of an address selects.
pub(crate) async fn listed(api: &ApiState, uri: &Uri) -> Result<PageOut<Value>, Problem> {
    let mut params = Params::of(uri);
    let account = api.account_filter(&mut params)?;
    let by = params.one("actor");
    let asked = Asked::read(&mut params);
    params.finish()?;
    let paging = asked.of(api, format!("audit {account:?} {by:?}"))?;
    let (place, limit) = (paging.place.map(|at| Seq(u64::try_from(at).unwrap_or(u64::MAX))), paging.limit);
    let page = api
        .read(move |_, view| {
            let wanted = |entry: &Entry| by.as_ref().is_none_or(|by| actor(&entry.actor) == *by);
            Ok(view.audit(account, place, limit, wanted)?)
        })
        .await?;
    Ok(paging.out(api, page.map(|row| entry(&row), |seq| u128::from(seq.0))))
}

fn entry(entry: &Entry) -> Value {
    let mut out = Map::new();
    out.insert("seq".into(), entry.seq.0.into());
    out.insert("at".into(), moment_text(entry.at).into());
    out.insert("actor".into(), actor(&entry.actor).into());
    out.insert("fact".into(), entry.fact.name().into());
    if let Some(account) = scope(&entry.fact).flatten() {
        out.insert("account_id".into(), account.to_string().into());
    }
    if let Value::Object(rest) = target(&entry.fact) {
        out.extend(rest);
    }
    Value::Object(out)
}

/// What was done to what, without a secret or a hash of one.
fn target(fact: &Fact) -> Value {
    match fact {
        Fact::EndpointCreated { key, .. }
        | Fact::EndpointChanged { key, .. }
        | Fact::EndpointResumed { key } => json!({ "endpoint_id": key.endpoint }),
        Fact::SigningKeysChanged { key, signing } => {
            let keys: Vec<_> = signing.iter().map(|key| key.id).collect();
            json!({ "endpoint_id": key.endpoint, "signing_keys": keys })
        }
        Fact::EndpointSecretChanged { key, secret } => {
            json!({ "endpoint_id": key.endpoint, "own": secret.is_some() })
        }
        Fact::EndpointPaused { key, reason } | Fact::EndpointRemoved { key, reason } => {
            json!({ "endpoint_id": key.endpoint, "reason": reason })
        }
        Fact::EndpointDisabled { key, reason } => {
            let reason = match reason {
                DisabledReason::Gone => "it answered 410".to_owned(),
                DisabledReason::Requested(reason) => reason.to_string(),
                DisabledReason::Failing { since } => {
                    format!("nothing but failures since {}", moment_text(*since))
                }
            };
            json!({ "endpoint_id": key.endpoint, "reason": reason })
        }
        Fact::BulkReplayStarted { id, reason, planned, .. } => {
            json!({ "replay_id": id, "reason": reason, "planned": planned })
        }
        Fact::BulkReplayCancelled { id, .. } => json!({ "replay_id": id }),
        Fact::ApiKeyCreated { key, role, label, expires_at, .. } => json!({
            "key_id": key, "role": role, "label": label, "expires_at": expires_at.map(moment_text),
        }),
        Fact::ApiKeyRotated { key, older_until, .. } => {
            json!({ "key_id": key, "older_until": older_until.map(moment_text) })
        }
        Fact::ApiKeyRevoked { key, .. } => json!({ "key_id": key }),
        Fact::PortalLinkCreated { link, role, expires_at, .. } => {
            json!({ "link_id": link, "role": role, "expires_at": moment_text(*expires_at) })
        }
        Fact::PortalLinkUsed { link, .. } => json!({ "link_id": link }),
        Fact::SecretRevealed { endpoint, reason, .. } => {
            json!({ "endpoint_id": endpoint, "reason": reason })
        }
        // Of an account or the store as a whole.
        _ => json!({}),
    }
}
