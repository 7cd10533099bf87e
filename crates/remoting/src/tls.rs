//! Encrypted connections of clients (`docs/spec/01-remoting.md` 2).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use thiserror::Error;

/// Whom a client trusts and who it says it is, when its connections are encrypted. Files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    trust: Trust,
    /// Certificate chain and private key.
    identity: Option<(PathBuf, PathBuf)>,
    server_name: NameCheck,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Trust {
    Roots(PathBuf),
    Everybody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NameCheck {
    Address,
    Name(String),
    None,
}

impl Tls {
    /// Servers must show a certificate that one of the authorities in this file signed (`tls.client.authServer=true` with
    /// `tls.client.trustCertPath`), for the host that the connection goes to.
    pub fn trusting(authorities: impl Into<PathBuf>) -> Self {
        Self { trust: Trust::Roots(authorities.into()), identity: None, server_name: NameCheck::Address }
    }

    /// Encrypts, and believes any server to be who it says it is (`tls.client.authServer=false`): for tests. Whoever sits
    /// between can read everything.
    pub fn insecure() -> Self {
        Self { trust: Trust::Everybody, identity: None, server_name: NameCheck::None }
    }

    /// Shows servers this certificate chain, to which this private key belongs (`tls.client.certPath`,
    /// `tls.client.keyPath`). The key must not be encrypted.
    #[must_use]
    pub fn client_certificate(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((chain.into(), key.into()));
        self
    }

    /// Certificates must be for this name, whatever the address is: brokers are known by their addresses, and one
    /// certificate may serve all of them.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = NameCheck::Name(name.into());
        self
    }

    /// Certificates may be for any name if an authority signed them, as with the Java client.
    #[must_use]
    pub fn any_server_name(mut self) -> Self {
        self.server_name = NameCheck::None;
        self
    }

    /// Reads the files.
    ///
    /// # Errors
    /// If a file can't be read or does not hold what it should.
    pub fn connector(&self) -> Result<TlsConnector, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions()?;
        let roots = match &self.trust {
            Trust::Everybody => None,
            Trust::Roots(file) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(file)? {
                    roots.add(certificate)?;
                }
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
                Some(verifier.build().map_err(|error| TlsError::unusable(file, error))?)
            }
        };
        let builder = match (roots, &self.server_name) {
            (Some(roots), NameCheck::Address | NameCheck::Name(_)) => builder.with_webpki_verifier(roots),
            (roots, _) => {
                let verifier = Arc::new(AnyName { roots, provider });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let key =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::unusable(key, error))?;
                builder.with_client_auth_cert(certificates(chain)?, key)?
            }
        };
        let name = match &self.server_name {
            NameCheck::Name(name) => Some(server_name(name)?),
            NameCheck::Address | NameCheck::None => None,
        };
        Ok(TlsConnector { connector: Arc::new(config).into(), name })
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unusable = |error| TlsError::unusable(file, error);
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(unusable)?.collect();
    let read = read.map_err(unusable)?;
    if read.is_empty() { Err(TlsError::unusable(file, "it holds no certificate")) } else { Ok(read) }
}

fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))
}

/// Why a client can't encrypt.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file.
    #[error("{file}: {reason}")]
    File {
        /// Its path.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Not the name of a host.
    #[error("`{0}` is not a server's name")]
    Name(String),
    /// The certificates or the key.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl TlsError {
    fn unusable(file: &Path, reason: impl ToString) -> Self {
        Self::File { file: file.to_owned(), reason: reason.to_string() }
    }
}

/// Encrypts the connections of a [`Client`](crate::Client).
#[derive(Clone)]
pub struct TlsConnector {
    connector: tokio_rustls::TlsConnector,
    /// `None`: the host in the address.
    name: Option<ServerName<'static>>,
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsConnector").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TlsConnector {
    /// Shakes hands over a connection to `address` (`host:port`). The reason why not is for people.
    pub(crate) async fn connect(
        &self,
        address: &str,
        stream: tokio::net::TcpStream,
    ) -> Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>, String> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                server_name(host.trim_matches(['[', ']'])).map_err(|error| error.to_string())?
            }
        };
        self.connector.connect(name, stream).await.map_err(|error| format!("TLS: {error}"))
    }
}

/// Looks at who signed a certificate, if at that, and not at whom it is for.
#[derive(Debug)]
struct AnyName {
    roots: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(roots) = &self.roots else { return Ok(ServerCertVerified::assertion()) };
        match roots.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is looked at last, so everything else was right.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
