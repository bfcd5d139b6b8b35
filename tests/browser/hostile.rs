//! What attackers write, in every place that a page shows: it is seen as they wrote it, and never obeyed. No script
//! of theirs runs, no policy is broken, nobody but the site is asked for anything.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::http::Method;
use serde_json::{Value, json};

use crate::access;
use crate::chromium::{Browser, Scripts};
use crate::stage::Stage;
use crate::support::case::{deliveries, text};
use crate::support::receiver::{Receiver, Step};

/// Markup, ways out of an attribute, schemes, templates, directions, controls, formulas.
pub const HOSTILE: [&str; 12] = [
    "<script>window.__pwn=1</script>",
    "<img src=http://evil.example/x onerror=window.__pwn=1>",
    "\"><svg onload=window.__pwn=1>",
    "' onmouseover='window.__pwn=1' autofocus onfocus='window.__pwn=1",
    "javascript:window.__pwn=1",
    "{{7*7}} ${7*7}",
    "</pre></code><script>window.__pwn=1</script>",
    "<a href=\"https://evil.example/\" hx-get=\"https://evil.example/\" hx-trigger=load>x</a>",
    "</title></textarea></template><iframe srcdoc=\"<script>parent.__pwn=1</script>\">",
    "\u{202e}gpj.exe\u{2066}",
    "\u{1b}]0;x\u{7}",
    "=HYPERLINK(\"http://evil.example\")",
];

/// A head's value may hold these.
fn in_head() -> String {
    HOSTILE[..9].join(" ")
}

fn answer() -> Vec<Step> {
    let body = format!("{}{}", HOSTILE.join(" "), "<".repeat(16 << 10));
    let body = [body.as_bytes(), b"\xff\xfe\x00\xc0\xaf"].concat();
    let head = format!(
        "HTTP/1.1 500 {0}\r\ncontent-type: text/html\r\nlocation: //evil.example/{0}\r\nserver: {0}\r\n\
         refresh: 0;url=http://evil.example/\r\nlink: <http://evil.example/x.css>; rel=stylesheet\r\n\
         content-length: {1}\r\n\r\n",
        in_head(),
        body.len()
    );
    vec![Step::Bytes([head.as_bytes(), &body].concat())]
}

