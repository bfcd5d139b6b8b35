//! `/v1/stats` and `/v1/endpoints/{id}/stats`: what happened by hour or day, from the hourly figures. Never looks
//! at a delivery.

use std::collections::BTreeMap;

use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::response::Response;
use hooklog_projections::hour::{CLASS_NAMES, Hour, hour_of};
use hooklog_projections::ids::{AccountId, EndpointId};
use hooklog_projections::time::{Millis, Timestamp};
use serde_json::{Map, Value, json as object};

use super::ApiState;
use super::accounts::known;
use super::endpoints::{lookup, no_endpoint};
use super::policies::moment_text;
use super::problem::{Kind, Problem};
use super::query::Params;
use super::rim::json;
use crate::views::View;

/// Hours that one answer reads, over all accounts and endpoints: what is read within a second.
const HOURS_READ_MAX: usize = 20_000;
/// Points of one answer.
const POINTS_MAX: u32 = 1_000;

/// Which figures.
struct Wanted {
    since: Timestamp,
    until: Timestamp,
    /// Hours in a bucket.
    bucket: u32,
    group: Group,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    None,
    Status,
    Class,
    Endpoint,
}

/// Figures of a bucket, and of which endpoint where they are told apart.
type Figures = BTreeMap<(u32, Option<EndpointId>), Hour>;

impl Wanted {
    /// What does not fit is noted.
    fn read(params: &mut Params, now: Timestamp) -> Wanted {
        let bucket = params.one_of("bucket", |word| match word {
            "1h" => Ok(1),
            "1d" => Ok(24),
            _ => Err("1h or 1d is wanted".to_owned()),
        });
        let bucket = bucket.unwrap_or(1);
        let group = params.one_of("group", |word| match word {
            "status" => Ok(Group::Status),
            "class" => Ok(Group::Class),
            "endpoint" => Ok(Group::Endpoint),
            _ => Err("status, class or endpoint is wanted".to_owned()),
        });
        let (since, until) = params.span();
        let until = until.unwrap_or(now);
        let span = Millis::from_secs(if bucket == 1 { 24 * 3_600 } else { 30 * 24 * 3_600 });
        let since = since.unwrap_or(until - span);
        let wanted = Wanted { since, until, bucket, group: group.unwrap_or(Group::None) };
        let (first, last) = wanted.hours();
        if since > until {
            params.fail("since", "`since` is after `until`");
        } else if (last - first) / bucket >= POINTS_MAX {
            let detail = format!("at most {POINTS_MAX} buckets are answered: narrow the time, or take `1d`");
            params.fail("since", detail);
        }
        wanted
    }

    /// The first and the last hour, of whole buckets.
    fn hours(&self) -> (u32, u32) {
        let first = hour_of(self.since);
        (first - first % self.bucket, hour_of(self.until))
    }

    /// Adds an account's, or an endpoint's, hours to the figures; so many more may be read.
    fn add(
        &self,
        view: &View<'_>,
        account: AccountId,
        endpoint: Option<EndpointId>,
        into: &mut Figures,
        left: &mut usize,
    ) -> Result<(), Problem> {
        let hours = view.hours(account, endpoint, self.hours(), *left + 1)?;
        *left = left.checked_sub(hours.len()).ok_or_else(|| {
            let detail = format!("more than {HOURS_READ_MAX} hours of figures would be read");
            Problem::new(
                Kind::BadQuery,
                format!("{detail}: narrow the time, or name an account or an endpoint"),
            )
        })?;
        for (hour, figures) in hours {
            let of = endpoint.filter(|_| self.group == Group::Endpoint);
            into.entry((hour - hour % self.bucket, of)).or_default().add(&figures);
        }
        Ok(())
    }

    fn out(&self, figures: &Figures) -> Value {
        let mut data = Vec::new();
        let mut total = Hour::default();
        for ((hour, endpoint), figures) in figures {
            total.add(figures);
            let start = moment_text(Timestamp(u64::from(*hour) * 3_600_000));
            match self.group {
                Group::None => data.push(point(start, figures)),
                Group::Endpoint => {
                    let mut point = point(start, figures);
                    point["endpoint_id"] = object!(endpoint);
                    data.push(point);
                }
                Group::Status | Group::Class => {
                    let groups =
                        if self.group == Group::Status { statuses(figures) } else { classes(figures) };
                    data.extend(
                        groups.into_iter().map(
                            |(group, count)| object!({ "start": start, "group": group, "count": count }),
                        ),
                    );
                }
            }
        }
        let (first, last) = self.hours();
        let end = last - last % self.bucket + self.bucket;
        let mut total = point(moment_text(Timestamp(u64::from(first) * 3_600_000)), &total);
        total["end"] = moment_text(Timestamp(u64::from(end) * 3_600_000)).into();
        object!({ "bucket": if self.bucket == 1 { "1h" } else { "1d" }, "data": data, "total": total })
    }
}

