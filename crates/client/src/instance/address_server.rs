//! A web server that knows the name servers (`docs/spec/06-namesrv.md` 13.2).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How often a server is asked.
const DEFAULT_PERIOD: Duration = Duration::from_secs(120);
/// Time-out of a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(3);
/// A list of name servers is shorter than this.
const BODY_MAX: usize = 64 * 1024;
/// The port of an address server whose domain names none.
const DEFAULT_PORT: &str = "8080";

/// A web server that tells clients where the name servers are, `http://<domain>/rocketmq/<sub-group>`.
///
/// Its answer is a list like `host:port;host:port`. It is asked when the client starts, after 10 seconds, and then every 2
/// minutes; when it doesn't answer, the list stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressServer {
    domain: String,
    sub_group: String,
    parameters: Vec<(String, String)>,
    period: Duration,
}

/// The one that every RocketMQ client looks for: `http://jmenv.tbsite.net:8080/rocketmq/nsaddr`. That name is meant to be
/// given an address inside of one's own network.
impl Default for AddressServer {
    fn default() -> Self {
        Self::new("jmenv.tbsite.net")
    }
}

impl AddressServer {
    /// The address server at `host`, port 8080, or at `host:port` (`rocketmq.namesrv.domain`).
    pub fn new(domain: impl Into<String>) -> Self {
        let (sub_group, parameters) = ("nsaddr".to_owned(), Vec::new());
        Self { domain: domain.into(), sub_group, parameters, period: DEFAULT_PERIOD }
    }

    /// The same with another list of that server (`rocketmq.namesrv.domain.subgroup`); default `nsaddr`.
    #[must_use]
    pub fn sub_group(mut self, name: impl Into<String>) -> Self {
        self.sub_group = name.into();
        self
    }

    /// The same with one more parameter for the server.
    #[must_use]
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// The same, asked more or less often; default 2 minutes.
    #[must_use]
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period.max(Duration::from_millis(1));
        self
    }

    /// What to fetch for a client of this unit.
    pub(super) fn lookup(&self, unit: Option<&str>) -> Lookup {
        let authority = if self.domain.contains(':') {
            self.domain.clone()
        } else {
            format!("{}:{DEFAULT_PORT}", self.domain)
        };
        let unit = unit.filter(|unit| !unit.trim().is_empty());
        let suffix = unit.map_or_else(String::new, |unit| format!("-{unit}"));
        let mut query: Vec<String> = unit.iter().map(|_| "nofix=1".to_owned()).collect();
        query.extend(self.parameters.iter().map(|(name, value)| format!("{name}={value}")));
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        Lookup {
            authority,
            path: format!("/rocketmq/{}{suffix}{query}", self.sub_group),
            period: self.period,
        }
    }
}

/// A page with a list of name servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    authority: String,
    path: String,
    /// How often.
    pub(super) period: Duration,
}

/// Why there is no list.
#[derive(Debug, Error)]
pub(super) enum FetchError {
    #[error("it can't be reached: {0}")]
    Connect(#[from] std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("the address is not one: {0}")]
    Address(#[from] hyper::http::Error),
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("its answer can't be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("its answer is empty")]
    Empty,
    #[error("it does not answer within {FETCH_TIMEOUT:?}")]
    Timeout,
}

impl Lookup {
    pub(super) fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.path)
    }

    /// Gets the list.
    pub(super) async fn fetch(&self) -> Result<String, FetchError> {
        let body = timeout(FETCH_TIMEOUT, self.get()).await.map_err(|_| FetchError::Timeout)??;
        first_line(&String::from_utf8_lossy(&body)).ok_or(FetchError::Empty)
    }

    async fn get(&self) -> Result<Bytes, FetchError> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let request = Request::get(&self.path)
            .header(HOST, &self.authority)
            .header("Client-Version", "V5_3_3")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded;charset=UTF-8")
            .header("Metaq-Client-RequestTS", now_ms.to_string())
            .body(Empty::<Bytes>::new())?;
        let stream = TcpStream::connect(&self.authority).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // It owns the sender: with that the connection ends, too.
        let exchange = async move {
            let response = sender.send_request(request).await?;
            if response.status() != StatusCode::OK {
                return Err(FetchError::Status(response.status()));
            }
            let body = Limited::new(response.into_body(), BODY_MAX).collect().await;
            body.map(|body| body.to_bytes()).map_err(FetchError::Body)
        };
        tokio::join!(exchange, connection).0
    }
}

/// What stands before the first line's end.
fn first_line(body: &str) -> Option<String> {
    let body = body.trim();
    let end = body.find('\r').or_else(|| body.find('\n')).unwrap_or(body.len());
    let line = body[..end].trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_the_spec_16_8() {
        let base = AddressServer::default();
        let with = |list: &[(&str, &str)]| {
            list.iter().fold(base.clone(), |server, (name, value)| server.parameter(*name, *value))
        };
        let page = |server: &AddressServer, unit| server.lookup(unit).path;
        assert_eq!(base.lookup(None).url(), "http://jmenv.tbsite.net:8080/rocketmq/nsaddr");
        assert_eq!(page(&base, Some("unitA")), "/rocketmq/nsaddr-unitA?nofix=1");
        let two = with(&[("k", "v"), ("k2", "v2")]);
        assert_eq!(page(&two, Some("u")), "/rocketmq/nsaddr-u?nofix=1&k=v&k2=v2");
        assert_eq!(page(&two, Some(" ")), "/rocketmq/nsaddr?k=v&k2=v2");
        let own = AddressServer::new("my.host:9999").sub_group("grp");
        assert_eq!(own.lookup(None).url(), "http://my.host:9999/rocketmq/grp");
    }

    #[test]
    fn the_list_is_the_first_line() {
        assert_eq!(
            first_line(" 1.1.1.1:9876;2.2.2.2:9876\r\nx\n").as_deref(),
            Some("1.1.1.1:9876;2.2.2.2:9876")
        );
        assert_eq!(first_line("a:1\nb:2").as_deref(), Some("a:1"));
        assert_eq!(first_line("\r\n "), None);
    }
}
