//! The ring of hashes (`docs/spec/07-client.md` 14.6).

use std::collections::BTreeMap;

use md5::{Digest, Md5};

/// Members at several places each on a ring of 32-bit numbers. A key belongs to the next member at or behind its hash.
#[derive(Debug)]
pub(super) struct Ring<'a> {
    places: BTreeMap<u32, &'a str>,
}

impl<'a> Ring<'a> {
    pub(super) fn new(members: &'a [String], virtual_nodes: usize) -> Self {
        let places = members.iter().flat_map(|member| {
            (0..virtual_nodes.max(1))
                .map(move |number| (position(&format!("{member}-{number}")), member.as_str()))
        });
        Self { places: places.collect() }
    }

    pub(super) fn owner(&self, key: &str) -> Option<&'a str> {
        let behind = self.places.range(position(key)..).next();
        behind.or_else(|| self.places.first_key_value()).map(|(_, member)| *member)
    }
}

fn position(key: &str) -> u32 {
    let hash = Md5::digest(key.as_bytes());
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_the_spec_25_10() {
        assert_eq!(position("c1@1-0"), 1_615_083_029);
        assert_eq!(position("c1@1-9"), 881_759_114);
        assert_eq!(position("MessageQueue [topic=T, brokerName=broker-a, queueId=0]"), 1_630_488_180);
    }
}
