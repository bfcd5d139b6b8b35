//! What every page stands in: the way round, the search, the theme, and the policy that lets a browser load nothing
//! but ours. Never knows what a page shows.

use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::assets;
use super::entry::way_back;
use super::parts::{hidden, icon};
use super::text::{count, short};
use super::viewer::{Theme, Viewer};
use crate::api::access::Right::{self, Manage, Oversee, Read};
use crate::api::console::is_secure;
use crate::api::notices::Notices;
use crate::api::problem::Problem;
use crate::explain::span;

/// The parts that one can go to: path, word, icon, what it wants, and its key after `g`.
const PARTS: &[(&str, &str, &str, Right, &str)] = &[
    ("/", "Overview", "home", Read, "o"),
    ("/events", "Events", "events", Read, "e"),
    ("/deliveries", "Deliveries", "deliveries", Read, "l"),
    ("/dead", "Dead letters", "dead", Read, "d"),
    ("/replays", "Replays", "replays", Read, "r"),
    ("/endpoints", "Endpoints", "endpoints", Read, "n"),
    ("/accounts", "Accounts", "accounts", Oversee, "a"),
    ("/audit", "Audit", "audit", Manage, "u"),
    ("/system", "System", "server", Oversee, "s"),
];

/// What an open page hears of, and what it does then. Without scripts: nothing.
pub(super) struct Live {
    /// The query of the stream.
    pub query: String,
    /// Whether the part `#fresh` is made anew, or it is only told that there is more.
    pub swaps: bool,
    /// Only of these deliveries, if any are named.
    pub only: String,
}

/// A page to be.
pub(super) struct Page<'a> {
    /// Of the window; a page's own name first.
    pub title: &'a str,
    /// The part of the way round that it belongs to, by its path.
    pub part: &'a str,
    /// What it hears of while it is open.
    pub live: Option<Live>,
    pub body: Markup,
}

