//! `/v1/endpoints/{id}/secret` and `/v1/accounts/{id}/secret`: secrets brought or drawn, rotated, retired and
//! shown. The one file of the API that opens what is sealed.
//!
//! A secret stands in the answer that makes it, and after that only in a reveal, which is on the log before.

use axum::extract::{Path, Request};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use hooklog_projections::account::{Account, Endpoint};
use hooklog_projections::fact::{Sealed, SigningKey};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey, KeyId};
use hooklog_projections::policy::Text;
use hooklog_projections::time::Millis;
use serde::Serialize;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::accounts::{account_id, known};
use super::endpoints::{REASON_CHARS_MAX, find, find_in, here};
use super::fields::{Bad, Fields, bad, id, number, parse, text};
use super::policies::moment_text;
use super::problem::{Kind, Problem};
use super::query::Params;
use super::rim::{json, small_body, small_body_or_none};
use super::{ApiState, unexpected};
use crate::clock::{Chance, SystemChance};
use crate::delivery::Key;
use crate::engine::{AccessCommand, Answer, Command};
use crate::ids::drawn;
use crate::secrets::Purpose;

/// Characters of an account's secret.
const SECRET_CHARS: std::ops::RangeInclusive<usize> = 16..=256;
/// Hours that older keys go on signing after a rotation, unless it says otherwise.
const OVERLAP_HOURS: u64 = 24;
/// The most hours that it can ask for: 7 days.
const OVERLAP_HOURS_MAX: u64 = 7 * 24;

/// An endpoint's live keys, newest first.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = SigningKeys)]
pub(crate) struct KeysOut {
    #[schema(value_type = String)]
    endpoint_id: EndpointId,
    /// The new one, in the answer that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub signing_secret: Option<String>,
    pub keys: Vec<KeyOut>,
    /// Its own for `X-Ledger-Signature`, in a reveal; its account's signs if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ledger_secret: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = OwnLedgerSecret)]
pub(super) struct OwnOut {
    #[schema(value_type = String)]
    endpoint_id: EndpointId,
    ledger_secret: String,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = SigningKey)]
pub(crate) struct KeyOut {
    #[schema(value_type = String)]
    pub id: KeyId,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub secret: Option<String>,
    /// `null` while it is the newest.
    #[schema(format = DateTime, required = true)]
    pub expires_at: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = AccountSecret)]
pub(super) struct TextOut {
    #[schema(value_type = String)]
    account_id: AccountId,
    secret: String,
}

pub(super) async fn rotate(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let key = find(&api, &id, request.uri()).await?;
    let body = small_body_or_none(request).await?;
    let mut fields = Fields::read_or_empty(&body)?;
    let hours = fields.optional("overlap_hours", number(0, OVERLAP_HOURS_MAX)).unwrap_or(OVERLAP_HOURS);
    let brought = fields.optional("signing_secret", signing_secret);
    let row = api.read(move |_, view| here(view, key)).await?;
    if row.settings.queue.is_some() {
        return Err(no_keys());
    }
    if let Some(new) = &brought {
        for (_, old) in opened(&api, key, &row)? {
            if old.as_bytes() == new.as_bytes() {
                fields.fail("signing_secret", bad("in-use", "this key signs already; bring another"));
            }
        }
    }
    fields.finish()?;
    let out = rotated(&api, key, &brought.map_or_else(drawn_key, Ok)?, hours).await?;
    json(StatusCode::OK, &out)
}

async fn rotated(api: &ApiState, key: EndpointKey, new: &Key, hours: u64) -> Result<KeysOut, Problem> {
    let (new, secret) = seal(api, key, new);
    let overlap = Millis::from_secs(hours * 3600);
    match api.ask(Command::RotateSigningKey { key, new, overlap }).await? {
        Answer::Endpoint { .. } => {}
        other => return Err(unexpected(other)),
    }
    keys(api, key, Some(secret)).await
}

/// Puts a drawn key in the place of the newest, if that is still the one that was seen.
///
/// # Errors
/// 412 if it was replaced meanwhile, 404 for a queue.
pub(crate) async fn rotate_from(api: &ApiState, key: EndpointKey, newest: KeyId) -> Result<KeysOut, Problem> {
    let _one_at_a_time = api.shared.changing.lock().await;
    let row = api.read(move |_, view| here(view, key)).await?;
    if row.settings.queue.is_some() {
        return Err(no_keys());
    }
    if row.live_keys(api.now()).first().map(|key| key.id) != Some(newest) {
        let detail = "the key was replaced meanwhile, by you or by somebody else; load the page again";
        return Err(Problem::new(Kind::Changed, detail));
    }
    rotated(api, key, &drawn_key()?, OVERLAP_HOURS).await
}

fn no_keys() -> Problem {
    Problem::new(Kind::NotFound, "a queue has no keys: nothing is signed for its workers")
}

