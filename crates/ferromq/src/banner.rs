//! What a server prints when it is ready: where it listens, and what to try next.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use ferromq_broker::config::BrokerConfig;
use ferromq_protocol::frame::HeaderEncoding;

/// Lines of a banner.
#[derive(Debug, Default)]
pub(crate) struct Banner {
    title: String,
    facts: Vec<(&'static str, String)>,
    hints: Vec<String>,
    /// What RocketMQ prints, and scripts wait for.
    java_lines: Vec<String>,
}

impl Banner {
    pub(crate) fn new(command: &str) -> Self {
        let title = format!("FerroMQ {} {command}", env!("CARGO_PKG_VERSION"));
        Self { title, ..Self::default() }
    }

    pub(crate) fn fact(&mut self, name: &'static str, value: impl Display) {
        self.facts.push((name, value.to_string()));
    }

    pub(crate) fn hint(&mut self, hint: impl Display) {
        self.hints.push(hint.to_string());
    }

    pub(crate) fn namesrv_started(&mut self, bind_address: &str, port: u16) {
        let line = format!("The Name Server boot success. serializeType=JSON, address {bind_address}:{port}");
        self.java_lines.push(line);
    }

    pub(crate) fn controller_started(&mut self) {
        self.java_lines.push("The Controller Server boot success. serializeType=JSON".to_owned());
    }

    pub(crate) fn controller_in_namesrv_started(&mut self) {
        self.java_lines.push("The ControllerManager boot success. serializeType=JSON".to_owned());
    }

    pub(crate) fn broker_started(&mut self, config: &BrokerConfig) {
        let serialize_type = match config.header_encoding() {
            HeaderEncoding::Json => "JSON",
            HeaderEncoding::Binary => "ROCKETMQ",
        };
        let (name, address) = (&config.broker_name, config.broker_address());
        let mut line = format!("The broker[{name}, {address}] boot success. serializeType={serialize_type}");
        if let Some(name_servers) = &config.namesrv_addr {
            line += &format!(" and name server is {name_servers}");
        }
        self.java_lines.push(line);
    }

    pub(crate) fn print(&self) {
        let mut out = io::stdout().lock();
        let is_pretty = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        // A server runs on when nobody reads what it prints.
        let _ = write!(out, "{}", Text { banner: self, is_pretty }).and_then(|()| out.flush());
    }
}

struct Text<'a> {
    banner: &'a Banner,
    is_pretty: bool,
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bold, dim, plain) =
            if self.is_pretty { ("\x1b[1m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        let banner = self.banner;
        writeln!(f, "\n  {bold}{}{plain}\n", banner.title)?;
        let width = banner.facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &banner.facts {
            writeln!(f, "  {dim}{name:<width$}{plain}  {value}")?;
        }
        if !banner.hints.is_empty() {
            writeln!(f, "\n  {dim}try next{plain}")?;
            for hint in &banner.hints {
                writeln!(f, "    {hint}")?;
            }
        }
        writeln!(f)?;
        banner.java_lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// A path as it can be typed anywhere.
pub(crate) fn absolute(path: &str) -> String {
    std::path::absolute(path).as_deref().unwrap_or(Path::new(path)).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banner() -> Banner {
        let mut banner = Banner::new("broker");
        banner.fact("broker", "10.0.0.1:10911");
        banner.fact("store", "/data");
        banner.hint("mqadmin clusterList -n 10.0.0.2:9876");
        let mut config = BrokerConfig { broker_name: "broker-a".into(), ..BrokerConfig::default() };
        config.broker_ip1 = "10.0.0.1".into();
        config.namesrv_addr = Some("10.0.0.2:9876".into());
        banner.broker_started(&config);
        banner
    }

    #[test]
    fn plain() {
        let expected = format!(
            "\n  FerroMQ {} broker\n\n  broker  10.0.0.1:10911\n  store   /data\n\n  try next\n    \
             mqadmin clusterList -n 10.0.0.2:9876\n\n\
             The broker[broker-a, 10.0.0.1:10911] boot success. serializeType=JSON and name server is 10.0.0.2:9876\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(Text { banner: &banner(), is_pretty: false }.to_string(), expected);
    }

    #[test]
    fn a_terminal_gets_colours() {
        assert!(Text { banner: &banner(), is_pretty: true }.to_string().contains("\x1b[1mFerroMQ"));
    }
}
