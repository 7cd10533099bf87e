//! Encrypted connections: whom a client believes, and who believes it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use ferromq_client::{Error, Message, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::fake::{self, FakeServer, Reply};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Two authorities, and what the first one has signed, as files.
struct Certificates {
    directory: TempDir,
}

impl Certificates {
    fn new() -> Self {
        let certificates = Self { directory: tempfile::tempdir().unwrap() };
        let authority = |name: &str| {
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            std::fs::write(certificates.file(name), authority.pem()).unwrap();
            authority
        };
        let (ours, _) = (authority("ca"), authority("stranger"));
        for (file, name) in [("server", "mq.example"), ("client", "client.example")] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &ours).unwrap();
            std::fs::write(certificates.file(file), certificate.pem()).unwrap();
            std::fs::write(certificates.file(&format!("{file}-key")), key.serialize_pem()).unwrap();
        }
        certificates
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.file(name)).unwrap()
    }

    /// A server with the certificate of `mq.example`; clients must show one if `asks_clients`.
    fn acceptor(&self, asks_clients: bool) -> TlsAcceptor {
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = if asks_clients {
            let mut roots = RootCertStore::empty();
            roots.add(self.read("ca")).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from_pem_file(self.file("server-key")).unwrap();
        let config = builder.with_single_cert(vec![self.read("server")], key).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// An address whose connections are decrypted and led to `server`.
async fn in_front_of(server: &FakeServer, acceptor: TlsAcceptor) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, behind) = (listener.local_addr().unwrap().to_string(), server.address.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, behind) = (acceptor.clone(), behind.clone());
            tokio::spawn(async move {
                let Ok(mut outer) = acceptor.accept(stream).await else { return };
                let mut inner = TcpStream::connect(behind).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
            });
        }
    });
    address
}

/// Sends a message of `bytes` through name server and broker that both are encrypted.
async fn send(acceptor: TlsAcceptor, tls: Tls, bytes: usize) -> Result<(), Error> {
    let broker = fake::broker(|_| Reply::Answer(fake::stored(0)));
    let broker_address = in_front_of(&broker, acceptor.clone()).await;
    let name_server = fake::name_server(move || fake::route(&[("a", &broker_address)]));
    let front = in_front_of(&name_server, acceptor).await;
    let client = ferromq_client::Client::builder(front).client_ip("127.0.0.1").tls(tls).start()?;
    let producer = client.producer("p").compress_msg_body_over_howmuch(usize::MAX).start().await?;
    let sent = producer.send(Message::new("T", vec![7; bytes])).await;
    client.shutdown().await;
    sent.map(drop)
}

#[tokio::test]
async fn a_server_must_show_a_certificate_that_is_trusted_for_its_name() {
    let certificates = Certificates::new();
    let acceptor = certificates.acceptor(false);
    let trusting = |name: &str| Tls::trusting(certificates.file(name));
    // More than sockets hold at once.
    let bytes = 3 << 20;
    send(acceptor.clone(), trusting("ca").server_name("mq.example"), bytes).await.unwrap();
    send(acceptor.clone(), trusting("ca").any_server_name(), bytes).await.unwrap();
    send(acceptor.clone(), Tls::insecure(), bytes).await.unwrap();
    for refused in [
        trusting("ca"),
        trusting("ca").server_name("other.example"),
        trusting("stranger").server_name("mq.example"),
        trusting("stranger").any_server_name(),
    ] {
        let error = send(acceptor.clone(), refused.clone(), 1).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{refused:?}: {error}");
    }
}

#[tokio::test]
async fn a_client_shows_its_certificate_where_that_is_asked() {
    let certificates = Certificates::new();
    let acceptor = certificates.acceptor(true);
    let tls = Tls::trusting(certificates.file("ca")).server_name("mq.example");
    assert!(send(acceptor.clone(), tls.clone(), 1).await.is_err());
    let known = tls.client_certificate(certificates.file("client"), certificates.file("client-key"));
    send(acceptor, known, 1).await.unwrap();
}

#[tokio::test]
async fn files_that_can_t_be_used_are_named() {
    let certificates = Certificates::new();
    for tls in [
        Tls::trusting(certificates.file("missing")),
        Tls::trusting(certificates.file("client-key")),
        Tls::insecure().client_certificate(certificates.file("client"), certificates.file("missing")),
        Tls::insecure().server_name("not a name"),
    ] {
        let error = ferromq_client::Client::builder("127.0.0.1:9876").tls(tls.clone()).start().unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{tls:?}: {error}");
    }
}
