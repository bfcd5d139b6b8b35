//! A person at the console or the portal: signs in, reads pages, presses their buttons. Stands in for: a browser without
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

/// A form of a page, as a browser would send it.
#[derive(Clone, Debug)]
pub struct Form {
    pub action: String,
    pub fields: Vec<(String, String)>,
}

impl Form {
    /// The same with a field filled in.
    pub fn with(mut self, name: &str, value: &str) -> Form {
        self.fields.retain(|(known, _)| known != name);
        self.fields.push((name.into(), value.into()));
        self
    }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    let value = rest.split_once('"')?.0;
    Some(value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"))
}

impl Seen {
    /// The forms that are sent, not asked with, in their order.
    pub fn forms(&self) -> Vec<Form> {
        let parts = self.html.split("<form").skip(1);
        let posts = parts.filter_map(|part| {
            let form = part.split_once("</form>").expect("an end").0;
            let (head, rest) = form.split_once('>').expect("a tag");
            (attribute(head, "method").as_deref() == Some("post")).then_some((head, rest))
        });
        posts
            .map(|(head, rest)| {
                let inputs =
                    rest.split("<input").skip(1).map(|input| input.split_once('>').expect("a tag").0);
                let sent = inputs.filter(|input| !input.contains("type=\"checkbox\""));
                let fields = sent.filter_map(|input| {
                    Some((attribute(input, "name")?, attribute(input, "value").unwrap_or_default()))
                });
                Form { action: attribute(head, "action").expect("an address"), fields: fields.collect() }
            })
            .collect()
    }

    /// The form that does something.
    #[track_caller]
    pub fn form(&self, what: &str) -> Form {
        let does = |form: &Form| form.fields.contains(&("do".to_owned(), what.to_owned()));
        self.forms().into_iter().find(does).unwrap_or_else(|| panic!("no form does {what}: {}", self.words()))
    }
}

/// Presses a form's button.
pub async fn press(world: &World, cookie: &str, form: &Form) -> Seen {
    let fields: Vec<_> = form.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    submit(world, cookie, &form.action, &fields).await
}

/// Opens a link of an account's to the portal.
pub async fn enter(world: &World, account: &str, role: &str) -> Session {
    let link = world.link(account, role).await;
    let form = read(world, "", "/portal").await;
    let seen = submit(world, "", "/portal", &[("csrf", &form.csrf()), ("link", &link)]).await;
    assert_eq!((seen.status, seen.header("location")), (303, "/portal/"), "{seen:?}");
    let cookie = seen.header("set-cookie").split_once(';').expect("rules").0.to_owned();
    let csrf = read(world, &cookie, "/portal/").await.csrf();
    Session { cookie, csrf }
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
