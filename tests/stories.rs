//! Stories: a text in, the log that it makes out, as a picture. Each file of `fixtures/stories` is one; the
//! pictures lie in `tests/snapshots`.
//!
//! The language, a line each: `account [schedule NAME] [retries off|default]`; `endpoint NAME TYPE answers A…
//! [policy NAME] [rate N] [cap N] [disable-after SPAN]`, where an answer is a status, `429/SECONDS` (with
//! Retry-After), `timeout`, `refused` or `hang`, and the last goes on; `event ID TYPE [to NAME] [in SPAN]
//! [until SPAN] [tries N]`; `wait SPAN`; `pause`, `resume NAME`; `replay`, `retry-now`, `cancel ID`; `crash`;
//! `server retries-percent N`, which takes a restart.

mod support;

use support::stage::Stage;

#[test]
fn stories() {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::glob!("../fixtures/stories", "*.story", |path| {
            let story = std::fs::read_to_string(path).expect("a story can be read");
            insta::assert_snapshot!(Stage::play(&story));
        });
    });
}
