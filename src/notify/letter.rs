//! A message as mail: header fields and two parts, text and HTML. Pure. Never knows how mail is sent.
//!
//! Whatever cannot be written into a header field safely is encoded by lettre or refused here; boundary and dates come
//! from the letter itself, so the same letter is the same bytes.

use std::time::{Duration, UNIX_EPOCH};

use lettre::Address;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart, SinglePart};

use super::Letter;
use crate::explain::plain;

/// Characters of a subject: what a mail client shows.
const SUBJECT_CHARS_MAX: usize = 150;

/// The mail's bytes, and who it is for.
///
/// # Errors
/// Why it can go to nobody, for people.
pub(super) fn mail(letter: &Letter<'_>, from: &Mailbox) -> Result<(Address, Vec<u8>), String> {
    let to = letter.to.ok_or("the account names no e-mail address")?;
    let to: Address = to.parse().map_err(|_| "the account's e-mail address is none that mail can go to")?;
    let field = |name, value: &str| HeaderValue::new(HeaderName::new_from_ascii_str(name), value.to_owned());
    let part = |kind, words: &str| {
        // Quoted-printable: whatever the words, no line is longer than 76 characters.
        SinglePart::builder()
            .header(kind)
            .header(ContentTransferEncoding::QuotedPrintable)
            .body(words.to_owned())
    };
    let mail = lettre::Message::builder()
        .from(from.clone())
        .to(Mailbox::new(None, to.clone()))
        .subject(plain(letter.subject, SUBJECT_CHARS_MAX))
        .date(UNIX_EPOCH + Duration::from_millis(letter.at.0))
        .message_id(Some(format!("<{}@{}>", letter.id, from.email.domain())))
        .raw_header(field("Auto-Submitted", "auto-generated"))
        .raw_header(field("X-Auto-Response-Suppress", "All"))
        .multipart(
            MultiPart::alternative()
                .boundary(format!("=_{}", letter.id))
                .singlepart(part(ContentType::TEXT_PLAIN, letter.text))
                .singlepart(part(ContentType::TEXT_HTML, letter.html)),
        );
    let mail = mail.map_err(|error| format!("no mail can be made of it: {error}"))?;
    Ok((to, mail.formatted()))
}
