//! `/v1/keys`: the keys of the API, made, listed, rotated and revoked. A key's text stands in the answer that
//! makes it, and nowhere after that.

use std::collections::HashMap;

use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hooklog_projections::access::{ApiKey, Role};
use hooklog_projections::fact::Actor;
use hooklog_projections::ids::{AccountId, ApiKeyId};
use hooklog_projections::policy::Text;
use hooklog_projections::time::{Millis, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::access::Caller;
use super::fields::{Bad, Fields, bad, id, number, parse, text, word};
use super::openapi::words;
use super::paging::{Asked, reply};
use super::policies::{moment, moment_text};
use super::problem::{Kind, Problem};
use super::query::Params;
use super::rim::{json, small_body, small_body_or_none};
use super::{ApiState, token, unexpected};
use crate::clock::SystemChance;
use crate::engine::{AccessCommand, Answer, Command};
use crate::ids::drawn;
use crate::views::{Place, View};

/// Characters of a label.
const LABEL_CHARS_MAX: usize = 200;
/// Hours that the secret before is taken after a rotation, unless it says otherwise.
const OVERLAP_HOURS: u64 = 24;
/// The most hours that it can ask for: 7 days.
const OVERLAP_HOURS_MAX: u64 = 7 * 24;
/// How exactly the last use is told.
const MINUTE: u64 = 60_000;

/// When each key was last used, by the minute; in memory only, so that a look-up never writes.
pub(super) type LastUsed = HashMap<ApiKeyId, Timestamp>;

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = ApiKey)]
pub(super) struct KeyOut {
    #[schema(value_type = String)]
    id: ApiKeyId,
    #[schema(value_type = words::Role)]
    role: Role,
    #[schema(value_type = Option<String>, required = true)]
    account_id: Option<AccountId>,
    #[schema(value_type = String)]
    label: Text,
    #[schema(value_type = words::KeyStatus)]
    status: &'static str,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime, required = true)]
    expires_at: Option<String>,
    #[schema(format = DateTime, required = true)]
    revoked_at: Option<String>,
    /// Until when the secret before the last rotation is taken too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    older_until: Option<String>,
    /// Since this server started, to the minute.
    #[schema(format = DateTime, required = true)]
    last_used_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    key: Option<String>,
}

/// A role's word.
pub(super) fn role(value: &RawValue) -> Result<Role, Bad> {
    word::<Role>("`operator`, `support`, `account`, `account_read`, `ingest`")(value)
}

pub(super) async fn create(api: ApiState, request: Request) -> Result<Response, Problem> {
    let body = small_body(request).await?;
    let now = api.now();
    let mut fields = Fields::read(&body)?;
    let role = fields.required("role", self::role);
    let account = fields.optional("account_id", id::<AccountId>);
    let label = fields.optional("label", text(LABEL_CHARS_MAX)).unwrap_or_default();
    let expires_at = fields.optional("expires_at", |value| later(value, now));
    match (role, account) {
        (Some(Role::Account | Role::AccountRead), None) => {
            fields.fail("account_id", bad("missing", "a key of this role is bound to one account"));
        }
        (Some(Role::Operator | Role::Support), Some(_)) => {
            fields.fail("account_id", bad("not-here", "a key of this role is bound to no account"));
        }
        _ => {}
    }
    fields.finish()?;
    let Some(role) = role else { return Err(Problem::invalid(Vec::new())) };
    let key = ApiKeyId(drawn(now, &mut SystemChance));
    let (secret, hash) = token::mint(token::Kind::Key(role), key.0);
    let label = label.into();
    api.administer(AccessCommand::CreateKey { key, role, account, hash, label, expires_at }).await?;
    let location = [("location", format!("/v1/keys/{key}"))];
    Ok((location, shown(&api, key, StatusCode::CREATED, Some(&secret)).await?).into_response())
}

fn later(value: &RawValue, now: Timestamp) -> Result<Timestamp, Bad> {
    let text: String = parse(value, "a text")?;
    let wrong = || bad("bad-time", "an RFC 3339 time with an offset is wanted, as 2026-11-30T09:14:02Z");
    let at = moment(&text).ok_or_else(wrong)?;
    if at > now { Ok(at) } else { Err(bad("out-of-range", "it is over already")) }
}