pub(super) async fn retire(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let key = find(&api, &id, request.uri()).await?;
    let body = small_body(request).await?;
    let mut fields = Fields::read(&body)?;
    let id = fields.required("key_id", self::id::<KeyId>);
    fields.finish()?;
    let Some(id) = id else { return Err(Problem::invalid(Vec::new())) };
    api.ask(Command::RetireSigningKey { key, id }).await?;
    json(StatusCode::OK, &keys(&api, key, None).await?)
}

pub(super) async fn reveal(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (account, reason) = why(&api, request.uri())?;
    let key = find_in(&api, &id, account).await?;
    json(StatusCode::OK, &revealed(&api, key, reason).await?)
}

/// An endpoint's secrets; that they were shown is on the log before.
pub(crate) async fn revealed(api: &ApiState, key: EndpointKey, reason: Text) -> Result<KeysOut, Problem> {
    let row = api.read(move |_, view| here(view, key)).await?;
    let endpoint = Some(key.endpoint);
    api.administer(AccessCommand::Reveal { account: key.account, endpoint, reason }).await?;
    tracing::info!(
        endpoint = %key.endpoint, actor = ?api.actor(), "the signing secrets of an endpoint were revealed"
    );
    let keys = opened(api, key, &row)?.into_iter().map(|(signing, secret)| KeyOut {
        id: signing.id,
        secret: Some(secret.reveal().to_string()),
        expires_at: signing.expires_at.map(moment_text),
    });
    let ledger_secret = row.secret.as_ref().map(|sealed| open_own(api, key, sealed)).transpose()?;
    Ok(KeysOut {
        endpoint_id: key.endpoint,
        signing_secret: None,
        keys: keys.collect(),
        ledger_secret: ledger_secret.map(|secret| secret.to_string()),
    })
}

/// Gives an endpoint a webhook secret of its own, or another one: design §4, rule W19. There is one header with
/// one value, so no overlap.
pub(super) async fn rotate_own(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let key = find(&api, &id, request.uri()).await?;
    let body = small_body_or_none(request).await?;
    let mut fields = Fields::read_or_empty(&body)?;
    let brought = fields.optional("ledger_secret", account_secret);
    let row = api.read(move |_, view| here(view, key)).await?;
    if let (Some(new), Some(old)) = (&brought, &row.secret)
        && *open_own(&api, key, old)? == **new
    {
        fields.fail("ledger_secret", bad("in-use", "this is the secret already; bring another"));
    }
    fields.finish()?;
    let secret = brought.map_or_else(drawn_text, Ok)?;
    let sealed = seal_own(&api, key, &secret);
    match api.ask(Command::ChangeEndpointSecret { key, secret: Some(sealed) }).await? {
        Answer::Endpoint { .. } => {
            let out = OwnOut { endpoint_id: key.endpoint, ledger_secret: secret.to_string() };
            json(StatusCode::OK, &out)
        }
        other => Err(unexpected(other)),
    }
}

pub(super) async fn rotate_account(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let id = account_id(&api, &id)?;
    let body = small_body_or_none(request).await?;
    let mut fields = Fields::read_or_empty(&body)?;
    let brought = fields.optional("secret", account_secret);
    let row = api.read(move |_, view| known(view, id)).await?;
    if let Some(new) = &brought
        && *open_text(&api, id, &row.secret)? == **new
    {
        fields.fail("secret", bad("in-use", "this is the secret already; bring another"));
    }
    fields.finish()?;
    let secret = brought.map_or_else(drawn_text, Ok)?;
    let sealed = seal_text(&api, id, &secret);
    match api.ask(Command::ChangeAccountSecret { account: id, secret: sealed }).await? {
        Answer::Done => json(StatusCode::OK, &TextOut { account_id: id, secret: secret.to_string() }),
        other => Err(unexpected(other)),
    }
}

pub(super) async fn reveal_account(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let id = account_id(&api, &id)?;
    let (_, reason) = why(&api, request.uri())?;
    let row = api.read(move |_, view| known(view, id)).await?;
    api.administer(AccessCommand::Reveal { account: id, endpoint: None, reason }).await?;
    tracing::info!(account = %id, actor = ?api.actor(), "the secret of an account was revealed");
    let secret = open_text(&api, id, &row.secret)?;
    json(StatusCode::OK, &TextOut { account_id: id, secret: secret.to_string() })
}

/// What a reveal is asked with: whose, and why.
fn why(api: &ApiState, uri: &Uri) -> Result<(Option<AccountId>, Text), Problem> {
    let mut params = Params::of(uri);
    let account = api.account_filter(&mut params)?;
    let reason = params.one_of("reason", |reason| {
        let fits = reason.chars().count() <= REASON_CHARS_MAX && !reason.chars().any(char::is_control);
        let wrong = || format!("at most {REASON_CHARS_MAX} characters, none of them a control character");
        fits.then(|| reason.into()).ok_or_else(wrong)
    });
    params.finish()?;
    Ok((account, reason.unwrap_or_default()))
}

