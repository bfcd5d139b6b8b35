//! The attempts of a delivery, as JSON, out of its story.
//!
//! Never decides, and never knows who asks.

use std::collections::BTreeMap;

use hooklog_projections::course::Course;
use hooklog_projections::fact::{Entry, Fact, Failure, Response};
use hooklog_projections::ids::{AttemptId, Seq};
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::time::{Micros, Timestamp};
use serde::Serialize;

use super::openapi::words;
use super::policies::moment_text;
use super::problem::Problem;
use crate::log::BodySlot;
use crate::views::View;

/// An attempt as it goes out. Addresses are for those who may see the operator's network.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Attempt)]
pub struct AttemptOut {
    #[schema(value_type = String)]
    pub id: AttemptId,
    pub number: u32,
    pub run: u32,
    pub r#try: u32,
    #[schema(format = DateTime)]
    pub started_at: String,
    #[schema(value_type = words::AttemptStatus)]
    pub status: &'static str,
    pub endpoint_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    pub ended_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub took_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub counted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status_code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::ErrorClass>, nullable = false)]
    pub error: Option<ErrorClass>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub response_body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub response_truncated: Option<bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub response_headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub address: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried_in_vain: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub resent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub timings: Option<TimingsOut>,
}

impl AttemptOut {
    /// Leaves out what only the operator's network knows: addresses, and what went wrong in its own words. What it
    /// comes to stands in `error` and `reason`.
    pub fn hide_internals(&mut self) {
        self.address = None;
        self.tried_in_vain.clear();
        if !self.error.is_some_and(is_told) {
            self.detail = None;
        }
    }
}

/// Whether the words of a failure are a worker's, whose account it is, and not the server's own.
pub fn is_told(class: ErrorClass) -> bool {
    class == ErrorClass::Worker
}

/// Where an attempt's time went; what did not take place is left out.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Timings)]
pub struct TimingsOut {
    pub queue_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub dns_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub connect_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tls_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub first_byte_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub body_us: Option<u64>,
}

/// The attempts in a story, oldest first.
pub fn of(view: &View<'_>, story: &[Entry]) -> Result<Vec<AttemptOut>, Problem> {
    let mut out: Vec<AttemptOut> = Vec::new();
    for entry in story {
        match &entry.fact {
            Fact::Attempted { attempt, try_number, run, endpoint_version, .. } => out.push(AttemptOut {
                id: view.attempt_id(entry.seq, entry.at),
                number: *attempt,
                run: *run,
                r#try: *try_number,
                started_at: moment_text(entry.at),
                status: "in_flight",
                endpoint_version: *endpoint_version,
                ended_at: None,
                took_ms: None,
                rule: None,
                counted: None,
                status_code: None,
                error: None,
                detail: None,
                response_body: None,
                response_truncated: None,
                response_headers: BTreeMap::new(),
                reason: None,
                address: None,
                tried_in_vain: Vec::new(),
                reused: None,
                resent: None,
                timings: None,
            }),
            Fact::Delivered { response, rule, .. } => {
                if let Some(last) = out.last_mut() {
                    (last.status, last.counted) = ("delivered", Some(true));
                    ended(last, entry.at, rule);
                    answered(view, last, entry.seq, response)?;
                }
            }
            Fact::Failed { failure, rule, counted, .. } => {
                if let Some(last) = out.last_mut() {
                    (last.status, last.counted) = ("failed", Some(*counted));
                    ended(last, entry.at, rule);
                    match failure {
                        Failure::Answered(response) => answered(view, last, entry.seq, response)?,
                        Failure::Error { class, detail, took, reason, address, course } => {
                            last.error = Some(*class);
                            last.detail = Some(detail.to_string());
                            last.took_ms = Some(took.0);
                            last.reason = reason.as_ref().map(ToString::to_string);
                            last.address = address.as_ref().map(ToString::to_string);
                            went(last, course.as_deref());
                        }
                    }
                }
            }
            _ => {}
        }
    }
    Ok(out)
}

fn ended(attempt: &mut AttemptOut, at: Timestamp, rule: &str) {
    attempt.ended_at = Some(moment_text(at));
    attempt.rule = Some(rule.to_owned());
}

fn answered(view: &View<'_>, attempt: &mut AttemptOut, at: Seq, response: &Response) -> Result<(), Problem> {
    attempt.status_code = response.code();
    attempt.took_ms = Some(response.took.0);
    attempt.response_truncated = Some(response.truncated);
    attempt.address = response.address.as_ref().map(ToString::to_string);
    attempt.response_headers = kept_fields(response);
    went(attempt, response.course.as_deref());
    if response.body.is_some() {
        let body = view.body(BodySlot::Response(at))?;
        attempt.response_body = body.map(|body| String::from_utf8_lossy(&body.bytes).into_owned());
    }
    Ok(())
}

/// The kept fields of an answer; several of one name are one, with commas between.
pub(super) fn kept_fields(response: &Response) -> BTreeMap<String, String> {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &response.fields {
        let shown = fields.entry(name.to_string()).or_default();
        shown.push_str(if shown.is_empty() { "" } else { ", " });
        shown.push_str(value);
    }
    fields
}

/// The attempt that a fact is about: `Attempted` begins it, `Delivered` or `Failed` ends it and stands right after.
pub(super) fn attempt_of(view: &View<'_>, entry: &Entry) -> Result<Option<AttemptId>, Problem> {
    Ok(match &entry.fact {
        Fact::Attempted { .. } => Some(view.attempt_id(entry.seq, entry.at)),
        Fact::Delivered { of, .. } | Fact::Failed { of, .. } => {
            let begun = view.entry(of.previous)?;
            matches!(begun.fact, Fact::Attempted { .. }).then(|| view.attempt_id(begun.seq, begun.at))
        }
        _ => None,
    })
}

fn went(attempt: &mut AttemptOut, course: Option<&Course>) {
    let Some(course) = course else { return };
    attempt.tried_in_vain = course.in_vain.iter().map(ToString::to_string).collect();
    attempt.reused = Some(course.reused);
    attempt.resent = Some(course.resent);
    let part = |time: Option<Micros>| time.map(|time| time.0);
    attempt.timings = Some(TimingsOut {
        queue_ms: course.queue.0,
        dns_us: part(course.dns),
        connect_us: part(course.connect),
        tls_us: part(course.tls),
        first_byte_us: part(course.first_byte),
        body_us: part(course.body),
    });
}