/// The first key of a store.
pub(super) async fn first(api: &ApiState) -> Result<Option<Zeroizing<String>>, Problem> {
    if !api.read(|_, view| Ok(view.api_keys(Place::First, 1)?)).await?.rows.is_empty() {
        return Ok(None);
    }
    let key = ApiKeyId(drawn(api.now(), &mut SystemChance));
    let (secret, hash) = token::mint(token::Kind::Key(Role::Operator), key.0);
    let (role, label) = (Role::Operator, "the first".into());
    let by_itself = ApiState { caller: Caller { actor: Actor::Hooklog, ..Caller::nobody() }, ..api.clone() };
    let command = AccessCommand::CreateKey { key, role, account: None, hash, label, expires_at: None };
    by_itself.administer(command).await?;
    Ok(Some(secret))
}

pub(super) async fn list(api: ApiState, request: Request) -> Result<Response, Problem> {
    let mut params = Params::of(request.uri());
    let asked = Asked::read(&mut params);
    params.finish()?;
    let paging = asked.of(&api, "keys".into())?;
    let (place, limit) = (paging.place.map(ApiKeyId), paging.limit);
    let page = api.read(move |_, view| Ok(view.api_keys(place, limit)?)).await?;
    let page = page.map(|(id, row)| out(&api, id, row), |id| id.0);
    reply(request.uri(), paging.out(&api, page))
}

pub(super) async fn show(api: ApiState, Path(id): Path<String>) -> Result<Response, Problem> {
    shown(&api, key_id(&id)?, StatusCode::OK, None).await
}

pub(super) async fn rotate(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let key = key_id(&id)?;
    let body = small_body_or_none(request).await?;
    let mut fields = Fields::read_or_empty(&body)?;
    let hours = fields.optional("overlap_hours", number(0, OVERLAP_HOURS_MAX)).unwrap_or(OVERLAP_HOURS);
    fields.finish()?;
    let row = api.read(move |_, view| here(view, key)).await?;
    let (secret, hash) = token::mint(token::Kind::Key(row.role), key.0);
    let overlap = Millis::from_secs(hours * 3600);
    api.administer(AccessCommand::RotateKey { key, hash, overlap }).await?;
    shown(&api, key, StatusCode::OK, Some(&secret)).await
}

pub(super) async fn revoke(api: ApiState, Path(id): Path<String>) -> Result<Response, Problem> {
    let key = key_id(&id)?;
    api.administer(AccessCommand::RevokeKey { key }).await?;
    shown(&api, key, StatusCode::OK, None).await
}

async fn shown(
    api: &ApiState,
    key: ApiKeyId,
    status: StatusCode,
    secret: Option<&str>,
) -> Result<Response, Problem> {
    let row = api.read(move |_, view| here(view, key)).await?;
    json(status, &KeyOut { key: secret.map(str::to_owned), ..out(api, key, row) })
}

fn out(api: &ApiState, id: ApiKeyId, row: ApiKey) -> KeyOut {
    let now = api.now();
    let status = match (row.lives(now), row.revoked_at) {
        (true, _) => "active",
        (false, Some(_)) => "revoked",
        (false, None) => "expired",
    };
    let last_used = api.shared.last_used.lock().expect("no holder panics").get(&id).copied();
    KeyOut {
        id,
        role: row.role,
        account_id: row.account,
        label: row.label,
        status,
        created_at: moment_text(row.created_at),
        expires_at: row.expires_at.map(moment_text),
        revoked_at: row.revoked_at.map(moment_text),
        older_until: row.older.map(|(_, until)| until).filter(|until| now < *until).map(moment_text),
        last_used_at: last_used.map(moment_text),
        key: None,
    }
}

fn key_id(text: &str) -> Result<ApiKeyId, Problem> {
    text.parse().map_err(|_| no_key())
}

fn here(view: &View<'_>, key: ApiKeyId) -> Result<ApiKey, Problem> {
    view.api_key(key)?.ok_or_else(no_key)
}

fn no_key() -> Problem {
    Problem::new(Kind::NotFound, "there is no such key")
}

impl ApiState {
    /// Notes that a key was used.
    pub(super) fn used(&self, key: ApiKeyId, now: Timestamp) {
        let minute = Timestamp(now.0 - now.0 % MINUTE);
        self.shared.last_used.lock().expect("no holder panics").insert(key, minute);
    }

    /// Changes who may ask, on the record.
    pub(super) async fn administer(&self, command: AccessCommand) -> Result<(), Problem> {
        match self.ask(Command::Access(command)).await? {
            Answer::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }
}
