//! Rows as requests of the API, and its answers as a verdict on each row.
//!
//! A row that is refused is refused by itself: a request that fails as a whole is halved until it is one row's
//! fault. What is nobody's fault (no answer, a wrong key, a server that stops) leaves the rows where they are. Never
//! knows the database.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Intake;
use super::rows::{DATA_BYTES_MAX, Row, SetAside};

/// Bytes of data of one request; the API takes twice that with what is around it.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Characters of a reason that is kept.
const REASON_CHARS_MAX: usize = 2_000;

/// What became of rows that were handed over. What is in none of the lists was not asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Handed {
    /// Durable: ids of rows.
    pub taken: Vec<String>,
    /// Never will be.
    pub refused: Vec<SetAside>,
    /// Accounts of which no more is taken for now.
    pub full: Vec<String>,
    /// Rows that broke something in the server.
    pub broke: Vec<String>,
    /// Why no more was asked.
    pub trouble: Option<String>,
}

#[derive(Serialize)]
struct Event<'a> {
    account_id: &'a str,
    id: &'a str,
    r#type: &'a str,
    data: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tries: Option<i32>,
}

#[derive(Serialize)]
struct Batch<'a> {
    events: &'a [Event<'a>],
}

/// What came of one event, as far as it matters here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    status: u16,
    code: String,
    detail: String,
    errors: Vec<At>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct At {
    pointer: String,
    detail: String,
}

#[derive(Deserialize)]
struct Answers {
    results: Vec<Answer>,
}

/// Hands rows over, whose data is all there.
pub(super) async fn hand_over(intake: &dyn Intake, rows: &[Row]) -> Handed {
    let mut handed = Handed::default();
    let mut data = Vec::with_capacity(rows.len());
    let mut whole = Vec::with_capacity(rows.len());
    for row in rows {
        match row.data.as_deref().map(serde_json::from_str::<&RawValue>) {
            Some(Ok(value)) => {
                whole.push(row);
                data.push(value);
            }
            Some(Err(error)) => handed.refused.push((row.id.clone(), format!("data: {error}"))),
            None => {
                let bytes = row.data_bytes;
                let why =
                    format!("data: it has {bytes} bytes, and no more than {DATA_BYTES_MAX} are handed over");
                handed.refused.push((row.id.clone(), why));
            }
        }
    }
    let events: Vec<Event<'_>> = whole.iter().zip(&data).map(|(row, data)| event(row, data)).collect();
    // Requests yet to make, the next one last.
    let mut parts = parts(&events);
    parts.reverse();
    while let Some((from, upto)) = parts.pop() {
        let (rows, events) = (&whole[from..upto], &events[from..upto]);
        let answer = post(intake, "/v1/events/batch", &Batch { events }).await;
        match answer {
            Ok((202, body)) => match serde_json::from_slice::<Answers>(&body) {
                Ok(answers) if answers.results.len() == rows.len() => {
                    for (row, answer) in rows.iter().zip(answers.results) {
                        verdict(row, answer, &mut handed);
                    }
                }
                _ => {
                    handed.trouble =
                        Some("the answer is not understood: is the server another version?".into())
                }
            },
            Ok((400 | 413 | 422, _)) if rows.len() > 1 => {
                let middle = from + rows.len() / 2;
                parts.extend([(middle, upto), (from, middle)]);
            }
            // Alone it may be nested deeper than within a batch, and what is said names it.
            Ok((400 | 413 | 422, _)) => match post(intake, "/v1/events", &events[0]).await {
                Ok((status @ (200 | 202 | 400 | 404 | 409 | 410 | 413 | 422), body)) => {
                    let answer: Answer = serde_json::from_slice(&body).unwrap_or_default();
                    verdict(rows[0], Answer { status, ..answer }, &mut handed);
                }
                other => handed.trouble = Some(unanswered(other)),
            },
            other => handed.trouble = Some(unanswered(other)),
        }
        if handed.trouble.is_some() {
            break;
        }
    }
    handed
}

fn event<'a>(row: &'a Row, data: &'a RawValue) -> Event<'a> {
    Event {
        account_id: &row.account,
        id: row.event_id.as_deref().unwrap_or(&row.id),
        r#type: &row.event_type,
        data,
        endpoint_id: row.endpoint.as_deref(),
        deliver_at: row.deliver_at.as_deref(),
        expire_at: row.expire_at.as_deref(),
        max_tries: row.max_tries,
    }
}

