//! Signed requests (`docs/spec/07-client.md` 22).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferromq_protocol::command::{FieldList, RemotingCommand};
use hmac::{Hmac, Mac};
use sha1::Sha1;

/// By which a client shows who it is to brokers and name servers with access control.
#[derive(Clone)]
pub struct Credentials {
    access_key: String,
    secret_key: String,
    security_token: Option<String>,
}

/// Without the secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials({})", self.access_key)
    }
}

impl Credentials {
    /// The name and the secret of a user.
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        Self { access_key: access_key.into(), secret_key: secret_key.into(), security_token: None }
    }

    /// The same with a token, for keys that were lent for a time.
    #[must_use]
    pub fn security_token(mut self, token: impl Into<String>) -> Self {
        self.security_token = Some(token.into());
        self
    }

    /// The request with its signature. It must be complete: whatever is added later is not covered.
    pub(crate) fn sign(&self, command: RemotingCommand) -> RemotingCommand {
        let command = command
            .with("AccessKey", &self.access_key)
            .with_some("SecurityToken", self.security_token.as_ref());
        let signature = self.signature(&command);
        command.with("Signature", signature)
    }

    /// The values of all fields in the order of their names, and the body, under the secret key.
    fn signature(&self, command: &RemotingCommand) -> String {
        let mut fields: Vec<_> = command.fields.iter().flat_map(FieldList::iter).collect();
        fields.sort();
        // Keys of any length make a key of this function.
        let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(self.secret_key.as_bytes()) else {
            return String::new();
        };
        for (_, value) in fields {
            mac.update(value.as_bytes());
        }
        mac.update(&command.body);
        STANDARD.encode(mac.finalize().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(credentials: &Credentials, command: RemotingCommand) -> String {
        credentials.sign(command).field("Signature").unwrap().to_owned()
    }

    #[test]
    fn signatures_of_the_spec_25_1() {
        let user = Credentials::new("rocketmq2", "12345678");
        let about_topic = || RemotingCommand::request(105).with("topic", "TopicTest");
        assert_eq!(signature(&user, about_topic()), "GeeGoP9mRvDhoVp4PD5omX0prgE=");
        let lent = Credentials::new("ak", "sk").security_token("token");
        assert_eq!(signature(&lent, about_topic()), "5NSc+Y1PJ1+Gv9JbYkaAPegCj4U=");
        let send = RemotingCommand::request(310)
            .with("a", "pg")
            .with("b", "TopicTest")
            .with("c", "TBW102")
            .with("d", 4)
            .with("e", 1)
            .with("f", 0)
            .with("g", 1_700_000_000_000_i64)
            .with("h", 0)
            .with("i", "UNIQ_KEY\u{1}0A000001\u{2}WAIT\u{1}true\u{2}")
            .with("j", 0)
            .with("k", false)
            .with("m", false)
            .with("n", "broker-a")
            .with_body("hello");
        assert_eq!(signature(&user, send), "pOvAdDNNPeoGG2m1tnn5MA1MbVM=");
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(format!("{:?}", Credentials::new("ak", "sk")), "Credentials(ak)");
    }
}