impl Viewer {
    /// The whole answer.
    pub(super) fn page(&self, status: StatusCode, page: Page<'_>) -> Result<Response, Problem> {
        let body = self.document(&page).into_string();
        let policy = format!(
            "default-src 'none'; script-src 'self' 'nonce-{}'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
             trusted-types htmx",
            self.nonce
        );
        let policy = HeaderValue::try_from(policy).map_err(|error| Problem::internal(&error))?;
        let fixed = [
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            // With `no-referrer` a browser would send forms of our own pages with `Origin: null`.
            (REFERRER_POLICY, "same-origin"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
            (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
        ];
        let mut response = (status, fixed, body).into_response();
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
        if is_secure(&self.api, &self.headers) {
            let hsts = HeaderValue::from_static("max-age=31536000");
            response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, hsts);
        }
        Ok(response)
    }

    fn document(&self, page: &Page<'_>) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" data-theme=(self.theme.word()) {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content=(scheme(self.theme));
                    title { (page.title) " · " (self.product()) }
                    link rel="icon" href=(self.file("hooklog.svg"));
                    link rel="stylesheet" href=(self.file("hooklog.css"));
                    @if self.is_at_portal() && self.api.look().colour().is_some() { link rel="stylesheet" href=(self.to("/brand.css")); }
                    @if page.live.as_ref().is_some_and(|live| live.swaps) {
                        meta name="htmx-config" content="extensions:\"hx-csp\",includeIndicatorCSS:false";
                        script nonce=(self.nonce) src=(self.file("htmx.min.js")) defer {}
                        script nonce=(self.nonce) src=(self.file("hx-csp.min.js")) defer {}
                    }
                    script nonce=(self.nonce) src=(self.file("hooklog.js")) defer {}
                }
                body {
                    (sprite())
                    a.skip href="#main" { "Skip to the content" }
                    @if self.role.is_some() { (self.side(page.part)) }
                    div.sheet {
                        @if self.role.is_some() { (self.search(page.live.as_ref())) }
                        main #main tabindex="-1" {
                            @if page.live.as_ref().is_none_or(|live| !live.swaps) { (self.notices()) }
                            (page.body)
                        }
                    }
                    p.unseen #status role="status" {}
                    @if self.role.is_some() { (keys()) }
                }
            }
        }
    }

    fn side(&self, part: &str) -> Markup {
        html! {
            header.side {
                a.brand href=(self.to("/")) { (icon("brand")) span { (self.product()) } }
                @if let Some(url) = self.api.return_url() { (way_back(url)) }
                nav aria-label="Parts" { ul {
                    @for (path, word, picture, right, key) in PARTS {
                        @if self.may(*right) {
                            li { a href=(self.to(path)) data-key=(key) aria-current=[(*path == part).then_some("page")] { (icon(picture)) span { (word) } } }
                        }
                    }
                } }
                div.self {
                    (self.themes())
                    @if self.is_at_portal() { p.who { b { (short(&self.name)) } @if !self.may(Right::Act) { br; span.dim { "only to look" } } } }
                    @else { p.who {
                        span.dim { "Signed in as " } b { (self.role.map_or("nobody", |role| role.as_str()).replace('_', " ")) }
                        @if self.api.is_open() && !self.api.has_session() { br; span.dim { "open on this machine" } }
                        @else { br; span.dim { (super::parts::brief(&self.name)) } }
                    } }
                    @if self.api.has_session() {
                        form method="post" action=(self.to("/sign-out")) { (hidden(self, "")) button.quiet type="submit" { (icon("out")) "Sign out" } }
                    }
                }
            }
        }
    }

    fn search(&self, live: Option<&Live>) -> Markup {
        html! {
            search.find {
                form method="get" action=(self.to("/find")) {
                    label.unseen for="q" { "Find by any id" }
                    (icon("search"))
                    input #q type="search" name="q" maxlength="200" placeholder=(if self.is_customer() { "Event, delivery or endpoint id" } else { "Event, delivery, endpoint or account id" }) autocomplete="off" spellcheck="false" autocapitalize="off";
                    kbd.scripted aria-hidden="true" { "/" }
                    button type="submit" { "Find" }
                }
                @if let Some(live) = live {
                    @let path = self.to(&format!("/live?{}", live.query));
                    p.live.scripted #live data-live=(path) data-swaps=(live.swaps.to_string()) data-only=(live.only) data-state="connecting" { span.lamp {} span { "connecting" } }
                    a.news #news href=(self.here) hidden { "" }
                }
            }
        }
    }

    /// Whose pages they are, for whoever looks.
    fn product(&self) -> &str {
        if self.is_at_portal() { self.api.look().name() } else { "Hooklog" }
    }

    /// The name of a page where nobody has signed in yet.
    pub(super) fn brand(&self) -> Markup {
        html! { p.brand { (icon("brand")) span { (self.product()) } } }
    }

    /// The address of a file of ours.
    fn file(&self, name: &str) -> String {
        self.to(&assets::address(name))
    }

    /// What there is to say of the server itself. On every page, and made anew with what is.
    fn notices(&self) -> Markup {
        let Some(Notices { trouble, rebuilding, late, in_flight }) = &self.notices else {
            return html! {};
        };
        html! {
            @if let Some(trouble) = trouble { p.banner.bad role="alert" { (icon("alert")) span {
                @if trouble == "draining" { b { "The server is stopping." } " What is in flight ends; nothing new is taken in. Nothing is lost." }
                @else if self.is_customer() { b { "Nothing new is taken in at the moment." } " What was taken in is kept." }
                @else { b { "Nothing is taken in: " } (short(trouble)) "." }
            } } }
            @if let Some((upto, of)) = rebuilding { p.banner.wait role="status" { (icon("info")) span {
                b { "The views are rebuilt" }
                @if !self.is_customer() { ": " (count(*upto)) " of " (count(*of)) " entries are folded" }
                ". Pages show what is so meanwhile, and deliveries go on."
            } } }
            @if let Some(late) = late { p.banner.bad role="alert" { (icon("alert")) span {
                b { "Deliveries are late: " } "the oldest by " (span(*late)) ", through this server and not through its receiver."
                @if !self.is_customer() { " Look whether all permits are used up (" (count(*in_flight)) " requests are out), and at the server's log." }
            } } }
        }
    }

    /// The choice of a theme; each is a button, so that it works as a form.
    pub(super) fn themes(&self) -> Markup {
        html! {
            form.themes method="post" action=(self.to("/theme")) {
                (hidden(self, ""))
                input type="hidden" name="next" value=(self.here);
                fieldset { legend.unseen { "Theme" }
                    @for theme in Theme::ALL {
                        button type="submit" name="theme" value=(theme.word()) aria-pressed=((theme == self.theme).to_string()) title={ "Theme: " (theme.word()) } {
                            (icon(theme.word())) span.unseen { (theme.word()) }
                        }
                    }
                }
            }
        }
    }
}

fn scheme(theme: Theme) -> &'static str {
    match theme {
        Theme::System => "light dark",
        Theme::Light => "light",
        Theme::Dark => "dark",
    }
}

/// What is made anew when the page hears of something.
pub(super) fn fresh(viewer: &Viewer, body: Markup) -> Markup {
    html! {
        div.fresh #fresh hx-get=(viewer.here) hx-trigger="fresh" hx-select="#fresh" hx-swap="outerHTML" hx-nonce=(viewer.nonce) { (viewer.notices()) (body) }
    }
}

