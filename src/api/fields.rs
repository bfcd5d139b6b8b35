//! Reads a JSON object that is ours: each member once, no unknown ones, and all that does not fit told at once.
//!
//! Values stay the caller's bytes until a member is asked for, so what is opaque stays exact. Never knows what
//! an object is for.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::problem::{FieldError, Kind, Problem};
use crate::explain::is_invisible;

/// How deeply a body may be nested: what common parsers of receivers still take.
pub const DEPTH_MAX: usize = 128;

/// Members of one object: far more than any has, few enough to compare each with each.
const MEMBERS_MAX: usize = 64;

/// What is wrong with one value.
pub struct Bad {
    /// For programs.
    pub code: Cow<'static, str>,
    /// For people.
    pub detail: String,
}

/// A value of another kind or out of bounds.
pub fn bad(code: &'static str, detail: impl Into<String>) -> Bad {
    Bad { code: code.into(), detail: detail.into() }
}

/// The members of one object, and what is wrong with them so far.
pub struct Fields<'a> {
    base: String,
    members: Vec<(String, &'a RawValue, bool)>,
    /// The names that were asked for.
    known: Vec<&'static str>,
    errors: Vec<FieldError>,
}

/// A body as text: UTF-8, JSON, not too deep, one value.
///
/// # Errors
/// 400 naming the byte, or the line, column and member.
pub fn document(bytes: &[u8]) -> Result<&RawValue, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Problem::new(
            Kind::NotJson,
            format!("the body is not UTF-8: the byte at offset {at} fits no character"),
        )
    })?;
    if let Some(at) = too_deep(bytes) {
        let detail =
            format!("more than {DEPTH_MAX} brackets are open at byte {at}; at most {DEPTH_MAX} may be");
        return Err(Problem::new(Kind::TooDeep, detail));
    }
    serde_json::from_str::<&RawValue>(text).map_err(|error| not_json(text, &error))
}

/// Where more brackets are open than may be. Text in strings does not count.
pub fn too_deep(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Some(at);
                }
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Looks a second time to say where: the first look takes members as they are and knows no path.
fn not_json(text: &str, error: &serde_json::Error) -> Problem {
    let (line, column) = (error.line(), error.column());
    let mut json = serde_json::Deserializer::from_str(text);
    let second = serde_path_to_error::deserialize::<_, serde_json::Value>(&mut json);
    let within = second.err().filter(|at| (at.inner().line(), at.inner().column()) == (line, column));
    let within = within.map(|at| at.path().to_string()).filter(|path| path != "." && path != "?");
    let within = within.map_or(String::new(), |path| format!(", in `{path}`"));
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or_default();
    Problem::new(Kind::NotJson, format!("line {line}, column {column}{within}: {what}"))
}

impl<'a> Fields<'a> {
    /// The members of a body.
    ///
    /// # Errors
    /// 400 as [`document`]; 422 if it is no object.
    pub fn read(bytes: &'a [u8]) -> Result<Fields<'a>, Problem> {
        Fields::of(document(bytes)?, "")
    }

    /// As [`read`](Self::read); an empty body is an empty object.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_or_empty(bytes: &'a [u8]) -> Result<Fields<'a>, Problem> {
        if bytes.is_empty() { Fields::read(b"{}") } else { Fields::read(bytes) }
    }

    /// The members of a value within a body, under the pointer `base`.
    ///
    /// # Errors
    /// 422 if it is no object.
    pub fn of(value: &'a RawValue, base: impl Into<String>) -> Result<Fields<'a>, Problem> {
        let base = base.into();
        let mut members = Vec::new();
        let mut json = serde_json::Deserializer::from_str(value.get());
        if Members(&mut members).deserialize(&mut json).is_err() {
            let error = FieldError {
                pointer: base,
                code: "wrong-type".into(),
                detail: "a JSON object is wanted here".into(),
            };
            return Err(Problem::invalid(vec![error]));
        }
        let mut fields = Fields {
            base,
            members: Vec::with_capacity(members.len()),
            known: Vec::new(),
            errors: Vec::new(),
        };
        if members.len() > MEMBERS_MAX {
            let detail =
                format!("an object has at most {MEMBERS_MAX} members here; it has {}", members.len());
            let pointer = fields.base;
            return Err(Problem::invalid(vec![FieldError { pointer, code: "length".into(), detail }]));
        }
        for (name, value) in members {
            if fields.members.iter().any(|(known, ..)| *known == name) {
                fields.fail(&name, bad("duplicate-member", "the member stands there twice; send it once"));
            } else {
                fields.members.push((name, value, false));
            }
        }
        Ok(fields)
    }

    /// Notes that a member does not fit.
    pub fn fail(&mut self, name: &str, bad: Bad) {
        let pointer = format!("{}/{}", self.base, name.replace('~', "~0").replace('/', "~1"));
        self.errors.push(FieldError { pointer, code: bad.code, detail: bad.detail });
    }

    /// The value of a member, `null` included.
    pub fn raw(&mut self, name: &'static str) -> Option<&'a RawValue> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        self.taken(name)
    }

    /// A member that may not be there, for a reason of its own.
    pub fn refuse(&mut self, name: &str, why: Bad) {
        if self.taken(name).is_some() {
            self.fail(name, why);
        }
    }

    fn taken(&mut self, name: &str) -> Option<&'a RawValue> {
        let member = self.members.iter_mut().find(|(known, ..)| known == name)?;
        member.2 = true;
        Some(member.1)
    }

