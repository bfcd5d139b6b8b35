//! Query parameters: each known, each once unless it may repeat, each within bounds.
//!
//! Never knows what they select.

use axum::http::Uri;
use hooklog_projections::time::Timestamp;
use url::form_urlencoded;

use super::policies::{edge, moment};
use super::problem::Problem;

/// Rows of a page if nobody says.
pub const LIMIT_DEFAULT: usize = 50;
/// Rows of a page at most; more is cut to it.
pub const LIMIT_MAX: usize = 500;

/// The parameters of one request, taken one by one.
pub struct Params {
    pairs: Vec<(String, String)>,
}

impl Params {
    /// Those of an address.
    pub fn of(uri: &Uri) -> Params {
        let query = uri.query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Params { pairs }
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

    /// A parameter that stands there at most once; an empty one is absent.
    pub fn one(&mut self, name: &str) -> Result<Option<String>, Problem> {
        Ok(self.once(name)?.filter(|value| !value.is_empty()))
    }

    fn once(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let (taken, rest) = std::mem::take(&mut self.pairs).into_iter().partition(|(known, _)| known == name);
        self.pairs = rest;
        let mut taken: Vec<(String, String)> = taken;
        match taken.len() {
            0 => Ok(None),
            1 => Ok(taken.pop().map(|(_, value)| value)),
            _ => Err(Problem::query(name, "the parameter stands there twice; send it once")),
        }
    }

    /// A parameter that is read by its type; an empty one is absent.
    pub fn read<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let value = self.one(name)?;
        value.map(|value| parsed(name, &value)).transpose()
    }

    /// As [`read`](Self::read), but an empty one does not fit: an id that got lost on its way here must not become
    /// a drawn one.
    pub fn read_as_given<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let value = self.once(name)?;
        value.map(|value| parsed(name, &value)).transpose()
    }

    /// A moment: RFC 3339 with any offset, whose `+` may stand there bare.
    pub fn moment(&mut self, name: &str) -> Result<Option<Timestamp>, Problem> {
        self.time(name, moment)
    }

    /// Where a range of moments begins or ends.
    pub fn edge(&mut self, name: &str) -> Result<Option<Timestamp>, Problem> {
        self.time(name, edge)
    }

    fn time(
        &mut self,
        name: &str,
        read: impl Fn(&str) -> Option<Timestamp>,
    ) -> Result<Option<Timestamp>, Problem> {
        let value = self.one(name)?;
        let wrong =
            || Problem::query(name, "an RFC 3339 time with an offset is wanted, as 2026-11-30T09:14:02Z");
        value.map(|value| read(&value.replace(' ', "+")).ok_or_else(wrong)).transpose()
    }

    /// Rows of a page.
    pub fn limit(&mut self) -> Result<usize, Problem> {
        match self.one("limit")? {
            None => Ok(LIMIT_DEFAULT),
            Some(text) => match text.parse::<u64>() {
                Ok(limit @ 1..) => Ok(limit.min(LIMIT_MAX as u64) as usize),
                _ => Err(Problem::query("limit", format!("1 to {LIMIT_MAX} is wanted"))),
            },
        }
    }

    /// Ends the reading: parameters that nobody asked for are unknown.
    pub fn finish(self) -> Result<(), Problem> {
        match self.pairs.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name = name.chars().take(64).collect::<String>().escape_default().to_string();
                Err(Problem::query(&name, "the parameter is not known here"))
            }
        }
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

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, value: &str) -> Result<T, Problem> {
    value.parse().map_err(|error: T::Err| Problem::query(name, error.to_string()))
}
