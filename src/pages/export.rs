//! A list as a file: all rows that its filters take, as CSV or as lines of JSON, page by page while they are read. A
//! file that breaks off is a download that failed, not a shorter list. Never knows what a list shows.

use std::future::Future;

use axum::body::{Body, Bytes};
use axum::http::Uri;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::stream;
use maud::{Markup, html};
use serde::Serialize;
use tokio::sync::mpsc;

use super::list::Query;
use super::parts::icon;
use super::viewer::Viewer;
use crate::api::ApiState;
use crate::api::csv::{self, Columns};
use crate::api::paging::PageOut;
use crate::api::problem::{Kind, Problem};

/// Rows that are read at a time.
const ROWS: &str = "500";

/// What a file is.
#[derive(Clone, Copy)]
pub(super) enum Format {
    Csv,
    Jsonl,
}

impl Format {
    /// The one that an address asks for, if it asks for a file.
    pub(super) fn of(query: &Query) -> Result<Option<Format>, Problem> {
        match query.get("format") {
            "" => Ok(None),
            "csv" => Ok(Some(Format::Csv)),
            "jsonl" => Ok(Some(Format::Jsonl)),
            _ => Err(Problem::query("format", "csv or jsonl is wanted")),
        }
    }

    fn lines<T: Serialize>(self, rows: &[T], columns: Columns) -> Result<String, Problem> {
        let mut out = String::new();
        for row in rows {
            let row = serde_json::to_value(row).map_err(|error| Problem::internal(&error))?;
            match self {
                Format::Csv => out.push_str(&csv::row(&row, columns)),
                Format::Jsonl => out.push_str(&row.to_string()),
            }
            out.push('\n');
        }
        Ok(out)
    }
}

/// The links to the files of a list.
pub(super) fn links(query: &Query) -> Markup {
    html! {
        span.export { (icon("down")) "Export "
            a href=(query.with("format", Some("csv"))) download { "CSV" } " · "
            a href=(query.with("format", Some("jsonl"))) download { "JSONL" }
        }
    }
}

/// All rows of the list at an address. `page` reads one page of it.
pub(super) async fn file<T, F, P>(
    viewer: &Viewer,
    query: &Query,
    format: Format,
    (name, columns): (&'static str, Columns),
    page: F,
) -> Result<Response, Problem>
where
    T: Serialize + Send + 'static,
    F: Fn(ApiState, Uri) -> P + Send + Sync + 'static,
    P: Future<Output = Result<PageOut<T>, Problem>> + Send,
{
    let api = viewer.api.clone();
    // What is wrong with a filter is told on a page, before a file begins.
    let mut found = page(api.clone(), query.for_file(ROWS, None)?).await?;
    let mut text = match format {
        Format::Csv => csv::line(columns.iter().map(|(name, _)| *name)) + "\n",
        Format::Jsonl => String::new(),
    };
    let (sender, receiver) = mpsc::channel(1);
    let query = query.clone();
    let reading = async move {
        loop {
            text.push_str(&format.lines(&found.data, columns)?);
            if sender.send(Ok(Bytes::from(std::mem::take(&mut text)))).await.is_err() {
                return Ok(());
            }
            let Some(cursor) = &found.next_cursor else { return Ok(()) };
            let next = async {
                if !api.read(|api, view| api.still_let_in(view)).await? {
                    return Err(Problem::new(Kind::Unauthorized, "the session ended meanwhile"));
                }
                page(api.clone(), query.for_file(ROWS, Some(cursor))?).await
            };
            match next.await {
                Ok(more) => found = more,
                Err(problem) => {
                    // The reader sees that the file is not whole.
                    drop(sender.send(Err(std::io::Error::other(problem.detail.to_string()))).await);
                    return Err(problem);
                }
            }
        }
    };
    tokio::spawn(async move {
        let done: Result<(), Problem> = reading.await;
        if let Err(problem) = done {
            tracing::warn!(detail = %problem.detail, "an export broke off");
        }
    });
    let parts = stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let (kind, ending) = match format {
        Format::Csv => ("text/csv; charset=utf-8", "csv"),
        Format::Jsonl => ("application/x-ndjson", "jsonl"),
    };
    let headers = [
        (CONTENT_TYPE, kind.to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{name}.{ending}\"")),
        (CONTENT_SECURITY_POLICY, "sandbox".to_owned()),
    ];
    Ok((headers, Body::from_stream(parts)).into_response())
}
