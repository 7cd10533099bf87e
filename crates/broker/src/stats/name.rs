//! The names of the statistics and what their keys are made of.

macro_rules! stats_names {
    ($($name:ident,)*) => {
        /// Statistics that VIEW_BROKER_STATS_DATA shows (`docs/spec/03-broker.md` 10.1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names are the protocol's")]
        pub(crate) enum StatsName { $($name),* }

        impl StatsName {
            /// Every name, in the order of the variants.
            pub(crate) const ALL: &[StatsName] = &[$(StatsName::$name),*];

            /// The name on the wire.
            pub(crate) fn text(self) -> &'static str {
                match self { $(StatsName::$name => stringify!($name)),* }
            }
        }
    };
}

stats_names! {
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    TOPIC_PUT_LATENCY,
    QUEUE_PUT_NUMS,
    QUEUE_PUT_SIZE,
    QUEUE_GET_NUMS,
    QUEUE_GET_SIZE,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    GROUP_GET_LATENCY,
    GROUP_CK_NUMS,
    GROUP_ACK_NUMS,
    SNDBCK_PUT_NUMS,
    SNDBCK2DLQ_TIMES,
    DLQ_PUT_NUMS,
    GROUP_GET_FROM_DISK_NUMS,
    GROUP_GET_FROM_DISK_SIZE,
    BROKER_GET_FROM_DISK_NUMS,
    BROKER_GET_FROM_DISK_SIZE,
    BROKER_PUT_NUMS,
    BROKER_GET_NUMS,
    BROKER_ACK_NUMS,
    BROKER_CK_NUMS,
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC,
    BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC,
    CONSUMER_REGISTER_TIME,
    PRODUCER_REGISTER_TIME,
    CHANNEL_ACTIVITY,
    COMMERCIAL_SEND_TIMES,
    COMMERCIAL_SNDBCK_TIMES,
    COMMERCIAL_RCV_TIMES,
    COMMERCIAL_RCV_EPOLLS,
    COMMERCIAL_SEND_SIZE,
    COMMERCIAL_RCV_SIZE,
    COMMERCIAL_PERM_FAILURES,
}

use StatsName::*;

impl StatsName {
    /// The statistics of that name.
    pub(crate) fn parse(text: &str) -> Option<StatsName> {
        Self::ALL.iter().copied().find(|name| name.text() == text)
    }

    /// The topic that a key names, if the statistics are about topics.
    fn topic_of(self, key: &str) -> Option<&str> {
        match self {
            TOPIC_PUT_NUMS | TOPIC_PUT_SIZE | QUEUE_PUT_NUMS | QUEUE_PUT_SIZE | QUEUE_GET_NUMS
            | QUEUE_GET_SIZE | GROUP_GET_NUMS | GROUP_GET_SIZE | GROUP_CK_NUMS | GROUP_ACK_NUMS
            | SNDBCK_PUT_NUMS => key.split('@').next(),
            TOPIC_PUT_LATENCY => key.rsplit('@').next(),
            GROUP_GET_LATENCY => key.rsplit('@').nth(1),
            _ => None,
        }
    }

    /// The group that a key names, if the statistics are about groups.
    fn group_of(self, key: &str) -> Option<&str> {
        match self {
            GROUP_GET_NUMS | GROUP_GET_SIZE | GROUP_GET_LATENCY | GROUP_CK_NUMS | GROUP_ACK_NUMS
            | SNDBCK_PUT_NUMS | QUEUE_GET_NUMS | QUEUE_GET_SIZE => key.rsplit('@').next(),
            _ => None,
        }
    }

    /// Whether there is an item for every topic or group.
    pub(crate) fn is_of_topics_or_groups(self) -> bool {
        self.topic_of("").is_some() || self.group_of("").is_some()
    }

    /// Whether the key is one of this topic's.
    pub(crate) fn is_of_topic(self, key: &str, topic: &str) -> bool {
        self.topic_of(key) == Some(topic)
    }

    /// Whether the key is one of this group's.
    pub(crate) fn is_of_group(self, key: &str, group: &str) -> bool {
        self.group_of(key) == Some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_text() {
        for (index, name) in StatsName::ALL.iter().enumerate() {
            assert_eq!(*name as usize, index);
            assert_eq!(StatsName::parse(name.text()), Some(*name));
        }
        assert_eq!(StatsName::parse("NOPE"), None);
    }

    #[test]
    fn keys_belong_to_topics_and_groups_by_whole_pieces() {
        assert!(TOPIC_PUT_NUMS.is_of_topic("orders", "orders"));
        assert!(!TOPIC_PUT_NUMS.is_of_topic("orders2", "orders"));
        assert!(TOPIC_PUT_LATENCY.is_of_topic("7@orders", "orders"));
        assert!(GROUP_GET_LATENCY.is_of_topic("0@orders@pay", "orders"));
        assert!(GROUP_GET_LATENCY.is_of_topic("orders@pay", "orders"));
        assert!(GROUP_GET_LATENCY.is_of_group("0@orders@pay", "pay"));
        assert!(!GROUP_GET_NUMS.is_of_group("orders@repay", "pay"));
        assert!(!BROKER_PUT_NUMS.is_of_topic("DefaultCluster", "DefaultCluster"));
    }
}
