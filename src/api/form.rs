//! What a page's form sends: taken only from our own pages (rule A16), each field once, and acted upon once: each form
//! of a page has a token of its own. The one way in for whatever a page changes.
//!
//! Never knows what a form is for.

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;

use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use super::ApiState;
use super::access::{Caller, source_of};
use super::failures::Source;
use super::portal::from_our_pages;
use super::problem::{Kind, Problem};
use super::rim::whole;
use super::routes::Door;

/// Bytes of a form.
const FORM_BYTES_MAX: usize = 32 * 1024;

/// The fields of a form that came from one of our pages.
pub(crate) struct Form {
    fields: Vec<(String, String)>,
    /// Of its request.
    pub headers: HeaderMap,
    /// Where it came from.
    pub(super) source: Option<Source>,
    /// Of the form on its page; empty if whoever sent it needs none.
    token: String,
    /// Where it was sent.
    path: String,
}

/// The forms that were acted upon: as long as the sessions whose pages they were on, in memory.
#[derive(Default)]
pub(super) struct Done(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    all: HashSet<[u8; 32]>,
    oldest_first: VecDeque<[u8; 32]>,
}

/// Forms that are remembered; sessions are over long before so many came.
const DONE_MAX: usize = 100_000;

/// A form that is being acted upon, by nobody else.
pub(crate) struct Once<'a> {
    api: &'a ApiState,
    key: Option<[u8; 32]>,
}

impl Once<'_> {
    /// Keeps the form from being acted upon again, unless nothing was done.
    pub(crate) fn settle<T>(mut self, result: Result<T, Problem>) -> Result<T, Problem> {
        let unknown = |problem: &Problem| matches!(problem.kind, Kind::OutcomeUnknown | Kind::Internal);
        if result.as_ref().err().is_none_or(unknown) {
            self.key = None;
        }
        result
    }
}

impl Drop for Once<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.api.shared.forms.0.lock().expect("no holder panics").all.remove(&key);
        }
    }
}

impl FromRequest<Door> for Form {
    type Rejection = Problem;

    async fn from_request(request: Request, door: &Door) -> Result<Form, Problem> {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_else(Caller::nobody);
        let api = ApiState { caller, ..door.0.clone() };
        let (headers, source) = (request.headers().clone(), source_of(&api, &request));
        let path = request.uri().path().to_owned();
        // A page of another site cannot make a browser send a key, nor reach the socket.
        let proven = api.local.is_some() || headers.contains_key(AUTHORIZATION);
        if !proven {
            from_our_pages(&api, &headers, true)?;
        }
        let essence = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if essence.is_none_or(|value| !value.starts_with("application/x-www-form-urlencoded")) {
            return Err(Problem::new(Kind::NotJsonType, "send a form: application/x-www-form-urlencoded"));
        }
        let body = whole(request.into_body(), FORM_BYTES_MAX).await?;
        let fields = form_urlencoded::parse(&body).into_owned().collect();
        let mut form = Form { fields, headers, source, token: String::new(), path };
        form.token = form.take("csrf")?.unwrap_or_default();
        // Who signs in has no session yet, and needs none: the page it comes from is known.
        let nobody = api.caller.role.is_none();
        if !proven && !nobody && !api.knows_csrf(&form.token) {
            let detail = "the form is not from a page of this session; load the page again and repeat it";
            return Err(Problem::new(Kind::CrossOrigin, detail));
        }
        Ok(form)
    }
}

impl Form {
    /// A field that stands there at most once.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let (mut taken, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.fields).into_iter().partition(|(known, _)| known == name);
        self.fields = rest;
        match taken.len() {
            0 | 1 => Ok(taken.pop().map(|(_, value)| value)),
            _ => Err(Problem::query(name, "the field stands there twice; send it once")),
        }
    }

    /// A text of a person's, without the blanks around it.
    pub(crate) fn words(&mut self, name: &str, chars_max: usize) -> Result<String, Problem> {
        let text = self.take(name)?.unwrap_or_default().trim().to_owned();
        if text.chars().count() > chars_max {
            return Err(Problem::query(name, format!("at most {chars_max} characters are taken")));
        }
        Ok(text)
    }

    /// Claims the form for what it asks for: sent again, or twice at once, it does nothing.
    ///
    /// # Errors
    /// 409 if it was claimed before.
    pub(crate) fn once<'a>(&self, api: &'a ApiState, what: &str) -> Result<Once<'a>, Problem> {
        if self.token.is_empty() {
            return Ok(Once { api, key: None });
        }
        let mut hash = Sha256::new();
        for part in [self.token.as_str(), &self.path, what] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let key = hash.finalize().into();
        let mut kept = api.shared.forms.0.lock().expect("no holder panics");
        if !kept.all.insert(key) {
            let detail = "this form was sent before, and what it asks for was done once; load the page again to see it";
            return Err(Problem::new(Kind::AlreadySo, detail));
        }
        kept.oldest_first.push_back(key);
        if kept.oldest_first.len() > DONE_MAX
            && let Some(oldest) = kept.oldest_first.pop_front()
        {
            kept.all.remove(&oldest);
        }
        Ok(Once { api, key: Some(key) })
    }

    /// Ends the reading: fields that nobody asked for are unknown.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        match self.fields.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(64).collect();
                Err(Problem::query(&name.escape_default().to_string(), "the field is not known here"))
            }
        }
    }
}
