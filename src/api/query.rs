//! Query parameters: each known, each once unless it may repeat, each within bounds; all that does not fit told at
//! once, as of a body.
//!
//! Never knows what they select.

use axum::http::Uri;
use hooklog_projections::lifecycle::Status;
use hooklog_projections::time::Timestamp;
use url::form_urlencoded;

use super::envelope::TYPE_CHARS_MAX;
use super::policies::{as_of, edge, moment};
use super::problem::Problem;

/// Rows of a page if nobody says.
pub const LIMIT_DEFAULT: usize = 50;
/// Rows of a page at most; more is cut to it.
pub const LIMIT_MAX: usize = 500;

/// What is told of one query at most: more are a program gone wrong, not a slip.
const TOLD_MAX: usize = 64;

/// The parameters of one request, taken one by one. What does not fit is noted, and told at once at the end.
pub struct Params {
    pairs: Vec<(String, String)>,
    wrong: Vec<(String, String)>,
}

impl Params {
    /// Those of an address.
    pub fn of(uri: &Uri) -> Params {
        let query = uri.query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Params { pairs, wrong: Vec::new() }
    }

    /// Notes that a parameter does not fit; of one parameter the first thing is told.
    pub fn fail(&mut self, name: &str, detail: impl Into<String>) {
        if !self.wrong.iter().any(|(known, _)| known == name) {
            self.wrong.push((name.to_owned(), detail.into()));
        }
    }

    /// All values of a parameter; commas separate values too.
    pub fn all(&mut self, name: &str) -> Vec<String> {
        let mut values = Vec::new();
        self.pairs.retain(|(known, value)| {
            let takes = known == name;
            if takes {
                values.extend(value.split(',').filter(|value| !value.is_empty()).map(str::to_owned));
            }
            !takes
        });
        values
    }

    /// All values of a parameter, each read by itself; what is wrong with one is told in the words of `read`.
    pub fn each<T>(&mut self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let mut values = Vec::new();
        for word in self.all(name) {
            match read(&word) {
                Ok(value) => values.push(value),
                Err(detail) => self.fail(name, detail),
            }
        }
        values
    }

    /// A parameter that stands there at most once; an empty one is absent.
    pub fn one(&mut self, name: &str) -> Option<String> {
        self.once(name).filter(|value| !value.is_empty())
    }

    fn once(&mut self, name: &str) -> Option<String> {
        let (taken, rest) = std::mem::take(&mut self.pairs).into_iter().partition(|(known, _)| known == name);
        self.pairs = rest;
        let mut taken: Vec<(String, String)> = taken;
        if taken.len() > 1 {
            self.fail(name, "the parameter stands there twice; send it once");
            return None;
        }
        taken.pop().map(|(_, value)| value)
    }

