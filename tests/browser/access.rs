//! Who can use the pages: axe finds nothing on any screen, light or dark; everything is reached with the keyboard;
//! nothing is wider than a phone.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::chromium::{Browser, Scripts, TAB};
use crate::stage::Stage;

const AXE: &str = include_str!("../support/axe/axe.min.js");

#[test]
fn axe_is_as_it_was_published() {
    let sum: String = Sha256::digest(AXE).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(include_str!("../support/axe/SHA256SUMS"), format!("{sum}  axe.min.js\n"));
}

/// What axe looks at.
#[derive(Clone, Copy, PartialEq)]
pub enum Look {
    /// Everything: WCAG 2.2 AA and what is good practice besides.
    All,
    /// All but contrasts, which take most of the time and are the same with scripts and without.
    Structure,
}

/// What axe found wrong with the page, each with the element; it must have found much in order, too.
pub async fn found(browser: &Browser, look: Look) -> Vec<String> {
    let script = "const done = arguments[1];
        const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
        const all = { runOnly: tags, resultTypes: ['violations'] };
        const look = { All: all, Structure: { ...all, rules: { 'color-contrast': { enabled: false } } } }[arguments[0]];
        axe.run(document, look)
            .then((r) => done({ passes: r.passes.length, found: r.violations.flatMap((v) =>
                v.nodes.map((n) => `${v.id}: ${n.target} ${n.html.slice(0, 160)} ${n.failureSummary}`)) }))
            .catch((e) => done({ failed: String(e) }))";
    if browser.eval("return typeof axe", json!([])).await == "undefined" {
        browser.eval(&format!("{AXE}; window.axe = axe"), json!([])).await;
    }
    let name = match look {
        Look::All => "All",
        Look::Structure => "Structure",
    };
    let told = browser.eval_later(script, json!([name])).await;
    let found: Vec<String> =
        serde_json::from_value(told["found"].clone()).unwrap_or_else(|_| panic!("{told}"));
    assert!(told["passes"].as_u64() >= Some(10) || !found.is_empty(), "axe did not run: {told}");
    found
}

/// Else nothing that is found would mean anything.
#[tokio::test(flavor = "multi_thread")]
async fn axe_finds_what_is_broken() {
    let stage = Stage::new().await;
    let browser = Browser::open(&stage.origin, Scripts::On).await;
    browser.go("/sign-in").await;
    assert_eq!(found(&browser, Look::All).await, [""; 0]);
    let broken = "document.querySelector('label[for=key]').remove();
        document.querySelector('#key').removeAttribute('placeholder');
        document.querySelector('h1').style.color = '#ccc';
        const image = document.createElement('img'); document.querySelector('main').append(image)";
    browser.eval(broken, json!([])).await;
    let found = found(&browser, Look::All).await;
    for rule in ["label: ", "color-contrast: ", "image-alt: "] {
        assert!(found.iter().any(|told| told.starts_with(rule)), "{rule} in {found:?}");
    }
    browser.quit().await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_is_for_everybody_in_light_and_in_dark() {
    let stage = Stage::new().await;
    let told = stage.every_answer().await;
    let screens = stage.screens(&told).await;
    let browser = Browser::open(&stage.origin, Scripts::On).await;
    look_through(&browser, &screens).await;
    browser.was_quiet().await;
    browser.quit().await;
    stage.end().await;
}

/// Each screen: axe finds nothing in either theme, and nothing stands out of it at any width.
pub async fn look_through(browser: &Browser, screens: &[String]) {
    let mut wrong = Vec::new();
    for path in screens {
        browser.go(path).await;
        // What is folded is opened: it is looked at as well.
        browser.eval("for (const d of document.querySelectorAll('details')) d.open = true", json!([])).await;
        for scheme in ["light", "dark"] {
            browser.prefer(scheme).await;
            let found = found(browser, Look::All).await;
            wrong.extend(found.into_iter().map(|told| format!("{path} ({scheme}): {told}")));
        }
        for width in [360, 900, 1280] {
            browser.size(width, 800).await;
            let wide = too_wide(browser).await;
            wrong.extend(wide.into_iter().map(|told| format!("{path} ({width} px): {told}")));
        }
    }
    assert!(wrong.is_empty(), "{} on {} screens:\n{}", wrong.len(), screens.len(), wrong.join("\n"));
}

/// The same without scripts: what only they make is not there, and nothing is missed. Only then may axe run.
#[tokio::test(flavor = "multi_thread")]
async fn every_screen_is_for_everybody_without_scripts() {
    let stage = Stage::new().await;
    let told = stage.every_answer().await;
    let screens = stage.screens(&told).await;
    let browser = Browser::open(&stage.origin, Scripts::On).await;
    look_through_without_scripts(&browser, &screens).await;
    browser.quit().await;
    stage.end().await;
}

pub async fn look_through_without_scripts(browser: &Browser, screens: &[String]) {
    let forbid = async |what: bool| {
        browser.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": what })).await;
    };
    let mut wrong = Vec::new();
    for path in screens {
        forbid(true).await;
        browser.go(path).await;
        let shown =
            "return [...document.querySelectorAll('.scripted')].filter((e) => e.checkVisibility()).length";
        assert_eq!(browser.eval(shown, json!([])).await, 0, "{path}");
        forbid(false).await;
        let found = found(browser, Look::Structure).await;
        wrong.extend(found.into_iter().map(|told| format!("{path}: {told}")));
    }
    assert!(wrong.is_empty(), "{} on {} screens:\n{}", wrong.len(), screens.len(), wrong.join("\n"));
}

/// What stands out of the page to the right; nothing may be scrolled to sideways but within its own frame.
pub async fn too_wide(browser: &Browser) -> Vec<String> {
    let script = "const wide = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth <= wide) return [];
        const framed = (e) => e && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(e).overflowX) || framed(e.parentElement));
        return [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && !framed(e.parentElement)
            && e.getBoundingClientRect().right > wide + 1).slice(0, 4)
            .map((e) => `${e.outerHTML.slice(0, 120)} ${Math.round(e.getBoundingClientRect().right)}`)
            .concat([...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && !framed(e)
                && e.clientWidth && e.scrollWidth > e.clientWidth + 1 && ![...e.children].some((c) => c.scrollWidth > c.clientWidth + 1))
                .slice(0, 4).map((e) => `in ${e.outerHTML.slice(0, 160)} ${e.scrollWidth}`))
            .concat(`${document.documentElement.scrollWidth} px`)";
    serde_json::from_value(browser.eval(script, json!([])).await).expect("texts")
}

