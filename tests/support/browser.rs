//! A person at the console: signs in with a key, reads pages, sends their forms. Stands in for: a browser without
//! scripts.
#![allow(dead_code)]

use axum::body::Body;
use axum::http::Request;
use url::form_urlencoded;

use crate::keyed::{Reply, Session, World};

/// Where the console is.
pub const ORIGIN: &str = "https://hooks.example.com";

/// What a page said.
#[derive(Debug)]
pub struct Seen {
    pub status: u16,
    pub html: String,
    pub reply: Reply,
}

impl Seen {
    fn of(reply: Reply) -> Seen {
        let html = String::from_utf8(reply.body.to_vec()).expect("UTF-8");
        Seen { status: reply.status, html, reply }
    }

    /// A header field.
    pub fn header(&self, name: &str) -> &str {
        self.reply.headers.get(name).map_or("", |value| value.to_str().expect("ASCII"))
    }

    /// The words of the page, without its marks, one blank between them.
    pub fn words(&self) -> String {
        let body = self.html.split_once("<main").map_or(self.html.as_str(), |(_, main)| main);
        let body = body.split_once('>').map_or(body, |(_, rest)| rest);
        let body = body.split_once("</main>").map_or(body, |(main, _)| main);
        let mut out = String::new();
        for part in body.split('<') {
            let (tag, text) = part.split_once('>').unwrap_or(("", part));
            let inline = [
                "b", "/b", "span", "/span", "code", "/code", "time", "/time", "strong", "/strong", "a", "/a",
            ];
            let name = tag.split([' ', '.']).next().unwrap_or_default();
            if !inline.contains(&name) {
                out.push(' ');
            }
            out.push_str(text);
        }
        let out = out.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
        out.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The token of the page's forms.
    pub fn csrf(&self) -> String {
        let (_, rest) = self.html.split_once("name=\"csrf\" value=\"").expect("a form");
        rest.split_once('"').expect("an end").0.to_owned()
    }
}

/// Reads a page; `cookie` may be empty.
pub async fn read(world: &World, cookie: &str, path: &str) -> Seen {
    let request = Request::get(path).header("host", "hooks.example.com").header("accept", "text/html");
    let request = request.header("cookie", format!("a=b; {cookie}"));
    Seen::of(World::send(&world.app, request.body(Body::empty()).expect("a request")).await)
}

/// Sends a form as a page of ours does.
pub async fn submit(world: &World, cookie: &str, path: &str, fields: &[(&str, &str)]) -> Seen {
    post(world, cookie, path, &[("origin", ORIGIN)], fields).await
}

/// Sends a form with header fields.
pub async fn post(
    world: &World,
    cookie: &str,
    path: &str,
    headers: &[(&str, &str)],
    fields: &[(&str, &str)],
) -> Seen {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let mut request = Request::post(path).header("host", "hooks.example.com").header("cookie", cookie);
    request = request.header("content-type", "application/x-www-form-urlencoded");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Seen::of(World::send(&world.app, request.body(Body::from(body)).expect("a request")).await)
}

/// Signs in with a key: what the browser keeps.
pub async fn sign_in(world: &World, key: &str) -> Session {
    let seen = submit(world, "", "/sign-in", &[("key", key)]).await;
    assert_eq!(seen.status, 303, "{seen:?}");
    let cookie = seen.header("set-cookie").split_once(';').expect("rules").0.to_owned();
    let csrf = read(world, &cookie, "/").await.csrf();
    Session { cookie, csrf }
}
