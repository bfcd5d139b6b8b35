//! `/v1/accounts`: made, listed, shown and changed. Never knows what an account's deliveries are.

use axum::body::Bytes;
use axum::extract::{Path, Request};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hooklog_projections::account::Account;
use hooklog_projections::fact::AccountSettings;
use hooklog_projections::ids::AccountId;
use hooklog_projections::policy::{ResponsePolicy, Rollout, Schedule};
use serde_json::value::RawValue;

use super::fields::{Bad, Fields, bad, text};
use super::paging::{Asked, PageOut, reply};
use super::policies::{response_policy, rollout, schedule};
use super::problem::{Kind, Problem};
use super::query::Params;
use super::rim::{json, small_body};
use super::wire::{self, AccountOut};
use super::{ApiState, secrets, unexpected};
use crate::clock::SystemChance;
use crate::engine::{Answer, Command};
use crate::ids::drawn;
use crate::views::{Page, View};

/// Characters of a name.
const NAME_CHARS_MAX: usize = 200;
/// Characters of an e-mail address (RFC 5321).
const EMAIL_CHARS_MAX: usize = 254;

/// The members of an account, each absent, cleared or set.
struct Form {
    name: Option<Option<String>>,
    owner_email: Option<Option<String>>,
    schedule: Option<Option<Schedule>>,
    response_policy: Option<Option<ResponsePolicy>>,
    webhook_retries: Option<Option<Rollout>>,
}

impl Form {
    fn of(fields: &mut Fields<'_>) -> Form {
        Form {
            name: fields.patch("name", text(NAME_CHARS_MAX)),
            owner_email: fields.patch("owner_email", email),
            schedule: fields.patch("schedule", schedule),
            response_policy: fields.patch("response_policy", response_policy),
            webhook_retries: fields.patch("webhook_retries", rollout),
        }
    }

    fn apply(self, settings: &mut AccountSettings) {
        if let Some(Some(name)) = self.name {
            settings.name = name.into();
        }
        if let Some(email) = self.owner_email {
            settings.owner_email = email.map(Into::into);
        }
        if let Some(schedule) = self.schedule {
            settings.schedule = schedule;
        }
        if let Some(policy) = self.response_policy {
            settings.response_policy = policy;
        }
        if let Some(rollout) = self.webhook_retries {
            settings.webhook_retries = rollout.unwrap_or_default();
        }
    }
}

pub(super) async fn create(api: ApiState, request: Request) -> Result<Response, Problem> {
    let body = small_body(request).await?;
    let mut fields = Fields::read(&body)?;
    let form = Form::of(&mut fields);
    if !matches!(form.name, Some(Some(_))) && fields.raw("name").is_none_or(|name| name.get() == "null") {
        fields.fail("name", bad("missing", "the member is missing"));
    }
    let secret = fields.optional("secret", secrets::account_secret);
    fields.finish()?;

    let id = AccountId(drawn(api.now(), &mut SystemChance));
    let secret = secret.map_or_else(secrets::drawn_text, Ok)?;
    let sealed = secrets::seal_text(&api, id, &secret);
    let mut settings = AccountSettings {
        name: "".into(),
        owner_email: None,
        schedule: None,
        response_policy: None,
        webhook_retries: Rollout::Default,
    };
    form.apply(&mut settings);
    match api.ask(Command::CreateAccount { account: id, settings, secret: sealed }).await? {
        Answer::Done => {}
        other => return Err(unexpected(other)),
    }
    let mut out = api.read(move |_, view| Ok(wire::account(id, &known(view, id)?))).await?;
    out.secret = Some(secret.to_string());
    let location = [("location", format!("/v1/accounts/{id}"))];
    Ok((location, json(StatusCode::CREATED, &out)?).into_response())
}

pub(super) async fn list(api: ApiState, request: Request) -> Result<Response, Problem> {
    let found = listed(&api, request.uri()).await?;
    reply(request.uri(), found)
}

/// What the query of an address selects.
pub(crate) async fn listed(api: &ApiState, uri: &Uri) -> Result<PageOut<AccountOut>, Problem> {
    let mut params = Params::of(uri);
    let asked = Asked::read(&mut params);
    params.finish()?;
    let own = api.caller.account;
    let paging = asked.of(api, format!("accounts {own:?}"))?;
    let (place, limit) = (paging.place.map(AccountId), paging.limit);
    let page = api
        .read(move |_, view| match own {
            Some(own) => {
                let rows = vec![(own, known(view, own)?)];
                Ok(Page { rows, prev: None, next: None, searched_to: None })
            }
            None => Ok(view.accounts_page(place, limit)?),
        })
        .await?;
    Ok(paging.out(api, page.map(|(id, row)| wire::account(id, &row), |id| id.0)))
}

pub(super) async fn show(api: ApiState, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = account_id(&api, &id)?;
    json(StatusCode::OK, &shown(&api, id).await?)
}

/// An account with its figures.
pub(crate) async fn shown(api: &ApiState, id: AccountId) -> Result<AccountOut, Problem> {
    api.read(move |_, view| {
        let mut out = wire::account(id, &known(view, id)?);
        out.deliveries = Some(wire::counts(&view.counts(Some(id))?));
        Ok(out)
    })
    .await
}

pub(super) async fn change(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let body = small_body(request).await?;
    let id = account_id(&api, &id)?;
    let form = read_change(&body)?;
    let _alone = api.shared.changing.lock().await;
    let before = api.read(move |_, view| known(view, id)).await?;
    let mut settings = before.settings.clone();
    form.apply(&mut settings);
    if settings != before.settings {
        api.ask(Command::ChangeAccount { account: id, settings }).await?;
    }
    let out = api.read(move |_, view| Ok(wire::account(id, &known(view, id)?))).await?;
    json(StatusCode::OK, &out)
}

fn read_change(body: &Bytes) -> Result<Form, Problem> {
    let mut fields = Fields::read(body)?;
    let form = Form::of(&mut fields);
    if form.name == Some(None) {
        fields.fail("name", bad("missing", "a name cannot be cleared"));
    }
    fields.refuse("secret", bad("not-changeable", "POST /v1/accounts/{id}/secret/rotate changes the secret"));
    fields.finish()?;
    Ok(form)
}

/// The id in a path or a query, if the caller reaches it; one that is none names nothing.
pub(crate) fn account_id(api: &ApiState, text: &str) -> Result<AccountId, Problem> {
    api.reach(text.parse().map_err(|_| no_account())?)
}

/// An account that must be there.
pub(crate) fn known(view: &View<'_>, id: AccountId) -> Result<Account, Problem> {
    view.account(id)?.ok_or_else(no_account)
}

pub(super) fn no_account() -> Problem {
    Problem::new(Kind::NotFound, "there is no such account")
}

/// Enough of an address to be mailed to; only a mail server knows more.
fn email(value: &RawValue) -> Result<String, Bad> {
    let email = text(EMAIL_CHARS_MAX)(value)?;
    let whole = !email.chars().any(|c| c.is_whitespace() || matches!(c, ',' | ';' | '<' | '>'));
    match email.split_once('@') {
        Some((name, host)) if whole && !name.is_empty() && !host.is_empty() && !host.contains('@') => {
            Ok(email)
        }
        _ => Err(bad("bad-email", "one e-mail address is wanted, as owner@customer.example")),
    }
}