    /// A parameter that stands there at most once and is read by `read`, whose words are told; an empty one is absent.
    pub fn one_of<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.one(name)?;
        read(&value).map_err(|detail| self.fail(name, detail)).ok()
    }

    /// A parameter that is read by its type; an empty one is absent.
    pub fn read<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self, name: &str) -> Option<T> {
        self.one_of(name, parsed)
    }

    /// As [`read`](Self::read), but an empty one does not fit: an id that got lost on its way here must not become
    /// a drawn one.
    pub fn read_as_given<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self, name: &str) -> Option<T> {
        let value = self.once(name)?;
        parsed(&value).map_err(|detail| self.fail(name, detail)).ok()
    }

    /// The moment `since` from which on something is told: RFC 3339, as [`as_of`](Self::as_of).
    pub fn since(&mut self) -> Option<Timestamp> {
        self.time("since", moment)
    }

    /// The moment `at` of which a state is asked: RFC 3339 with any offset, whose `+` may stand there bare.
    pub fn as_of(&mut self) -> Option<Timestamp> {
        self.time("at", as_of)
    }

    fn time(&mut self, name: &str, read: fn(&str) -> Option<Timestamp>) -> Option<Timestamp> {
        self.one_of(name, |value| {
            let wrong = || "an RFC 3339 time with an offset is wanted, as 2026-11-30T09:14:02Z".to_owned();
            read(&value.replace(' ', "+")).ok_or_else(wrong)
        })
    }

    /// From `since` (included) to `until`, each if it is given.
    pub fn span(&mut self) -> (Option<Timestamp>, Option<Timestamp>) {
        let (since, until) = (self.time("since", edge), self.time("until", edge));
        if since.zip(until).is_some_and(|(since, until)| since > until) {
            self.fail("since", "`since` is after `until`");
        }
        (since, until)
    }

    /// The filter by event type: one, or a prefix before `*`.
    pub fn event_type(&mut self) -> Option<String> {
        self.one_of("event_type", |text| {
            let fits = text.len() <= TYPE_CHARS_MAX;
            let wrong = || format!("an event type has at most {TYPE_CHARS_MAX} characters");
            fits.then(|| text.to_owned()).ok_or_else(wrong)
        })
    }

    /// The filter by statuses of deliveries: any of them, in order, each once.
    pub fn statuses(&mut self) -> Vec<Status> {
        let mut statuses = self.each("status", |word| {
            let wrong = || "pending, in_flight, delivered, dead or cancelled is wanted".to_owned();
            Status::ALL.into_iter().find(|status| status.as_str() == word).ok_or_else(wrong)
        });
        statuses.sort();
        statuses.dedup();
        statuses
    }

    /// Rows of a page.
    pub fn limit(&mut self) -> usize {
        let limit = self.one_of("limit", |text| match text.parse::<u64>() {
            Ok(limit @ 1..) => Ok(limit.min(LIMIT_MAX as u64) as usize),
            _ => Err(format!("1 to {LIMIT_MAX} is wanted")),
        });
        limit.unwrap_or(LIMIT_DEFAULT)
    }

    /// Ends the reading: parameters that nobody asked for are unknown.
    ///
    /// # Errors
    /// 400 with everything that does not fit.
    pub fn finish(mut self) -> Result<(), Problem> {
        for (name, _) in std::mem::take(&mut self.pairs).into_iter().take(TOLD_MAX) {
            let name = name.chars().take(64).collect::<String>().escape_default().to_string();
            self.fail(&name, "the parameter is not known here");
        }
        self.wrong.truncate(TOLD_MAX);
        if self.wrong.is_empty() { Ok(()) } else { Err(Problem::queries(self.wrong)) }
    }

    /// Ends the reading, and hands on what must have been there: if it was not, that was noted.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_with<T>(self, wanted: Option<T>) -> Result<T, Problem> {
        self.finish()?;
        wanted.ok_or_else(|| Problem::internal(&"a parameter that must be there was not noted as missing"))
    }

    /// The query of an address with one parameter set to this.
    pub fn with(uri: &Uri, name: &str, value: &str) -> String {
        let params = Params::of(uri);
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(params.pairs.iter().filter(|(known, _)| known != name));
        query.append_pair(name, value);
        query.finish()
    }
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|error: T::Err| error.to_string())
}

#[cfg(test)]
mod tests {
    use hooklog_projections::ids::EndpointId;

    use super::*;

    fn params(query: &str) -> Params {
        Params::of(&format!("/v1/list?{query}").parse().expect("an address"))
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let mut params = params(
            "limit=0&since=2026-02-01T00:00:00Z&until=2026-01-01T00:00:00Z&status=x,dead,y&a=1&a=2&b=3&endpoint_id=e&a=4",
        );
        assert_eq!((params.limit(), params.statuses()), (LIMIT_DEFAULT, vec![Status::Dead]));
        assert!(params.span().0.is_some());
        assert_eq!(params.read::<EndpointId>("endpoint_id"), None);
        assert_eq!(params.one("a"), None);
        let problem = params.finish().expect_err("most of it");
        let told: Vec<_> = problem.errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!(told, ["/limit", "/status", "/since", "/endpoint_id", "/a", "/b"]);
        assert_eq!(problem.detail, "6 parameters do not fit; `errors` names each");
    }

    #[test]
    fn what_fits_is_no_problem_and_one_misfit_is_told_in_the_detail() {
        let mut fine = params("limit=7&status=dead&since=2026-01-01T00:00:00+01:00");
        assert_eq!((fine.limit(), fine.statuses()), (7, vec![Status::Dead]));
        assert!(fine.span().0.is_some());
        assert_eq!(fine.finish_with(Some(1)).map_err(|problem| problem.detail), Ok(1));
        let problem = params("zzz=1").finish().expect_err("unknown");
        assert_eq!(problem.detail, "`zzz`: the parameter is not known here");
        let many: String = (0..1_000).map(|n| format!("x{n}=1&")).collect();
        assert_eq!(params(&many).finish().expect_err("unknown").errors.len(), TOLD_MAX);
    }
}
