//! An endpoint's signing secrets: which there are, shown when somebody asks to see them, and replaced. Asking is a form,
//! for it stands in the audit; what is shown is on that one answer and nowhere else. Never opens what is sealed.

use axum::extract::Path;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use hooklog_projections::ids::KeyId;
use maud::{Markup, html};

use super::layout::{Page, heading};
use super::parts::{action, copy, endpoint_path, icon, id, read, when};
use super::text::line;
use super::viewer::Viewer;
use crate::api::access::Right;
use crate::api::endpoints::{REASON_CHARS_MAX, find_in};
use crate::api::events::account_of;
use crate::api::fleet::Ship;
use crate::api::form::Form;
use crate::api::problem::Problem;
use crate::api::secrets::{KeysOut, revealed, rotate_from};

/// The card on the endpoint's page. Nothing is signed for a queue's workers.
pub(super) fn card(viewer: &Viewer, ship: &Ship) -> Markup {
    let keys = ship.endpoint.live_keys(viewer.now);
    let Some(newest) = keys.first().filter(|_| ship.endpoint.settings.queue.is_none()) else {
        return html! {};
    };
    let barred = (!viewer.may(Right::Secrets)).then_some("This is not for your role.");
    let barred = barred.or(ship.endpoint.removed().then_some("It was removed."));
    let path = path(viewer, ship);
    let replaced = html! {
        p.plan { "A new key signs at once. The old one signs beside it for 24 hours, so that both are taken meanwhile." }
        input type="hidden" name="newest" value=(newest.id.to_string());
    };
    html! {
        section.card { h2 { "Signing keys" }
            ul.keys-list { @for key in &keys { li {
                (id(&key.id.to_string())) " "
                @match key.expires_at { Some(at) => span.dim { "signs until " (when(at, viewer.now)) }, None => span.dim { "the newest" } }
            } } }
            div.actions {
                (action(viewer, &path, "reveal", "Show the secrets", "info", barred, html! {}))
                @if barred.is_none() {
                    details.ask { summary { (icon("replays")) "Replace the key…" } (action(viewer, &path, "rotate", "Replace the key", "replays", None, replaced)) }
                } @else { (action(viewer, &path, "rotate", "Replace the key…", "replays", barred, html! {})) }
            }
            p.dim { "That they were shown stands in the audit, and who asked." }
        }
    }
}

fn path(viewer: &Viewer, ship: &Ship) -> String {
    let path = format!("/endpoints/{}/secret", ship.key.endpoint);
    viewer.in_account(&path, ship.key.account)
}

/// Shows the secrets, or replaces the newest and shows that.
pub(super) async fn act(
    viewer: Viewer,
    Path(id): Path<String>,
    uri: Uri,
    mut form: Form,
) -> Result<Response, Problem> {
    let account = account_of(&viewer.api, &uri)?;
    let what = form.take("do")?.unwrap_or_default();
    let reason = form.words("reason", REASON_CHARS_MAX)?;
    let newest = form.take("newest")?;
    let once = form.once(&viewer.api, &what)?;
    form.finish()?;
    let key = find_in(&viewer.api, &id, account).await?;
    let (title, keys) = match what.as_str() {
        "reveal" => {
            ("Signing secrets", once.settle(revealed(&viewer.api, key, reason.as_str().into()).await)?)
        }
        "rotate" => {
            let wrong = || Problem::query("newest", "the key that is to be replaced is wanted");
            let newest: KeyId = newest.and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
            ("The new signing secret", once.settle(rotate_from(&viewer.api, key, newest).await)?)
        }
        _ => return Err(Problem::query("do", "the form asks for nothing that is known here")),
    };
    let back = viewer.to(&endpoint_path(&viewer, key));
    let body = html! {
        (heading(html! { (title) }, html! { (super::parts::id(&key.endpoint.to_string())) }))
        section.card {
            p.banner.wait { (icon("alert")) span { "It is on this page only. Keep it where secrets are kept." } }
            (told(&viewer, &keys))
            p { a href=(back) { "Back to the endpoint" } }
        }
    };
    viewer.page(StatusCode::OK, Page { title, part: "/endpoints", body, live: None })
}

fn told(viewer: &Viewer, keys: &KeysOut) -> Markup {
    let secret = |text: &str| html! { span.id { code { (line(text, 300)) } (copy(text)) } };
    html! {
        dl.facts {
            @if let Some(new) = &keys.signing_secret { dt { "New" } dd { (secret(new)) } }
            @for key in &keys.keys {
                dt { (id(&key.id.to_string())) }
                dd {
                    @if let Some(text) = &key.secret { (secret(text)) " " }
                    @match &key.expires_at { Some(at) => span.dim { "signs until " (when(read(at), viewer.now)) }, None => span.dim { "the newest" } }
                }
            }
            @if let Some(own) = &keys.ledger_secret { dt { "Of its own for the ledger signature" } dd { (secret(own)) } }
        }
    }
}
