//! TLS connections and trusted certificates: `rustls` over a socket.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

use super::FetchError;

/// The certificate authorities that are trusted: those of the system, or those in a file.
#[derive(Clone, Debug, Default)]
pub struct TlsTrust {
    /// A PEM file of certificates that replaces those of the system.
    pub file: Option<PathBuf>,
    /// Loaded for the first https server.
    config: OnceLock<Arc<ClientConfig>>,
}

impl TlsTrust {
    /// Trusts the certificates in `file`, or those of the system if it is `None`.
    pub fn of(file: Option<PathBuf>) -> Self {
        Self { file, config: OnceLock::new() }
    }

    fn read(&self) -> Result<Arc<ClientConfig>, FetchError> {
        let mut roots = RootCertStore::empty();
        // Skips certificates that cannot be parsed: a store may contain unknown kinds.
        let named = self.certificates()?;
        roots.add_parsable_certificates(named.iter().cloned());
        if roots.is_empty() {
            let what = self.file.as_ref().map(|file| format!("'{}'", thalweg_core::shown(file)));
            let what = what.unwrap_or_else(|| "this system".to_owned());
            let why = format!("{what} has no CA certificate; give a file with --cacert");
            return Err(FetchError::Unsupported(why));
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| FetchError::Unsupported(error.to_string()))?;
        let builder = if self.file.is_some() {
            let builder = builder.dangerous();
            builder.with_custom_certificate_verifier(Arc::new(CacertVerifier::new(
                roots, named, provider,
            )?))
        } else {
            builder.with_root_certificates(roots)
        };
        Ok(Arc::new(builder.with_no_client_auth()))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, FetchError> {
        let Some(file) = &self.file else {
            return Ok(rustls_native_certs::load_native_certs().certs);
        };
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
        let name = thalweg_core::shown(file);
        read.map_err(|error| FetchError::Usage(format!("--cacert '{name}': {error}")))
    }

    /// Returns the TLS state for a connection to this server.
    pub fn begin(&self, host: &str) -> Result<ClientConnection, FetchError> {
        let config = if let Some(config) = self.config.get() {
            config.clone()
        } else {
            let read = self.read()?;
            self.config.get_or_init(|| read).clone()
        };
        let name = ServerName::try_from(host.to_owned());
        let name =
            name.map_err(|_| FetchError::Usage(format!("'{host}' is not a valid server name")))?;
        let untrusted = |error: rustls::Error| FetchError::Untrusted {
            host: host.to_owned(),
            why: words(&error),
        };
        ClientConnection::new(config, name).map_err(untrusted)
    }
}

/// Verifies servers by the certificates of `--cacert`. A server may also present one of these certificates as its own,
/// even if it is a CA certificate: `openssl req -x509` creates such certificates, and other clients accept them.
#[derive(Debug)]
struct CacertVerifier {
    usual: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl CacertVerifier {
    fn new(
        roots: RootCertStore,
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, FetchError> {
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let usual = builder.build().map_err(|error| FetchError::Unsupported(error.to_string()))?;
        Ok(Self { usual, certificates })
    }
}

impl ServerCertVerifier for CacertVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.usual.verify_server_cert(own, others, name, ocsp, now) {
            // webpki checks the dates before it reports this error, but not the name. The name is therefore checked
            // here.
            Err(error) if is_of_authority(&error) && self.certificates.contains(own) => {
                verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// Returns `true` if the only error is that the server's own certificate is a CA certificate. rustls has no variant for
/// this error.
fn is_of_authority(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return false;
    };
    other.0.to_string() == "CaUsedAsEndEntity"
}

/// Returns the reason why a server is not trusted, from the error of a read.
pub fn why(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    inner.map_or_else(|| error.to_string(), words)
}

/// Returns the message of a rustls error, in plain words if the user can act on it.
fn words(error: &rustls::Error) -> String {
    use CertificateError as Wrong;
    let rustls::Error::InvalidCertificate(wrong) = error else { return error.to_string() };
    let words = match wrong {
        Wrong::Expired | Wrong::ExpiredContext { .. } => {
            "the certificate has expired (or this machine's clock is wrong)"
        }
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            "the certificate is not valid yet (or this machine's clock is wrong)"
        }
        Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
            "the certificate is for another name"
        }
        Wrong::Revoked => "the certificate was revoked",
        Wrong::UnknownIssuer => {
            "the certificate is signed by an unknown authority; to trust it, use --cacert FILE"
        }
        _ => return error.to_string(),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_certificate_is_said_in_words() {
        let said = |wrong| why(&std::io::Error::other(rustls::Error::InvalidCertificate(wrong)));
        assert!(said(CertificateError::Expired).contains("has expired"));
        assert!(said(CertificateError::NotValidForName).contains("another name"));
        assert!(said(CertificateError::UnknownIssuer).contains("--cacert"));
        assert!(said(CertificateError::BadEncoding).contains("BadEncoding"));
        assert_eq!(why(&std::io::Error::other("else")), "else");
    }
}