/// A stage where whatever can be named, sent or answered is hostile; every page that shows it.
async fn hostile() -> (Stage, Vec<String>, String) {
    let receiver = Receiver::answering(|_| answer()).await;
    let stage = Stage::before(receiver, Arc::new(AtomicBool::new(false))).await;
    let (all, plain) = (HOSTILE.join(" "), in_head());
    // Names are held to some length each.
    let account =
        stage.world.account_of(json!({ "name": plain.chars().take(190).collect::<String>() })).await;
    for name in HOSTILE.iter().filter(|name| !name.chars().any(char::is_control)) {
        let made = stage.world.post("/v1/accounts", json!({ "name": name })).await;
        assert!(made.status.is_success() || made.status.as_u16() == 422, "{name}: {}", made.status);
    }
    let url = format!(
        "http://hooks.acme.example.com:{}/%22%3E%3Csvg%20onload=window.__pwn=1%3E/'onfocus='window.__pwn=1?q=\
         %3Cscript%3Ewindow.__pwn=1%3C/script%3E&x=javascript:window.__pwn=1",
        stage.port
    );
    let members = json!({ "description": plain, "headers": { "x-own": plain } });
    let endpoint = stage.world.endpoint_of(&account, &url, members).await;
    let mut pages = Vec::new();
    let mut kinds = vec!["pwn.all".to_owned()];
    kinds.extend(HOSTILE.map(str::to_owned));
    for (n, kind) in kinds.iter().enumerate() {
        // A type that is not taken is refused; what is taken is shown.
        let event = json!({ "account_id": account, "type": kind, "id": format!("evt_{n}"), "max_tries": 1,
            "data": { "texts": HOSTILE, "all": all, "more": "<".repeat(16 << 10) } });
        let taken = stage.world.post("/v1/events", event).await;
        if taken.status.is_success() {
            let taken = taken.ok(202);
            let [delivery] = deliveries(&taken).try_into().expect("one delivery");
            stage.world.until(&delivery, "dead").await;
            pages.push(format!("/events/{}?account_id={account}", text(&taken["id"])));
            pages.push(format!("/deliveries/{delivery}?account_id={account}"));
        } else {
            assert!(n > 0 && matches!(taken.status.as_u16(), 400 | 422), "{kind}: {}", taken.status);
        }
    }
    let off = json!({ "signature_schemes": ["ledger"] });
    stage.world.patch(&format!("/v1/endpoints/{endpoint}"), off).await.ok(200);
    let raw = format!("/v1/events/raw?account_id={account}&type=pwn.raw&id=evt_raw");
    let bytes = [all.as_bytes(), b"\xff\xfe\x00\xed\xa0\x80"].concat();
    let raw =
        stage.world.call(Method::POST, &raw, "text/html;\"><script>window.__pwn=1</script>", bytes).await;
    assert!(raw.status.is_success(), "{}", raw.status);
    pages.push(format!("/events/evt_raw?account_id={account}"));
    let wish = json!({ "account_id": account, "filter": { "status": "dead" }, "reason": plain });
    let replay = text(&stage.world.post("/v1/replays", wish).await.ok(202)["id"]);
    pages.push(format!("/replays/{replay}?account_id={account}"));
    stage.does(&format!("/v1/endpoints/{endpoint}/pause"), json!({ "reason": plain })).await;
    let script = "%22%3E%3Cscript%3Ewindow.__pwn%3D1%3C%2Fscript%3E";
    pages.extend([
        "/".to_owned(),
        "/deliveries".into(),
        format!("/deliveries?event_type={script}"),
        format!("/deliveries?status={script}"),
        format!("/deliveries?{script}={script}"),
        format!("/events?account_id={account}"),
        "/dead".into(),
        "/endpoints".into(),
        format!("/endpoints/{endpoint}?account_id={account}"),
        "/accounts".into(),
        format!("/accounts/{account}"),
        "/replays".into(),
        format!("/replays/new?account_id={account}&status=dead&event_type={script}"),
        "/audit".into(),
        "/system".into(),
        format!("/find?q={script}"),
        format!("/nowhere/{script}"),
        format!("/sign-in?next={script}"),
    ]);
    (stage, pages, account)
}

/// The same page in the portal, if it is there; who looks says whose it is.
fn in_portal(path: &str) -> Option<String> {
    let ours = ["/accounts", "/audit", "/system", "/sign-in", "/nowhere"];
    let path = path.replace("?account_id=", "?of=");
    let path = path.split_once("?of=").map_or(path.clone(), |(page, rest)| match rest.split_once('&') {
        Some((_, rest)) => format!("{page}?{rest}"),
        None => page.to_owned(),
    });
    (!ours.iter().any(|ours| path.starts_with(ours))).then(|| format!("/portal{path}"))
}

