//! The portal's door: a link is exchanged for a session by a form, so that whatever only opens links does not use it
//! up. Its secret is in the fragment, which a script puts into the form and takes out of the address; without scripts the
//! whole address is pasted. Never knows which links there are.

use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use super::door::{go, refusal};
use super::layout::Page;
use super::parts::{hidden, icon};
use super::text::short;
use super::viewer::Viewer;
use crate::api::form::Form;
use crate::api::portal;
use crate::api::problem::{Kind, Problem};
use crate::api::query::Params;

/// Where a link leads to.
pub(super) async fn shown(viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    Params::of(&uri).finish()?;
    asked(&viewer, StatusCode::OK, None)
}

/// Exchanges the link.
pub(super) async fn enter(viewer: Viewer, mut form: Form) -> Result<Response, Problem> {
    let link = zeroize::Zeroizing::new(form.take("link")?.unwrap_or_default());
    let entered = portal::enter(&viewer.api, &form, &link).await;
    form.finish()?;
    match entered {
        Ok(Some(cookie)) => Ok(([(SET_COOKIE, cookie)], go(&viewer.to("/"))?).into_response()),
        Ok(None) => go(&viewer.to("/")),
        Err(problem) => asked(&viewer, problem.kind.status(), Some(&problem)),
    }
}

/// Ends the session.
pub(super) async fn leave(viewer: Viewer, form: Form) -> Result<Response, Problem> {
    let headers: HeaderMap = form.headers.clone();
    form.finish()?;
    let (cookie, back) = portal::leave(&viewer.api, &headers)?;
    let body = html! {
        div.door {
            (viewer.brand())
            h1 { "You are signed out" }
            p { "This browser shows nothing any more. To come back, open a new link." }
            @if let Some(url) = back { p { (way_back(&url)) } }
            (viewer.themes())
        }
    };
    let page = viewer.page(StatusCode::OK, Page { title: "Signed out", part: "", body, live: None })?;
    Ok(([(SET_COOKIE, cookie)], page).into_response())
}

/// What is shown to who has no session, or none any more.
pub(super) fn asked(
    viewer: &Viewer,
    status: StatusCode,
    refused: Option<&Problem>,
) -> Result<Response, Problem> {
    let spent = refused.is_some_and(|problem| problem.kind == Kind::Unauthorized);
    let body = html! {
        div.door {
            (viewer.brand())
            h1 { "Your webhooks" }
            @if let Some(problem) = refused {
                (refusal(problem))
                @if spent { p { "A link opens these pages once, and soon after it was made. Go back to where you found it and ask for a new one." } }
            }
            form.enter method="post" action=(viewer.to("")) {
                (hidden(viewer, ""))
                @if refused.is_none() { p.scripted.ready hidden { "You are about to see the webhooks of your account." } }
                div.paste {
                    label for="link" { "Link" }
                    input #link type="text" name="link" required autocomplete="off" maxlength="400" spellcheck="false" aria-describedby="link-help";
                    p.dim #link-help { "The whole address that you were given: paste it here." }
                }
                button.primary type="submit" { "Continue" }
            }
            @if refused.is_none() { p.dim { "Continued already? " a href=(viewer.to("/")) { "To the overview" } } }
            (viewer.themes())
        }
    };
    viewer.page(status, Page { title: "Open your webhooks", part: "", body, live: None })
}

/// The link that leads back to the product.
pub(super) fn way_back(url: &str) -> Markup {
    let host = super::parts::host(url);
    html! { a.back href=(url) rel="noreferrer" { (icon("out")) span { "Back to " (short(&host)) } } }
}
