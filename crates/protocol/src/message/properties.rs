//! The properties list: `name 0x01 value 0x02` repeated (`docs/spec/01-remoting.md` §6.2.1, `02-store.md` §4.5).
//!
//! Reading is lenient as the reference is: a missing last `0x02` is fine; a pair that is shorter than three bytes,
//! has no `0x01`, an empty name or an empty value is ignored; the value begins after the *first* `0x01`; of two
//! pairs with one name the last one counts.

const NAME_END: u8 = 1;
const VALUE_END: u8 = 2;

/// The message's keys, separated by single blanks.
pub const KEYS: &str = "KEYS";
/// The message's tag.
pub const TAGS: &str = "TAGS";
/// The id that the client gave the message.
pub const UNIQ_KEY: &str = "UNIQ_KEY";
/// Delay level.
pub const DELAY: &str = "DELAY";
/// `false`: answer before flush and replication.
pub const WAIT: &str = "WAIT";

/// The pairs of an encoded list in their order, without those that readers ignore. Bytes that are not UTF-8 make
/// their pair ignored.
pub fn iter(encoded: &[u8]) -> impl Iterator<Item = (&str, &str)> + Clone {
    iter_bytes(encoded)
        .filter_map(|(name, value)| Some((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?)))
}

/// As [`iter`], without looking at whether names and values are UTF-8: for hot paths that want few of them.
pub fn iter_bytes(encoded: &[u8]) -> Pairs<'_> {
    Pairs { rest: encoded }
}

/// Iterator of [`iter_bytes`].
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let pair = match memchr::memchr(VALUE_END, self.rest) {
                Some(end) => {
                    let pair = &self.rest[..end];
                    self.rest = &self.rest[end + 1..];
                    pair
                }
                None => std::mem::take(&mut self.rest),
            };
            if let Some(pair) = split(pair) {
                return Some(pair);
            }
        }
        None
    }
}

/// Name and value of one pair without its end mark; `None` if readers ignore it.
fn split(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(NAME_END, pair)?;
    (at > 0 && at + 1 < pair.len()).then(|| (&pair[..at], &pair[at + 1..]))
}

/// Value of the property `name`; of several the last one.
pub fn find<'a>(encoded: &'a [u8], name: &str) -> Option<&'a str> {
    let mut found = None;
    let mut rest = encoded;
    while !rest.is_empty() {
        let end = memchr::memchr(VALUE_END, rest).unwrap_or(rest.len());
        let pair = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        if pair.len() > name.len() + 1 && pair[name.len()] == NAME_END && pair.starts_with(name.as_bytes()) {
            found = std::str::from_utf8(&pair[name.len() + 1..]).ok().or(found);
        }
    }
    found
}

/// Appends one pair. An end mark is put first if the list lacks its last one. A name or value that is empty or
/// contains a mark can't be represented: such a pair is not written, and `false` is returned.
pub fn append(encoded: &mut Vec<u8>, name: &str, value: &str) -> bool {
    let marked = |text: &str| memchr::memchr2(NAME_END, VALUE_END, text.as_bytes()).is_some();
    if name.is_empty()
        || value.is_empty()
        || marked(name)
        || memchr::memchr(VALUE_END, value.as_bytes()).is_some()
    {
        return false;
    }
    if encoded.last().is_some_and(|last| *last != VALUE_END) {
        encoded.push(VALUE_END);
    }
    encoded.extend_from_slice(name.as_bytes());
    encoded.push(NAME_END);
    encoded.extend_from_slice(value.as_bytes());
    encoded.push(VALUE_END);
    true
}

/// Appends every pair of `encoded` to `out` except those whose name `dropped` says yes to. Pairs that readers
/// ignore are left out too.
pub fn copy_without(encoded: &[u8], out: &mut Vec<u8>, mut dropped: impl FnMut(&str) -> bool) {
    for (name, value) in iter(encoded) {
        if !dropped(name) {
            append(out, name, value);
        }
    }
}

/// Whether stored properties can be trusted: no zero byte, and UTF-8. Zeros are what a page that never reached the
/// disk looks like, and no client writes them.
pub fn is_sound(encoded: &[u8]) -> bool {
    memchr::memchr(0, encoded).is_none() && std::str::from_utf8(encoded).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(encoded: &[u8]) -> Vec<(&str, &str)> {
        iter(encoded).collect()
    }

    #[test]
    fn reads_as_the_reference_does() {
        // docs/spec/01-remoting.md §9.11
        assert_eq!(pairs(b"a\x01b\x02"), [("a", "b")]);
        assert_eq!(pairs(b"a\x01b"), [("a", "b")]);
        assert_eq!(pairs(b"a\x01\x02"), []);
        assert_eq!(pairs(b"\x01b\x02"), []);
        assert_eq!(pairs(b"ab\x02"), []);
        assert_eq!(pairs(b"a\x01b\x01c\x02"), [("a", "b\x01c")]);
        assert_eq!(pairs(b"x\x01\x02y\x012\x02"), [("y", "2")]);
        assert_eq!(pairs(b"a\x01b\x02\x02c\x01d"), [("a", "b"), ("c", "d")]);
        assert_eq!(pairs(b""), []);
    }

    #[test]
    fn the_last_of_two_counts() {
        // docs/spec/02-store.md §18.4
        let list = b"a\x011\x02b\x01\x02\x01c\x02d\x014\x02a\x012\x02e\x015";
        assert_eq!(find(list, "a"), Some("2"));
        assert_eq!(find(list, "b"), None);
        assert_eq!(find(list, "d"), Some("4"));
        assert_eq!(find(list, "e"), Some("5"));
        assert_eq!(find(list, "c"), None);
        assert_eq!(find(b"KEYSX\x01a\x02KEYS\x01k1 k2\x02", KEYS), Some("k1 k2"));
    }

    #[test]
    fn writes_what_it_reads() {
        let mut list = b"TAGS\x01TagA".to_vec();
        assert!(append(&mut list, "WAIT", "true"));
        assert_eq!(list, b"TAGS\x01TagA\x02WAIT\x01true\x02");
        assert!(!append(&mut list, "", "x"));
        assert!(!append(&mut list, "x", ""));
        assert!(!append(&mut list, "x", "a\x02b"));
        let mut copy = Vec::new();
        copy_without(&list, &mut copy, |name| name == "TAGS");
        assert_eq!(copy, b"WAIT\x01true\x02");
        assert!(is_sound(&list));
        assert!(!is_sound(b"a\x01b\0c\x02"));
        assert!(!is_sound(&[b'a', 1, 0xff, 2]));
    }
}