    /// A member that must be there. `None` is noted as an error.
    pub fn required<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&'a RawValue) -> Result<T, Bad>,
    ) -> Option<T> {
        match self.raw(name) {
            Some(value) => self.parsed(name, value, parse),
            None => {
                self.fail(name, bad("missing", "the member is missing"));
                None
            }
        }
    }

    /// A member that may be absent or `null`.
    pub fn optional<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&'a RawValue) -> Result<T, Bad>,
    ) -> Option<T> {
        self.patch(name, parse).flatten()
    }

    /// A member of a change: absent keeps, `null` clears.
    pub fn patch<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&'a RawValue) -> Result<T, Bad>,
    ) -> Option<Option<T>> {
        match self.raw(name)? {
            value if value.get() == "null" => Some(None),
            value => self.parsed(name, value, parse).map(Some),
        }
    }

    /// Every member that was not asked for yet, in order.
    pub fn rest(&mut self) -> Vec<(String, &'a RawValue)> {
        let rest = self.members.iter_mut().filter(|(.., taken)| !taken);
        rest.map(|(name, value, taken)| {
            *taken = true;
            (name.clone(), *value)
        })
        .collect()
    }

    /// Ends the reading: members that nobody asked for are unknown.
    ///
    /// # Errors
    /// 422 with everything that does not fit.
    pub fn finish(&mut self) -> Result<(), Problem> {
        for (name, _) in self.rest() {
            let known = match self.known.as_slice() {
                [] => "there is none".to_owned(),
                known => format!("there are {}", known.join(", ")),
            };
            let detail = format!("`{}` is no member here; {known}", name.escape_default());
            self.fail(&name, bad("unknown-member", detail));
        }
        if self.errors.is_empty() { Ok(()) } else { Err(Problem::invalid(std::mem::take(&mut self.errors))) }
    }

    /// Takes over what is wrong within a member.
    pub fn absorb(&mut self, problem: Problem) {
        self.errors.extend(problem.errors);
    }

    /// The pointer of this object.
    pub fn pointer(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    fn parsed<T>(
        &mut self,
        name: &str,
        value: &'a RawValue,
        parse: impl FnOnce(&'a RawValue) -> Result<T, Bad>,
    ) -> Option<T> {
        parse(value).map_err(|error| self.fail(name, error)).ok()
    }
}

/// Collects an object's members in order, each value as its own bytes.
struct Members<'m, 'a>(&'m mut Vec<(String, &'a RawValue)>);

impl<'de> DeserializeSeed<'de> for Members<'_, 'de> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(member) = map.next_entry()? {
            self.0.push(member);
        }
        Ok(())
    }
}

/// A text of 1 to `chars_max` characters without control characters.
pub fn text(chars_max: usize) -> impl Fn(&RawValue) -> Result<String, Bad> {
    move |value| {
        let text: String = parse(value, "a text")?;
        let chars = text.chars().count();
        if chars == 0 || chars > chars_max {
            return Err(bad(
                "length",
                format!("a text of 1 to {chars_max} characters is wanted; it has {chars}"),
            ));
        }
        match text.chars().find(|c| c.is_control() || is_invisible(*c)) {
            Some(c) => Err(bad("character", format!("U+{:04X} may not stand in it", u32::from(c)))),
            None => Ok(text),
        }
    }
}

/// A whole number within bounds.
pub fn number(min: u64, max: u64) -> impl Fn(&RawValue) -> Result<u64, Bad> {
    move |value| {
        let number: u64 = parse(value, "a whole number")?;
        if (min..=max).contains(&number) {
            Ok(number)
        } else {
            Err(bad("out-of-range", format!("{min} to {max} is wanted; it is {number}")))
        }
    }
}

/// `true` or `false`.
pub fn flag(value: &RawValue) -> Result<bool, Bad> {
    parse(value, "true or false")
}

/// Any plain value that serde reads.
pub fn parse<'a, T: serde::Deserialize<'a>>(value: &'a RawValue, wanted: &str) -> Result<T, Bad> {
    serde_json::from_str(value.get()).map_err(|_| bad("wrong-type", format!("{wanted} is wanted here")))
}

/// A text that is an id.
pub fn id<T: std::str::FromStr<Err: fmt::Display>>(value: &RawValue) -> Result<T, Bad> {
    let text: String = parse(value, "a text")?;
    text.parse().map_err(|error: T::Err| bad("bad-id", error.to_string()))
}

/// One of a few words.
pub fn word<T: serde::de::DeserializeOwned>(words: &'static str) -> impl Fn(&RawValue) -> Result<T, Bad> {
    move |value| {
        let text: String = parse(value, "a text")?;
        serde_json::from_value(text.into())
            .map_err(|_| bad("unknown-word", format!("one of {words} is wanted")))
    }
}
