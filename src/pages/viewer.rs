//! Who looks at a page: its role and account, where its pages begin, its theme, and what its forms must carry.
//!
//! Every component takes one, so that a customer and an operator are shown the same thing, each as far as it goes; and
//! every link is made by it, so that it leads to the same page of the same entrance. Never knows a page.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hooklog_projections::access::Role;
use hooklog_projections::ids::AccountId;
use hooklog_projections::time::Timestamp;

use crate::api::access::Right;
use crate::api::notices::{self, Notices};
use crate::api::portal::{cookie, is_within};
use crate::api::problem::Problem;
use crate::api::routes::Door;
use crate::api::{ApiState, accounts};
use crate::clock::{Chance, SystemChance};
use crate::explain::actor;

/// The cookie of the theme.
pub(super) const THEME: &str = "hooklog-theme";

/// Light, dark, or as the system has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theme {
    System,
    Light,
    Dark,
}

impl Theme {
    pub(super) const ALL: [Theme; 3] = [Theme::System, Theme::Light, Theme::Dark];

    pub(super) fn word(self) -> &'static str {
        match self {
            Theme::System => "system",
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }

    pub(super) fn read(word: &str) -> Option<Theme> {
        Theme::ALL.into_iter().find(|theme| theme.word() == word)
    }
}

/// Who looks at a page.
#[derive(Clone)]
pub(super) struct Viewer {
    /// The API, asked by this viewer.
    pub api: ApiState,
    /// What it may do; nothing if it has not signed in.
    pub role: Option<Role>,
    /// The only account it sees; all of them if absent.
    pub account: Option<AccountId>,
    /// What its pages' paths begin with: nothing in the console, `/portal` there.
    pub base: &'static str,
    /// As facts name it; in the portal, the account's name.
    pub name: String,
    pub theme: Theme,
    /// Of this page alone: scripts and htmx attributes carry it.
    pub nonce: String,
    /// Path and query of the page.
    pub here: String,
    /// The moment of the page.
    pub now: Timestamp,
    pub headers: HeaderMap,
    /// What there is to say of the server itself; nothing to who has not signed in.
    pub notices: Option<Notices>,
}

impl Viewer {
    pub(super) fn of(api: ApiState, uri: &Uri, headers: &HeaderMap) -> Viewer {
        let caller = api.caller().clone();
        let theme = cookie(headers, THEME).and_then(Theme::read).unwrap_or(Theme::System);
        let base = if is_within(uri.path()) { "/portal" } else { "" };
        Viewer {
            role: caller.role,
            account: caller.account,
            base,
            name: actor(&caller.actor),
            theme,
            nonce: URL_SAFE_NO_PAD.encode(SystemChance.bytes::<16>()),
            here: uri.path_and_query().map_or_else(|| "/".into(), ToString::to_string),
            now: api.now(),
            headers: headers.clone(),
            notices: None,
            api,
        }
    }

    /// Whether it may do what a right covers.
    pub(super) fn may(&self, right: Right) -> bool {
        self.role.is_some_and(|role| right.is_of(role))
    }

    /// Whether it stands at customers' pages, and not at the console's.
    pub(super) fn is_at_portal(&self) -> bool {
        !self.base.is_empty()
    }

    /// Why it may not do something; nothing if it has the right.
    pub(super) fn barred(&self, right: Right) -> Option<&'static str> {
        let words = if self.is_at_portal() { "Your link only looks." } else { "Your key only looks." };
        (!self.may(right)).then_some(words)
    }

    /// Whether it is a customer: addresses and places in the log are not for it.
    pub(super) fn is_customer(&self) -> bool {
        self.account.is_some()
    }

    /// The path of a page of this viewer's: `/events` is `/portal/events` there. All links are made by it.
    pub(super) fn to(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// A page's path that names the account which it is about: for whoever sees only one, that goes without saying.
    pub(super) fn in_account(&self, path: &str, account: AccountId) -> String {
        match (self.is_customer(), path.contains('?')) {
            (true, _) => path.to_owned(),
            (false, true) => format!("{path}&account_id={account}"),
            (false, false) => format!("{path}?account_id={account}"),
        }
    }

    /// A path of ours to go back to, else the first page.
    pub(super) fn back_to(&self, next: Option<String>) -> String {
        own_path(next).unwrap_or_else(|| self.to("/"))
    }
}

impl FromRequestParts<Door> for Viewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<Viewer, Problem> {
        let api = ApiState::from_request_parts(parts, door).await?;
        let mut viewer = Viewer::of(api, &parts.uri, &parts.headers);
        if viewer.role.is_some() {
            viewer.notices = Some(notices::read(&viewer.api));
        }
        if let Some(account) = viewer.account.filter(|_| viewer.is_at_portal()) {
            let known = viewer.api.read(move |_, view| accounts::known(view, account)).await?;
            viewer.name = known.settings.name.to_string();
        }
        Ok(viewer)
    }
}

/// A path, if it is one of ours. A browser reads `//host` and `/\host` as another site.
pub(super) fn own_path(next: Option<String>) -> Option<String> {
    let ours = |next: &String| {
        let mut bytes = next.bytes();
        bytes.next() == Some(b'/')
            && !matches!(bytes.next(), Some(b'/' | b'\\'))
            && next.bytes().all(|byte| byte.is_ascii_graphic())
            && next.len() <= 2_000
    };
    next.filter(ours)
}

#[cfg(test)]
mod tests {
    use super::own_path;

    #[test]
    fn one_goes_back_to_our_own_pages_only() {
        for ours in ["/", "/events?status=dead", "/events/evt_1#x"] {
            assert_eq!(own_path(Some(ours.into())).as_deref(), Some(ours));
        }
        for not in
            ["", "//evil.example", "/\\evil.example", "https://evil.example", "/a b", "/a\r\nx: y", "x"]
        {
            assert_eq!(own_path(Some(not.into())), None, "{not}");
        }
    }
}
