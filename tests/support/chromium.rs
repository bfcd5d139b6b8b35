//! A real Chromium without a window, driven over WebDriver (W3C) through Debian's chromedriver. Stands in for: a
//! person at a screen, with scripts or without.
//!
//! One browser has an empty profile of its own and reaches loopback only. It keeps what it logged and asked for, so
//! that a test can say that no policy was broken and nobody else was asked. Everything that it started ends with it.
#![allow(dead_code)]

use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::support::receiver::ticking;

/// Far longer than anything here takes, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks: a look costs the browser something.
const PACE: Duration = Duration::from_millis(15);
/// Keys, as WebDriver names them.
pub const TAB: char = '\u{e004}';
pub const ENTER: char = '\u{e007}';

/// Whether pages may run scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scripts {
    On,
    Off,
}

/// A browser on one site.
pub struct Browser {
    client: reqwest::Client,
    /// The session's address at the driver.
    session: String,
    /// Scheme, host and port of the site.
    pub origin: String,
    pub scripts: Scripts,
    logged: Mutex<Vec<Value>>,
    asked: Mutex<Vec<String>>,
    heard: Mutex<u64>,
    _driver: Child,
    // Kept open: the driver may print.
    _stdout: Lines<BufReader<ChildStdout>>,
    folder: TempDir,
}

/// What the driver says when something cannot be done.
#[derive(Debug)]
pub struct Refused {
    /// Its word, such as `no such element`.
    pub error: String,
    pub message: String,
}

