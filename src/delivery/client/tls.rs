//! TLS: what is offered, whom we trust, and the proof at the start that there is any of both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::Verifier;

/// Why there can be no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No TLS, usually for lack of root certificates.
    #[error(
        "cannot set up outbound connections ({0}): install the system's CA certificates (`ca-certificates`), or \
         name a bundle in SSL_CERT_FILE"
    )]
    Setup(String),
    /// The operator's own certificates cannot be used.
    #[error("no certificate can be read from {path} ({why}): it must hold one or more in PEM form")]
    ExtraCa {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// TLS 1.2 and 1.3, HTTP/1.1 only, certificates and names always checked against the system's roots and the
/// extra ones. Early data stays off: a POST must not go where it can be played again.
///
/// # Errors
/// If there is no root certificate at all, or a handshake cannot even begin.
pub(super) fn config(extra_ca: Option<&Path>) -> Result<ClientConfig, Error> {
    let extra = extra_ca.map(read).transpose()?.unwrap_or_default();
    let setup = |error: rustls::Error| Error::Setup(error.to_string());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = match Verifier::new_with_extra_roots(extra.iter().cloned(), provider.clone()) {
        Ok(verifier) => verifier,
        // Of the system's own certificates only usable ones are taken; an error without any of ours is theirs.
        Err(error) => match extra_ca {
            Some(path) => return Err(Error::ExtraCa { path: path.to_owned(), why: error.to_string() }),
            None => return Err(setup(error)),
        },
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(setup)?
        // The checks of the platform's verifier: this takes none away.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    prove(&config).map_err(|error| Error::Setup(error.to_string()))?;
    Ok(config)
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bad = |why: String| Error::ExtraCa { path: path.to_owned(), why };
    let all = CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| bad(error.to_string()))?;
    if all.is_empty() { Err(bad("it holds none".to_owned())) } else { Ok(all) }
}

/// Begins a handshake with nobody: keys can be made and a greeting written.
fn prove(config: &ClientConfig) -> Result<(), Box<dyn std::error::Error>> {
    let name = ServerName::try_from("self-test.invalid")?;
    let mut connection = rustls::ClientConnection::new(Arc::new(config.clone()), name)?;
    let mut greeting = Vec::new();
    connection.write_tls(&mut greeting)?;
    if greeting.is_empty() { Err("no greeting was written".into()) } else { Ok(()) }
}