/// Ranges of events that fit into one request each; one that is too large for any goes alone.
fn parts(events: &[Event<'_>]) -> Vec<(usize, usize)> {
    let (mut parts, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, event) in events.iter().enumerate() {
        let more = event.data.get().len();
        if at > from && bytes + more > REQUEST_BYTES_MAX {
            parts.push((from, at));
            (from, bytes) = (at, 0);
        }
        bytes += more;
    }
    if from < events.len() {
        parts.push((from, events.len()));
    }
    parts
}

async fn post(
    intake: &dyn Intake,
    path: &'static str,
    body: &impl Serialize,
) -> Result<(u16, Bytes), String> {
    let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    intake.post(path, body.into()).await
}

fn verdict(row: &Row, answer: Answer, handed: &mut Handed) {
    match answer.status {
        200 | 202 => handed.taken.push(row.id.clone()),
        429 => handed.full.push(row.account.clone()),
        500 => handed.broke.push(row.id.clone()),
        400..500 => handed.refused.push((row.id.clone(), reason(&answer))),
        _ => handed.trouble = Some(reason(&answer)),
    }
}

fn unanswered(answer: Result<(u16, Bytes), String>) -> String {
    match answer {
        Err(why) => why,
        Ok((status, body)) => {
            let answer: Answer = serde_json::from_slice(&body).unwrap_or_default();
            let hint = if matches!(status, 401 | 403) {
                ": give the relay a key that may take events in"
            } else {
                ""
            };
            format!("{}{hint}", reason(&Answer { status, ..answer }))
        }
    }
}

/// In one line, without what is of the request and not of the row.
fn reason(answer: &Answer) -> String {
    let mut text = match answer.code.as_str() {
        "" => format!("Hooklog answered {}", answer.status),
        code => format!("{} {code}", answer.status),
    };
    let mut parts: Vec<String> =
        answer.errors.iter().map(|at| format!("{}: {}", member(&at.pointer), at.detail)).collect();
    if parts.is_empty() && !answer.detail.is_empty() {
        parts.push(answer.detail.clone());
    }
    if !parts.is_empty() {
        text.push_str(&format!(": {}", parts.join("; ")));
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(REASON_CHARS_MAX).collect()
}

/// `/events/17/type` → the row's column `type`.
fn member(pointer: &str) -> &str {
    let inner = pointer.strip_prefix("/events/").and_then(|rest| rest.split_once('/'));
    match inner.map_or(pointer.trim_start_matches('/'), |(_, member)| member) {
        "account_id" => "account",
        "id" => "event_id",
        "endpoint_id" => "endpoint",
        member => member,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt;
    use futures::future::BoxFuture;
    use serde_json::{Value, json};

    use super::*;

    /// A Hooklog that answers as told and keeps what it was asked.
    struct Told<F>(F, Mutex<Vec<(&'static str, usize)>>);

    impl<F: Fn(&str, &Value) -> (u16, Value) + Send + Sync> Intake for Told<F> {
        fn post<'a>(
            &'a self,
            path: &'static str,
            body: Bytes,
        ) -> BoxFuture<'a, Result<(u16, Bytes), String>> {
            let asked: Value = serde_json::from_slice(&body).expect("JSON");
            let (status, answer) = (self.0)(path, &asked);
            let events = asked["events"].as_array().map_or(1, Vec::len);
            self.1.lock().expect("no panic").push((path, events));
            let answer =
                if status == 0 { Err("cut off".into()) } else { Ok((status, answer.to_string().into())) };
            std::future::ready(answer).boxed()
        }
    }

    fn row(id: &str, data: &str) -> Row {
        Row {
            id: id.into(),
            account: "acct_1".into(),
            event_type: "a.b".into(),
            data: Some(data.into()),
            data_bytes: data.len() as i32,
            ..Row::default()
        }
    }

    fn each(events: &Value, answer: impl Fn(&Value) -> Value) -> (u16, Value) {
        let results: Vec<Value> = events["events"].as_array().expect("events").iter().map(answer).collect();
        (202, json!({ "results": results }))
    }

    async fn handed(
        rows: &[Row],
        answer: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync,
    ) -> (Handed, Vec<(&'static str, usize)>) {
        let told = Told(answer, Mutex::default());
        let handed = hand_over(&told, rows).await;
        (handed, told.1.into_inner().expect("no panic"))
    }

    #[tokio::test]
    async fn each_row_gets_its_own_verdict() {
        let rows: Vec<Row> = ["t", "d", "r", "f", "b"].map(|id| row(id, "1")).into();
        let (handed, asked) = handed(&rows, |_, events| {
            each(events, |event| match event["id"].as_str().expect("an id") {
                "t" => json!({ "status": 202 }),
                "d" => json!({ "status": 200 }),
                "r" => json!({ "status": 422, "code": "invalid", "detail": "many", "errors": [
                    { "pointer": "/events/2/account_id", "detail": "no id" }, { "pointer": "/events/2/type", "detail": "no\ntype" }
                ] }),
                "f" => json!({ "status": 429 }),
                _ => json!({ "status": 500 }),
            })
        })
        .await;
        assert_eq!(asked, [("/v1/events/batch", 5)]);
        assert_eq!(handed.taken, ["t", "d"]);
        assert_eq!(handed.refused, [("r".into(), "422 invalid: account: no id; type: no type".into())]);
        assert_eq!(
            (handed.full, handed.broke, handed.trouble),
            (vec!["acct_1".into()], vec!["b".into()], None)
        );
    }

    /// A request that fails as a whole is halved down to the row that fails it.
    #[tokio::test]
    async fn one_bad_row_harms_no_other() {
        let rows: Vec<Row> = (0..8).map(|n| row(&n.to_string(), if n == 5 { "[]" } else { "1" })).collect();
        let (handed, asked) = handed(&rows, |path, body| match path {
            "/v1/events" => (400, json!({ "code": "nested-too-deep", "detail": "too deep" })),
            _ if body["events"]
                .as_array()
                .expect("events")
                .iter()
                .any(|event| event["data"] == json!([])) =>
            {
                (400, json!({}))
            }
            _ => each(body, |_| json!({ "status": 202 })),
        })
        .await;
        assert_eq!(handed.taken, ["0", "1", "2", "3", "4", "6", "7"]);
        assert_eq!(handed.refused, [("5".into(), "400 nested-too-deep: too deep".into())]);
        assert_eq!(asked.iter().map(|(_, events)| *events).collect::<Vec<_>>(), [8, 4, 4, 2, 1, 1, 1, 2]);
    }

    /// What is nobody's fault leaves the rows alone, and those before it stay taken.
    #[tokio::test]
    async fn trouble_is_no_verdict() {
        let large = format!("\"{}\"", "x".repeat(REQUEST_BYTES_MAX - 10));
        let rows = [row("1", &large), row("2", &large), row("3", &large)];
        let (handed, asked) = handed(&rows, |_, events| match events["events"][0]["id"].as_str() {
            Some("1") => each(events, |_| json!({ "status": 202 })),
            _ => (401, json!({ "code": "unauthorized", "detail": "no key" })),
        })
        .await;
        assert_eq!(asked.len(), 2, "nothing is asked after it");
        assert_eq!(handed.taken, ["1"]);
        assert!(handed.refused.is_empty());
        let why = handed.trouble.expect("trouble");
        assert_eq!(why, "401 unauthorized: no key: give the relay a key that may take events in");
        for status in [0, 503, 507, 404] {
            let (handed, _) = super::tests::handed(&rows[..1], |_, _| (status, json!({}))).await;
            assert!(handed.trouble.is_some() && handed.refused.is_empty(), "{status}");
        }
        let (handed, _) =
            super::tests::handed(&rows[..1], |_, events| each(events, |_| json!({ "status": 507 }))).await;
        assert!(handed.trouble.is_some() && handed.refused.is_empty());
    }

    #[tokio::test]
    async fn data_goes_out_as_it_stands() {
        let exact = r#"{"b":1.0,"a":[1e2,  "\u00e9"],"b":2}"#;
        let told =
            Told(|_: &str, events: &Value| each(events, |_| json!({ "status": 202 })), Mutex::default());
        let rows = [row("1", exact)];
        let value: &RawValue = serde_json::from_str(exact).expect("JSON");
        let sent = serde_json::to_string(&Batch { events: &[event(&rows[0], value)] }).expect("JSON");
        assert!(sent.contains(exact), "{sent}");
        assert_eq!(hand_over(&told, &rows).await.taken, ["1"]);
        let cut = hand_over(&told, &[row("2", "{"), Row { data: None, ..row("3", "1") }]).await;
        assert_eq!(cut.refused.len(), 2, "{cut:?}");
    }
}