/// Nothing of theirs ran, nor stands there as markup.
async fn is_tame(browser: &Browser, path: &str) {
    let script = "const bad = [...document.querySelectorAll('*')].flatMap((e) => [...e.attributes]
            .filter((a) => a.name.startsWith('on') || /^\\s*javascript:/i.test(a.value)
                || (['href', 'src', 'action', 'formaction', 'hx-get'].includes(a.name) && /evil/.test(new URL(a.value, location).host)))
            .map((a) => `${e.tagName} ${a.name}=${a.value}`));
        const strange = document.querySelectorAll('script:not([nonce]), iframe, object, embed, img, base, meta[http-equiv], main script').length;
        return [bad, strange, typeof window.__pwn, document.title]";
    let told = browser.eval(script, json!([])).await;
    assert_eq!(told[0], json!([]), "{path}");
    assert_eq!((&told[1], &told[2]), (&json!(0), &json!("undefined")), "{path}");
    let source = browser.eval("return document.documentElement.outerHTML", json!([])).await;
    let source = source.as_str().expect("a text");
    for unseen in ['\u{202e}', '\u{2066}', '\u{1b}', '\u{7}', '\0'] {
        assert!(!source.contains(unseen), "{path}: {unseen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_strangers_write_is_seen_and_never_obeyed() {
    let (stage, pages, account) = hostile().await;
    let browser = Browser::open(&stage.origin, Scripts::On).await;
    let mut wrong = Vec::new();
    for path in &pages {
        browser.go(path).await;
        // Where they hide: in what is folded, under the mouse, in what has the focus.
        browser.eval("for (const d of document.querySelectorAll('details')) d.open = true", json!([])).await;
        browser.point(640, 300).await;
        is_tame(&browser, path).await;
        wrong.extend(
            access::found(&browser, access::Look::Structure)
                .await
                .into_iter()
                .map(|told| format!("{path}: {told}")),
        );
        browser.size(360, 740).await;
        wrong.extend(
            access::too_wide(&browser).await.into_iter().map(|told| format!("{path} (360 px): {told}")),
        );
        browser.size(1280, 800).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // It is there to be read, every sort of it.
    browser.go(&format!("/events/evt_0?account_id={account}")).await;
    browser.eval("for (const d of document.querySelectorAll('details')) d.open = true", json!([])).await;
    let words = browser.words().await;
    for part in [
        "<script>window.__pwn=1</script>",
        "<img src=http://evil.example/x",
        "{{7*7}} ${7*7}",
        "U+202E",
        "␛",
        "<<<<<<<<",
    ] {
        assert!(words.contains(part), "{part} is not to be read");
    }
    browser.go(&format!("/events/evt_raw?account_id={account}")).await;
    assert!(browser.words().await.contains("\\xff\\xfe"), "bytes that are no text are shown as such");
    // The same in the portal, which shows an account its own.
    stage.enter(&browser, &account, "account").await;
    for path in pages.iter().filter_map(|path| in_portal(path)) {
        browser.go(&path).await;
        browser.eval("for (const d of document.querySelectorAll('details')) d.open = true", json!([])).await;
        is_tame(&browser, &path).await;
    }
    browser.was_quiet().await;
    browser.quit().await;

    // Nor in a list that is saved as a file: no cell is a formula.
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let file = client.get(format!("{}/deliveries?format=csv", stage.origin)).send().await.expect("an answer");
    assert_eq!(file.headers()["content-security-policy"], "sandbox");
    let file = file.text().await.expect("UTF-8");
    assert!(file.lines().count() > 1);
    for cell in file.lines().flat_map(|line| line.split(',')) {
        assert!(!cell.trim_start_matches('"').starts_with(['=', '+', '-', '@', '\t', '\r']), "{cell}");
    }

    let browser = Browser::open(&stage.origin, Scripts::Off).await;
    for path in &pages {
        browser.go(path).await;
        is_tame(&browser, path).await;
    }
    browser.was_quiet().await;
    browser.quit().await;
    stage.end().await;
}

/// A live page is made anew out of what came meanwhile; that is no way in either.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_a_page_is_open_is_not_obeyed_either() {
    let (stage, _, account) = hostile().await;
    let browser = Browser::open(&stage.origin, Scripts::On).await;
    browser.go("/").await;
    let before = browser.text("#fresh").await;
    let event = json!({ "account_id": account, "type": "pwn.live", "data": HOSTILE, "max_tries": 1 });
    stage.world.post("/v1/events", event).await.ok(202);
    browser.says("pwn.live").await;
    assert!(!before.contains("pwn.live"));
    is_tame(&browser, "/").await;
    browser.was_quiet().await;
    browser.quit().await;
    stage.end().await;
}

/// Else silence would mean nothing: what our policy forbids is heard of, and so is a request that it stops.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_policy_is_heard_of() {
    let stage = Stage::new().await;
    let browser = Browser::open(&stage.origin, Scripts::On).await;
    browser.go("/sign-in").await;
    browser.was_quiet().await;
    let script =
        "const image = new Image(); image.src = 'http://evil.example/x.png'; document.body.append(image);
        const form = document.createElement('p'); try { form.innerHTML = '<b>x</b>' } catch {}
        const late = document.createElement('script'); try { late.text = 'window.__pwn=1' } catch {}";
    browser.eval(script, json!([])).await;
    let complaints = browser.complaints().await.join("\n");
    for part in ["evil.example", "Content Security Policy", "TrustedHTML", "TrustedScript"] {
        assert!(complaints.contains(part), "{part} in {complaints}");
    }
    let asked = browser.asked().await;
    assert!(asked.iter().any(|url| url == "http://evil.example/x.png"), "{asked:?}");
    assert_eq!(browser.eval("return typeof window.__pwn", json!([])).await, Value::from("undefined"));
    browser.quit().await;
    stage.end().await;
}