/// A signing key that a caller brings: rule W5.
pub(super) fn signing_secret(value: &RawValue) -> Result<Key, Bad> {
    let text = Zeroizing::new(parse::<String>(value, "a text")?);
    Key::parse(&text).map_err(|error| bad("bad-secret", error.to_string()))
}

/// An account's secret that a caller brings. It is used as text, so any will do that nobody guesses.
pub(super) fn account_secret(value: &RawValue) -> Result<Zeroizing<String>, Bad> {
    let secret = Zeroizing::new(text(*SECRET_CHARS.end())(value)?);
    if secret.chars().count() < *SECRET_CHARS.start() {
        return Err(bad("length", "a secret has 16 to 256 characters"));
    }
    Ok(secret)
}

/// 32 bytes of the operating system's chance.
pub(super) fn drawn_key() -> Result<Key, Problem> {
    let bytes = Zeroizing::new(SystemChance.bytes::<32>().to_vec());
    Key::from_bytes(bytes).map_err(|error| Problem::internal(&error))
}

/// The same as text: what an account's secret looks like if nobody brings one.
pub(super) fn drawn_text() -> Result<Zeroizing<String>, Problem> {
    drawn_key().map(|key| key.reveal())
}

/// A new key of an endpoint, sealed, and its text to show once.
pub(super) fn seal(api: &ApiState, endpoint: EndpointKey, key: &Key) -> (SigningKey, Zeroizing<String>) {
    let id = KeyId(drawn(api.now(), &mut SystemChance));
    let secret = api.shared.master.seal(&purpose(endpoint, id), key.as_bytes(), SystemChance.bytes());
    (SigningKey { id, secret, expires_at: None }, key.reveal())
}

/// An account's secret, sealed.
pub(super) fn seal_text(api: &ApiState, account: AccountId, secret: &str) -> Sealed {
    let purpose = Purpose::AccountSecret { account };
    api.shared.master.seal(&purpose, secret.as_bytes(), SystemChance.bytes())
}

/// An endpoint's own webhook secret, sealed.
pub(super) fn seal_own(api: &ApiState, endpoint: EndpointKey, secret: &str) -> Sealed {
    api.shared.master.seal(&own_purpose(endpoint), secret.as_bytes(), SystemChance.bytes())
}

fn own_purpose(endpoint: EndpointKey) -> Purpose {
    Purpose::EndpointSecret { account: endpoint.account, endpoint: endpoint.endpoint }
}

fn open_own(api: &ApiState, key: EndpointKey, secret: &Sealed) -> Result<Zeroizing<String>, Problem> {
    opened_text(api, &own_purpose(key), secret)
}

fn purpose(endpoint: EndpointKey, key: KeyId) -> Purpose {
    Purpose::SigningKey { account: endpoint.account, endpoint: endpoint.endpoint, key }
}

/// An endpoint's live keys, newest first.
pub(super) fn opened(
    api: &ApiState,
    key: EndpointKey,
    row: &Endpoint,
) -> Result<Vec<(SigningKey, Key)>, Problem> {
    let open = |signing: SigningKey| {
        let bytes = api.shared.master.open(&purpose(key, signing.id), &signing.secret);
        let bytes = bytes.map_err(|error| Problem::internal(&error))?;
        Ok((signing, Key::from_bytes(bytes).map_err(|error| Problem::internal(&error))?))
    };
    row.live_keys(api.now()).into_iter().map(open).collect()
}

fn open_text(api: &ApiState, account: AccountId, secret: &Sealed) -> Result<Zeroizing<String>, Problem> {
    opened_text(api, &Purpose::AccountSecret { account }, secret)
}

fn opened_text(api: &ApiState, purpose: &Purpose, secret: &Sealed) -> Result<Zeroizing<String>, Problem> {
    let bytes = api.shared.master.open(purpose, secret);
    let bytes = bytes.map_err(|error| Problem::internal(&error))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| Problem::internal(&error))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// The secret that `X-Ledger-Signature` is made with for an endpoint: its own, or its account's.
pub(super) fn ledger_secret(
    api: &ApiState,
    key: EndpointKey,
    row: &Endpoint,
    account: &Account,
) -> Result<Zeroizing<String>, Problem> {
    match &row.secret {
        Some(own) => open_own(api, key, own),
        None => open_text(api, key.account, &account.secret),
    }
}

async fn keys(
    api: &ApiState,
    key: EndpointKey,
    secret: Option<Zeroizing<String>>,
) -> Result<KeysOut, Problem> {
    let row = api.read(move |_, view| here(view, key)).await?;
    let live = row.live_keys(api.now()).into_iter();
    let keys = live.map(|signing| KeyOut {
        id: signing.id,
        secret: None,
        expires_at: signing.expires_at.map(moment_text),
    });
    let signing_secret = secret.map(|secret| secret.to_string());
    let keys = keys.collect();
    Ok(KeysOut { endpoint_id: key.endpoint, signing_secret, keys, ledger_secret: None })
}
