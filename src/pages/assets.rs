//! The files that pages load, out of the binary: one style sheet, our script, and htmx as it was published. Their
//! addresses hold their content's hash, so a browser keeps them for good and never uses an old one.
//!
//! Never knows a page.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::api::ApiState;
use crate::api::problem::{Kind, Problem};

struct File {
    /// `name.hash.ext`.
    address: String,
    name: &'static str,
    media: &'static str,
    bytes: &'static [u8],
}

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let all: [(&str, &str, &[u8]); 5] = [
        ("hooklog.css", STYLE, include_bytes!("assets/hooklog.css")),
        ("hooklog.js", SCRIPT, include_bytes!("assets/hooklog.js")),
        ("htmx.min.js", SCRIPT, include_bytes!("assets/vendor/htmx.min.js")),
        ("hx-csp.min.js", SCRIPT, include_bytes!("assets/vendor/hx-csp.min.js")),
        ("hooklog.svg", IMAGE, include_bytes!("assets/hooklog.svg")),
    ];
    all.into_iter()
        .map(|(name, media, bytes)| {
            let hash = URL_SAFE_NO_PAD.encode(&Sha256::digest(bytes)[..9]);
            let (stem, ext) = name.rsplit_once('.').expect("a file has an extension");
            File { address: format!("{stem}.{hash}.{ext}"), name, media, bytes }
        })
        .collect()
});

/// The address of a file of ours.
pub(super) fn address(name: &str) -> String {
    let file = FILES.iter().find(|file| file.name == name).expect("one of the table's");
    format!("/static/{}", file.address)
}

/// The colour of a product's logo, as the operator set it.
pub(super) async fn brand(api: ApiState) -> Response {
    let colour =
        api.look().colour().map_or_else(String::new, |colour| format!(":root {{ --brand: {colour}; }}\n"));
    ([(CONTENT_TYPE, STYLE), (CACHE_CONTROL, "private, max-age=300")], colour).into_response()
}

pub(super) async fn file(Path(address): Path<String>) -> Result<Response, Problem> {
    let file = FILES.iter().find(|file| file.address == address);
    let file =
        file.ok_or_else(|| Problem::new(Kind::NotFound, "there is no such file; load the page again"))?;
    let headers = [(CONTENT_TYPE, file.media), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    Ok((headers, file.bytes).into_response())
}