fn statuses(hour: &Hour) -> Map<String, Value> {
    let Hour { delivered, failed, dead, cancelled, replayed, .. } = hour;
    let all = [
        ("delivered", delivered),
        ("failed", failed),
        ("dead", dead),
        ("cancelled", cancelled),
        ("replayed", replayed),
    ];
    all.into_iter().filter(|(_, n)| **n > 0).map(|(name, n)| (name.into(), (*n).into())).collect()
}

fn classes(hour: &Hour) -> Map<String, Value> {
    let all = CLASS_NAMES.into_iter().zip(hour.classes);
    all.filter(|(_, n)| *n > 0).map(|(name, n)| (name.into(), n.into())).collect()
}

fn point(start: String, hour: &Hour) -> Value {
    object!({
        "start": start, "attempts": hour.attempts(), "delivered": hour.delivered, "failed": hour.failed,
        "dead": hour.dead, "cancelled": hour.cancelled, "replayed": hour.replayed, "classes": classes(hour),
        "p50_ms": hour.took_at(50), "p95_ms": hour.took_at(95),
    })
}

pub(super) async fn stats(api: ApiState, request: Request) -> Result<Response, Problem> {
    let mut params = Params::of(request.uri());
    let account = api.account_filter(&mut params)?;
    let endpoint = params.read::<EndpointId>("endpoint_id");
    let wanted = Wanted::read(&mut params, api.now());
    if wanted.group == Group::Endpoint && account.is_none() && endpoint.is_none() {
        params.fail("group", "endpoints are told apart within one account: name it");
    }
    params.finish()?;
    let out = api
        .read(move |_, view| {
            let (mut figures, mut left) = (Figures::new(), HOURS_READ_MAX);
            match (account, endpoint) {
                (account, Some(endpoint)) => {
                    let (key, _) = lookup(view, endpoint, account)?;
                    wanted.add(view, key.account, Some(endpoint), &mut figures, &mut left)?;
                }
                (Some(account), None) if wanted.group == Group::Endpoint => {
                    known(view, account)?;
                    for (key, _) in view.endpoints(account)? {
                        wanted.add(view, account, Some(key.endpoint), &mut figures, &mut left)?;
                    }
                }
                (Some(account), None) => {
                    known(view, account)?;
                    wanted.add(view, account, None, &mut figures, &mut left)?;
                }
                (None, None) => {
                    let mut after = None;
                    loop {
                        let page = view.accounts(after, 1_000)?;
                        let Some((last, _)) = page.last() else { break };
                        after = Some(*last);
                        for (account, _) in &page {
                            wanted.add(view, *account, None, &mut figures, &mut left)?;
                        }
                    }
                }
            }
            Ok(wanted.out(&figures))
        })
        .await?;
    json(StatusCode::OK, &out)
}

pub(super) async fn of_endpoint(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let mut params = Params::of(request.uri());
    let account = api.account_filter(&mut params)?;
    let wanted = Wanted::read(&mut params, api.now());
    params.finish()?;
    let endpoint: EndpointId = id.parse().map_err(|_| no_endpoint())?;
    let out = api
        .read(move |_, view| {
            let (key, _) = lookup(view, endpoint, account)?;
            let (mut figures, mut left) = (Figures::new(), HOURS_READ_MAX);
            wanted.add(view, key.account, Some(endpoint), &mut figures, &mut left)?;
            let mut out = wanted.out(&figures);
            let lane = view.lane(key)?;
            out["endpoint_id"] = object!(endpoint);
            out["now"] = object!({
                "waiting": lane.waiting, "in_flight": lane.in_flight,
                "failing_since": lane.failing_since.map(moment_text), "failures": lane.failures,
            });
            Ok(out)
        })
        .await?;
    json(StatusCode::OK, &out)
}