/// Whatever can be clicked is reached with the tabulator alone, in a circle, and seen where it is.
#[tokio::test(flavor = "multi_thread")]
async fn everything_is_reached_with_the_keyboard() {
    let stage = Stage::new().await;
    let told = stage.every_answer().await;
    let browser = Browser::open(&stage.origin, Scripts::On).await;
    let paths = [told[0].path.clone(), told[1].path.clone(), "/".into(), "/dead".into(), "/endpoints".into()];
    for path in &paths {
        browser.go(path).await;
        browser.eval("for (const d of document.querySelectorAll('details')) d.open = true", json!([])).await;
        let mark = "let n = 0;
            for (const e of document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex=\"0\"]'))
                if (e.checkVisibility({ visibilityProperty: true }) && !e.disabled && e.type !== 'hidden') e.dataset.reach = n++;
            document.activeElement.blur();
            return n";
        let all = browser.eval(mark, json!([])).await.as_u64().expect("a number");
        assert!(all > 15, "{path}: {all}");
        let look = "const e = document.activeElement, s = getComputedStyle(e);
            return [e.dataset.reach ?? null, s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]";
        let mut reached = std::collections::BTreeSet::new();
        // A field for a moment is several steps.
        for _ in 0..2 * all + 60 {
            browser.keys(&[TAB]).await;
            let [at, seen]: [Value; 2] =
                serde_json::from_value(browser.eval(look, json!([])).await).expect("two");
            if let Some(at) = at.as_str() {
                assert_eq!(seen, true, "{path}: the focus cannot be seen on {}", named(&browser, at).await);
                reached.insert(at.to_owned());
            }
            if reached.len() as u64 == all {
                break;
            }
        }
        for at in 0..all {
            let at = at.to_string();
            assert!(reached.contains(&at), "{path}: {} is not reached", named(&browser, &at).await);
        }
    }
    browser.quit().await;
    stage.end().await;
}

async fn named(browser: &Browser, at: &str) -> String {
    let script = "return document.querySelector(`[data-reach='${arguments[0]}']`).outerHTML.slice(0, 200)";
    browser.eval(script, json!([at])).await.to_string()
}