/// What the keys do. A dialog where scripts run; without, no key does anything.
fn keys() -> Markup {
    let keys = [
        ("/", "Search"),
        ("g o", "Overview"),
        ("g e", "Events"),
        ("g l", "Deliveries"),
        ("g d", "Dead letters"),
        ("g r", "Replays"),
        ("g n", "Endpoints"),
        ("j, k", "Next, previous row"),
        ("Enter", "Open the row"),
        ("y", "Copy the page's id"),
        ("t", "Next theme"),
        ("?", "This help"),
    ];
    html! {
        dialog #keys aria-labelledby="keys-title" {
            h2 #keys-title { "Keys" }
            dl.keys { @for (key, does) in keys { div { dt { kbd { (key) } } dd { (does) } } } }
            form method="dialog" {
                label { input #keys-on type="checkbox" checked; " Keys are on" }
                button type="submit" { "Close" }
            }
        }
    }
}

/// A heading with what belongs beside it.
pub(super) fn heading(title: Markup, aside: Markup) -> Markup {
    html! { div.heading { h1 { (title) } div.aside { (aside) } } }
}

/// Every icon once; pages use them by name. Drawn for this.
fn sprite() -> Markup {
    const ICONS: &[(&str, &str)] = &[
        ("brand", "M5 3v14m0-8c6 0 10 1 10 5.5V17M15 3v3"),
        ("home", "M3 16.5h14M5 16V9.5m5 6.5V4m5 12v-4.5"),
        ("events", "M4 5h12M4 10h12M4 15h8"),
        ("deliveries", "M3 10h11m-4-4 4 4-4 4M17 4v12"),
        ("dead", "M4 6h12l-1 10.5H5L6 6m2-2.5h4M8 10l4 4m0-4-4 4"),
        ("endpoints", "M10 3.5v5m0 3v5M3.5 10h13M6 6.5l8 7m0-7-8 7"),
        ("accounts", "M10 9.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM4 16.5c.6-3 3-4.5 6-4.5s5.4 1.5 6 4.5"),
        ("replays", "M4.5 10a5.5 5.5 0 1 0 1.8-4.100M6 2.800v3.400h3.4"),
        ("audit", "M5 3.500h10v13H5zM8 7.500h4m-4 3h4m-4 3h2"),
        ("server", "M3.5 5h13v4h-13zm0 6h13v4h-13zM6 7h.1M6 13h.1"),
        ("search", "M9 14A5 5 0 1 0 9 4a5 5 0 0 0 0 10Zm3.6-1.400L17 17"),
        ("check", "m4.5 10.5 3.5 3.5 7.5-8"),
        ("cross", "m5.5 5.5 9 9m0-9-9 9"),
        ("clock", "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14Zm0-11v4.200l2.8 1.8"),
        ("hold", "M7 5v10m6-10v10"),
        ("fly", "M3 10.5 17 4l-4 13-3.5-5.500zm6.5 1L17 4"),
        ("stop", "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM5.2 5.200l9.6 9.6"),
        ("alert", "M10 3.5 17.5 16.500h-15zM10 8v4m0 2.200v.1"),
        ("info", "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14Zm0-8v4.500m0-7v.1"),
        ("filter", "M3 5h14l-5.5 6v5l-3-1.500V11z"),
        ("copy", "M7 7h9v9H7zM4 13V4h9"),
        ("down", "M10 3.500v9m-4-3.5 4 4 4-4M4 16.500h12"),
        ("out", "M8 4H4.500v12H8m3-3 3.5-3L11 7m3.5 3H8"),
        (
            "gear",
            "M10 12.500a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM10 3v2m0 10v2M3 10h2m10 0h2M5 5l1.5 1.500m7 7L15 15m0-10-1.5 1.500m-7 7L5 15",
        ),
        ("mail", "M3 5h14v10H3zm0 .5 7 5.5 7-5.5"),
        ("system", "M3 4.500h14v9H3zm4 12h6m-3-3v3"),
        (
            "light",
            "M10 13a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM10 2.500v1.700m0 11.600v1.700M2.5 10h1.700m11.6 0h1.700M4.7 4.700l1.2 1.200m8.2 8.2 1.2 1.200m0-10.6-1.2 1.200m-8.2 8.2-1.2 1.2",
        ),
        ("dark", "M16.5 12A7 7 0 0 1 8 3.500a7 7 0 1 0 8.5 8.500Z"),
    ];
    html! {
        svg.sprite aria-hidden="true" width="0" height="0" {
            @for (name, path) in ICONS {
                symbol id={ "i-" (name) } viewBox="0 0 20 20" { path d=(path) {} }
            }
        }
    }
}
