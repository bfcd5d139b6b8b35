//! The console's door: signing in with a key, and out. And the choice of a theme, in either entrance. Never knows which
//! keys there are.

use axum::extract::Request;
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use super::layout::Page;
use super::parts::{hidden, icon};
use super::text::short;
use super::viewer::{THEME, Theme, Viewer};
use crate::api::ApiState;
use crate::api::console;
use crate::api::form::Form;
use crate::api::problem::Problem;
use crate::api::query::Params;

pub(super) async fn form(viewer: Viewer, request: Request) -> Result<Response, Problem> {
    let mut params = Params::of(request.uri());
    let next = viewer.back_to(params.one("next"));
    params.finish()?;
    asked(&viewer, StatusCode::OK, &next, None)
}

pub(super) async fn sign_in(viewer: Viewer, mut form: Form) -> Result<Response, Problem> {
    let next = viewer.back_to(form.take("next")?);
    let key = zeroize::Zeroizing::new(form.take("key")?.unwrap_or_default());
    match console::sign_in(&viewer.api, &form, &key) {
        Ok(cookie) => {
            form.finish()?;
            Ok(([(SET_COOKIE, cookie)], go(&next)?).into_response())
        }
        Err(problem) => asked(&viewer, problem.kind.status(), &next, Some(&problem)),
    }
}

pub(super) async fn sign_out(api: ApiState, form: Form) -> Result<Response, Problem> {
    let cookie = console::sign_out(&api, &form.headers)?;
    form.finish()?;
    Ok(([(SET_COOKIE, cookie)], go("/sign-in")?).into_response())
}

pub(super) async fn theme(viewer: Viewer, mut form: Form) -> Result<Response, Problem> {
    let wrong = || Problem::query("theme", "system, light or dark is wanted");
    let theme = form.take("theme")?.as_deref().and_then(Theme::read).ok_or_else(wrong)?;
    let next = viewer.back_to(form.take("next")?);
    form.finish()?;
    let cookie = format!("{THEME}={}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax", theme.word());
    let cookie = HeaderValue::try_from(cookie).map_err(|error| Problem::internal(&error))?;
    Ok(([(SET_COOKIE, cookie)], go(&next)?).into_response())
}

/// Sends a browser to one of our own pages, to be read with GET.
pub(super) fn go(path: &str) -> Result<Response, Problem> {
    let location = HeaderValue::try_from(path).map_err(|error| Problem::internal(&error))?;
    Ok((StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response())
}

fn asked(
    viewer: &Viewer,
    status: StatusCode,
    next: &str,
    refused: Option<&Problem>,
) -> Result<Response, Problem> {
    let body = html! {
        div.door {
            (viewer.brand())
            h1 { "Sign in" }
            @if let Some(problem) = refused { (refusal(problem)) }
            form method="post" action="/sign-in" {
                (hidden(viewer, ""))
                input type="hidden" name="next" value=(next);
                label for="key" { "Key" }
                input #key type="password" name="key" required autofocus autocomplete="current-password" maxlength="200" spellcheck="false" placeholder="hl_op_…";
                button.primary type="submit" { "Sign in" }
            }
            (help())
            (viewer.themes())
        }
    };
    viewer.page(status, Page { title: "Sign in", part: "", body, live: None })
}

/// Why the door stays shut.
pub(super) fn refusal(problem: &Problem) -> Markup {
    html! { p.refusal role="alert" { (icon("alert")) span { (problem.kind.title()) ": " (short(&problem.detail)) "." } } }
}

fn help() -> Markup {
    html! {
        details.fold { summary { "I have no key" }
            div.folded {
                p { "The first key was shown when the server was started. Whoever may open the store's folder makes another one:" }
                pre.code { code { "hooklog keys create --role operator" } }
                p { "Give support a key of its own: " code { "hooklog keys create --role support" } "." }
            }
        }
    }
}