impl Browser {
    /// Starts a driver and a browser, 1280 × 800.
    pub async fn open(origin: &str, scripts: Scripts) -> Browser {
        let folder = tempfile::tempdir().expect("a folder");
        let (driver, stdout, port) = start_driver(folder.path()).await;
        // No proxy of the machine, and no limit but the test's own.
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let mut browser = Browser {
            client,
            session: format!("http://127.0.0.1:{port}"),
            origin: origin.to_owned(),
            scripts,
            logged: Mutex::default(),
            asked: Mutex::default(),
            heard: Mutex::default(),
            _driver: driver,
            _stdout: stdout,
            folder,
        };
        let wanted = capabilities(browser.folder.path(), scripts);
        let made = browser.call("POST", "/session", wanted).await.expect("a session");
        let id = made["sessionId"].as_str().expect("its id").to_owned();
        browser.session = format!("{}/session/{id}", browser.session);
        browser.size(1280, 800).await;
        // Whatever a fresh window shows is not ours.
        browser.go_to("about:blank").await;
        browser.collect().await;
        browser.logged.lock().expect("no panic").clear();
        browser.asked.lock().expect("no panic").clear();
        browser
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Result<Value, Refused> {
        let method = method.parse().expect("a method");
        let mut request = self.client.request(method, format!("{}{path}", self.session));
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = tokio::time::timeout(2 * PATIENCE, request.send()).await.expect("the driver answers");
        let told: Value = answer.expect("the driver runs").json().await.expect("JSON");
        let value = &told["value"];
        match value["error"].as_str() {
            Some(error) if value["stacktrace"].is_string() => {
                let message = value["message"].as_str().unwrap_or_default().to_owned();
                Err(Refused { error: error.to_owned(), message })
            }
            _ => Ok(value.clone()),
        }
    }

    async fn get(&self, path: &str) -> Value {
        self.call("GET", path, Value::Null).await.unwrap_or_else(|refused| panic!("{path}: {refused:?}"))
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.call("POST", path, body).await.unwrap_or_else(|refused| panic!("{path}: {refused:?}"))
    }

    /// Ends the browser in order.
    pub async fn quit(self) {
        self.call("DELETE", "", Value::Null).await.expect("it ends");
    }

    /// Opens a page of the site, and waits until it is loaded.
    pub async fn go(&self, path: &str) {
        self.go_to(&format!("{}{path}", self.origin)).await;
    }

    /// Opens an address.
    pub async fn go_to(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await;
    }

    /// The path, query and fragment of the page.
    pub async fn path(&self) -> String {
        let url = self.get("/url").await;
        let url = url.as_str().expect("an address");
        url.strip_prefix(&self.origin).unwrap_or(url).to_owned()
    }

    /// Makes the page so large, in CSS pixels.
    pub async fn size(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// What the person's system prefers: `light` or `dark`.
    pub async fn prefer(&self, scheme: &str) {
        // Without motion: what is looked at next is not half way between two colours.
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// A command of the browser's developer tools.
    pub async fn devtools(&self, command: &str, params: Value) -> Value {
        self.post("/goog/cdp/execute", json!({ "cmd": command, "params": params })).await
    }

    /// What a function's body returns, run beside the page; also where the page may run nothing.
    pub async fn eval(&self, body: &str, args: Value) -> Value {
        self.post("/execute/sync", json!({ "script": body, "args": args })).await
    }

    /// As [`eval`](Self::eval), of a body that calls its last argument with what it found.
    pub async fn eval_later(&self, body: &str, args: Value) -> Value {
        self.post("/execute/async", json!({ "script": body, "args": args })).await
    }

    /// The words of the page that can be seen, one blank between them.
    pub async fn words(&self) -> String {
        self.words_now().await.expect("a page")
    }

    /// `None` while one page makes way for another.
    async fn words_now(&self) -> Option<String> {
        let script = "return (document.querySelector('main') ?? document.body).innerText";
        let text = self.call("POST", "/execute/sync", json!({ "script": script, "args": [] })).await.ok()?;
        text.as_str().map(squeezed)
    }

    /// The words of the first element of this kind.
    pub async fn text(&self, css: &str) -> String {
        let text = self.eval("return document.querySelector(arguments[0])?.innerText", json!([css])).await;
        squeezed(text.as_str().unwrap_or_else(|| panic!("no {css} on the page")))
    }

    /// How many elements of this kind there are.
    pub async fn count(&self, css: &str) -> u64 {
        let n = self.eval("return document.querySelectorAll(arguments[0]).length", json!([css])).await;
        n.as_u64().expect("a number")
    }

    /// Waits until the page says this.
    pub async fn says(&self, words: &str) {
        let mut last: Option<String> = None;
        let wait = async {
            let mut ticks = ticking(PACE).await;
            loop {
                last = self.words_now().await;
                if last.as_ref().is_some_and(|said| said.contains(words)) {
                    return;
                }
                ticks.tick().await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        assert!(waited.is_ok(), "{words:?} is not said at {}: {last:?}", self.path().await);
    }

    /// Clicks the first element of this kind that can be seen.
    pub async fn click(&self, css: &str) {
        self.click_by("css selector", css).await;
    }

    /// Clicks the link, button or summary of these words.
    pub async fn press(&self, words: &str) {
        assert!(!words.contains('\''), "no quotes");
        let path = format!("//*[self::a or self::button or self::summary][normalize-space()='{words}']");
        self.click_by("xpath", &path).await;
    }

    async fn click_by(&self, using: &str, value: &str) {
        eventually(&format!("{value} can be clicked"), PATIENCE, async || {
            let element = self.seen(using, value).await?;
            // The page may have been made anew meanwhile.
            self.call("POST", &format!("/element/{element}/click"), json!({})).await.ok()
        })
        .await;
    }

    /// The first element that can be seen.
    async fn seen(&self, using: &str, value: &str) -> Option<String> {
        let found = self.post("/elements", json!({ "using": using, "value": value })).await;
        for element in found.as_array().expect("a list") {
            let id = element.as_object()?.values().next()?.as_str()?;
            let shown = self.call("GET", &format!("/element/{id}/displayed"), Value::Null).await.ok()?;
            if shown == true {
                return Some(id.to_owned());
            }
        }
        None
    }

    /// Writes into a field, in place of what stands there.
    pub async fn fill(&self, css: &str, text: &str) {
        let element =
            eventually(&format!("{css} is there"), PATIENCE, async || self.seen("css selector", css).await)
                .await;
        self.post(&format!("/element/{element}/clear"), json!({})).await;
        self.post(&format!("/element/{element}/value"), json!({ "text": text })).await;
    }

    /// Presses keys one by one, wherever the focus is.
    pub async fn keys(&self, keys: &[char]) {
        let steps: Vec<_> = keys
            .iter()
            .flat_map(|key| ["keyDown", "keyUp"].map(|what| json!({ "type": what, "value": key })))
            .collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": steps });
        self.post("/actions", json!({ "actions": [keyboard] })).await;
    }

    /// Moves the mouse to a place of the window.
    pub async fn point(&self, x: u32, y: u32) {
        let step = json!({ "type": "pointerMove", "duration": 0, "x": x, "y": y });
        let mouse = json!({ "type": "pointer", "id": "mouse", "actions": [step] });
        self.post("/actions", json!({ "actions": [mouse] })).await;
    }

    /// A picture of what is to be seen, PNG.
    pub async fn screen(&self) -> Vec<u8> {
        let text = self.get("/screenshot").await;
        STANDARD.decode(text.as_str().expect("a text")).expect("base64")
    }

    async fn collect(&self) {
        let console = self.post("/se/log", json!({ "type": "browser" })).await;
        self.logged.lock().expect("no panic").extend(console.as_array().expect("a list").iter().cloned());
        let events = self.post("/se/log", json!({ "type": "performance" })).await;
        for event in events.as_array().expect("a list") {
            let event: Value =
                serde_json::from_str(event["message"].as_str().expect("a text")).expect("JSON");
            let event = &event["message"];
            if event["method"] == "Network.requestWillBeSent" {
                let url = event["params"]["request"]["url"].as_str().expect("an address").to_owned();
                self.asked.lock().expect("no panic").push(url);
            }
            if event["method"] == "Network.eventSourceMessageReceived" {
                *self.heard.lock().expect("no panic") += 1;
            }
        }
    }

    /// What the browser complained of so far: broken policies and errors, but for statuses of answers.
    pub async fn complaints(&self) -> Vec<String> {
        self.collect().await;
        let logged = self.logged.lock().expect("no panic");
        let told = logged.iter().filter(|entry| {
            entry["source"] != "network" && matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING"))
        });
        told.map(|entry| entry["message"].to_string()).collect()
    }

    /// Every address that was asked for so far, whether or not it was let through.
    pub async fn asked(&self) -> Vec<String> {
        self.collect().await;
        self.asked.lock().expect("no panic").clone()
    }

    /// How many messages of event streams came in so far.
    pub async fn heard(&self) -> u64 {
        self.collect().await;
        *self.heard.lock().expect("no panic")
    }

    /// Nothing broke a policy, no script failed, and nobody but the site was asked for anything.
    pub async fn was_quiet(&self) {
        let complaints = self.complaints().await;
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
        let asked = self.asked().await;
        let site = format!("{}/", self.origin);
        assert!(asked.iter().any(|url| url.starts_with(&site)), "nothing was asked for at all");
        // The browser draws its own fields with pictures that it holds itself.
        let mut others = asked.iter().filter(|url| !url.starts_with(&site) && !url.starts_with("data:"));
        assert_eq!(others.next(), None);
    }
}

impl Drop for Browser {
    /// A driver that is killed leaves its browser behind. All that it started has our folder in its environment.
    fn drop(&mut self) {
        let folder = self.folder.path().to_string_lossy().into_owned();
        for entry in std::fs::read_dir("/proc").expect("processes").flatten() {
            let Ok(id) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let ours =
                environment.split(|byte| *byte == 0).any(|line| line == format!("HOME={folder}").as_bytes());
            if let (true, Some(id)) = (ours, Pid::from_raw(id)) {
                kill_process(id, Signal::KILL).ok();
            }
        }
    }
}

async fn start_driver(folder: &Path) -> (Child, Lines<BufReader<ChildStdout>>, u16) {
    let mut command = Command::new("chromedriver");
    command.arg("--port=0").env_clear().env("PATH", std::env::var("PATH").expect("a path"));
    command.env("HOME", folder).env("TMPDIR", folder).env("LANG", "C.UTF-8");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut driver = command.spawn().expect("chromedriver is missing: tests/run installs it");
    let mut stdout = BufReader::new(driver.stdout.take().expect("it is piped")).lines();
    let port = tokio::time::timeout(PATIENCE, async {
        while let Some(line) = stdout.next_line().await.expect("its output can be read") {
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                return port.trim_end_matches('.').parse().expect("a port");
            }
        }
        panic!("chromedriver ended");
    });
    let port = port.await.expect("it starts in time");
    (driver, stdout, port)
}

fn capabilities(folder: &Path, scripts: Scripts) -> Value {
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let args = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-extensions",
        "--disable-gpu-rasterization",
        "--hide-scrollbars",
        // Nothing but loopback has a name or is reached.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        &profile,
    ];
    // Nothing is opened at the start.
    let mut prefs = json!({ "session.restore_on_startup": 4, "session.startup_urls": ["about:blank"] });
    if scripts == Scripts::Off {
        prefs["profile.managed_default_content_settings.javascript"] = 2.into();
    }
    json!({ "capabilities": { "alwaysMatch": {
        "browserName": "chrome",
        "goog:chromeOptions": {
            "binary": "/usr/bin/chromium",
            "args": args,
            "prefs": prefs,
            "perfLoggingPrefs": { "enableNetwork": true },
        },
        "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
    } } })
}

/// Asks again and again, not faster than a person sees, until there is an answer.
pub async fn eventually<T>(what: &str, limit: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        let mut ticks = ticking(PACE).await;
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            ticks.tick().await;
        }
    };
    tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}

/// A text with one blank between its words.
pub fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
