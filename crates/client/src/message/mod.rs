//! Messages: [`Message`] on its way to a broker, [`MessageExt`] as a consumer gets it.

pub(crate) mod batch;
pub(crate) mod compression;
pub(crate) mod properties;
mod property_list;
mod pushed;
mod received;
mod unique_id;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::error::Error;

pub use compression::Compression;
pub use property_list::Properties;
pub(crate) use pushed::pushed_reply;
pub use received::MessageExt;
pub(crate) use received::{decode_pulled, decode_stored};
pub(crate) use unique_id::next_unique_id;

use properties as names;

/// A message to be sent.
///
/// ```
/// use ferromq_client::Message;
///
/// let message = Message::new("orders", "one espresso")
///     .tag("drinks")
///     .keys(["order-17", "table-3"])
///     .property("waiter", "Ada")
///     .delay_level(3);
/// assert_eq!(message.topic(), "orders");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub(crate) topic: String,
    pub(crate) body: Bytes,
    pub(crate) flag: i32,
    pub(crate) properties: Properties,
    /// A property that was refused; reported when the message is sent, so that building one needs no error handling.
    refused_property: Option<(String, &'static str)>,
}

impl Message {
    /// A message without tag and keys.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            topic: topic.into(),
            body: body.into(),
            flag: 0,
            properties: Properties::default(),
            refused_property: None,
        }
        .system(names::WAIT, "true")
    }

    /// The same with a tag, by which consumers can choose what they get.
    #[must_use]
    pub fn tag(self, tag: impl AsRef<str>) -> Self {
        self.system(names::TAGS, tag)
    }

    /// The same with keys, by which the message can be looked up.
    #[must_use]
    pub fn keys<K: AsRef<str>>(self, keys: impl IntoIterator<Item = K>) -> Self {
        let keys: Vec<K> = keys.into_iter().collect();
        let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
        self.system(names::KEYS, keys.join(" "))
    }

    /// The same with a flag that means something to the application only.
    #[must_use]
    pub fn flag(mut self, flag: i32) -> Self {
        self.flag = flag;
        self
    }

    /// The same with a property of the application. A name that belongs to the system, or a blank name or value, makes
    /// the send fail.
    #[must_use]
    pub fn property(self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        let (name, value) = (name.as_ref(), value.as_ref());
        match names::check_user(name, value) {
            Ok(()) => self.system(name, value),
            Err(reason) => self.refuse(name, reason),
        }
    }

    /// The same, to be delivered after the delay that the broker has under this level: 1 = 1 s, 2 = 5 s, 3 = 10 s,
    /// 4 = 30 s, 5 to 14 = 1 to 10 min, 15 = 20 min, 16 = 30 min, 17 = 1 h, 18 = 2 h, unless it is set up otherwise.
    #[must_use]
    pub fn delay_level(self, level: u32) -> Self {
        self.system(names::DELAY, level.to_string())
    }

    /// The same, to be delivered after any delay (timer message, RocketMQ 5; milliseconds count).
    #[must_use]
    pub fn deliver_after(self, delay: Duration) -> Self {
        self.system(names::TIMER_DELAY_MS, delay.as_millis().to_string())
    }

    /// The same, to be delivered at a time (timer message, RocketMQ 5; milliseconds count).
    #[must_use]
    pub fn deliver_at(self, time: SystemTime) -> Self {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.system(names::TIMER_DELIVER_MS, since_epoch.as_millis().to_string())
    }

    /// The same with a sharding key: all messages of a topic with one key go to one queue, in the order in which they are
    /// sent one after another.
    #[must_use]
    pub fn sharding_key(self, key: impl AsRef<str>) -> Self {
        self.system(names::SHARDING_KEY, key)
    }

    /// The same, acknowledged as soon as the master has it, even if its disk and its replicas would be waited for
    /// otherwise.
    #[must_use]
    pub fn without_waiting_for_store(self) -> Self {
        self.system(names::WAIT, "false")
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// A property, of the application or the system's own.
    pub fn get_property(&self, name: &str) -> Option<&str> {
        self.properties.get(name)
    }

    pub(crate) fn system(mut self, name: &str, value: impl AsRef<str>) -> Self {
        let value = value.as_ref();
        if value.is_empty() {
            self.properties.remove(name);
        } else if !self.properties.insert(name, value) {
            return self.refuse(name, "the characters 1 and 2 end names and values on the wire");
        }
        self
    }

    fn refuse(mut self, property: &str, reason: &'static str) -> Self {
        self.refused_property = Some((property.to_owned(), reason));
        self
    }

    /// Whether a property was refused.
    pub(crate) fn check_properties(&self) -> Result<(), Error> {
        match &self.refused_property {
            Some((name, reason)) => {
                Err(Error::invalid(format!("property `{}`", name.escape_debug()), *reason))
            }
            None => Ok(()),
        }
    }

    /// Gives the message a unique id, unless it has one.
    pub(crate) fn identify(&mut self) {
        if self.properties.get(names::UNIQ_KEY).is_none() {
            self.properties.append(names::UNIQ_KEY, &next_unique_id());
        }
    }

    pub(crate) fn delay_level_or_0(&self) -> i32 {
        self.get_property(names::DELAY).and_then(|level| level.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_that_can_t_be_sent_is_reported_with_the_send() {
        let message = || Message::new("T", "x").tag("A").property("colour", "red");
        assert!(message().check_properties().is_ok());
        for refused in [
            message().property("KEYS", "mine"),
            message().property("colour", ""),
            message().property("two\u{1}parts", "x"),
            message().keys(["a\u{2}b"]),
        ] {
            assert!(refused.check_properties().is_err(), "{refused:?}");
            assert_eq!(refused.get_property("colour"), Some("red"));
        }
    }
}
