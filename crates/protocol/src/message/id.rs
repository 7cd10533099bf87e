//! Message ids (`docs/spec/01-remoting.md` §6.4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

/// Appends the offset message id: upper-case hex of store host, port (4 bytes) and physical offset (8 bytes); 32
/// digits for IPv4, 56 for IPv6.
pub fn write_offset_id(out: &mut String, store_host: SocketAddr, physical_offset: u64) {
    match store_host.ip() {
        IpAddr::V4(ip) => push_hex(out, &ip.octets()),
        IpAddr::V6(ip) => push_hex(out, &ip.octets()),
    }
    push_hex(out, &u32::from(store_host.port()).to_be_bytes());
    push_hex(out, &physical_offset.to_be_bytes());
}

/// The offset message id as a new string, see [`write_offset_id`].
pub fn offset_id(store_host: SocketAddr, physical_offset: u64) -> String {
    let mut id = String::with_capacity(56);
    write_offset_id(&mut id, store_host, physical_offset);
    id
}

/// Store host and physical offset of an offset message id; `None` if it is not one.
pub fn parse_offset_id(id: &str) -> Option<(SocketAddr, u64)> {
    let mut bytes = [0u8; 28];
    let len = match id.len() {
        32 => 16,
        56 => 28,
        _ => return None,
    };
    for (byte, digits) in bytes.iter_mut().zip(id.as_bytes().chunks_exact(2)) {
        let high = char::from(digits[0]).to_digit(16)?;
        let low = char::from(digits[1]).to_digit(16)?;
        *byte = (high << 4 | low) as u8;
    }
    let bytes = &bytes[..len];
    let ip = if len == 16 {
        IpAddr::from(<[u8; 4]>::try_from(&bytes[..4]).ok()?)
    } else {
        IpAddr::from(<[u8; 16]>::try_from(&bytes[..16]).ok()?)
    };
    let port = u16::try_from(u32::from_be_bytes(bytes[len - 12..len - 8].try_into().ok()?)).ok()?;
    let physical_offset = i64::from_be_bytes(bytes[len - 8..].try_into().ok()?);
    Some((SocketAddr::new(ip, port), u64::try_from(physical_offset).ok()?))
}

/// Generator of client unique ids (`UNIQ_KEY`), for messages that arrive without one.
///
/// Layout: address, process id (16 bits), a number of this generator (32 bits; Java has its class loader's hash
/// here), milliseconds since the start of the month (32 bits), counter (16 bits), as upper-case hex.
#[derive(Debug)]
pub struct UniqueIds {
    prefix: String,
    counter: AtomicU32,
}

impl UniqueIds {
    /// Ids of this process; `instance` should differ between generators on one address.
    pub fn new(address: IpAddr, process_id: u32, instance: u32) -> Self {
        let mut prefix = String::with_capacity(44);
        match address {
            IpAddr::V4(ip) => push_hex(&mut prefix, &ip.octets()),
            IpAddr::V6(ip) => push_hex(&mut prefix, &ip.octets()),
        }
        push_hex(&mut prefix, &(process_id as u16).to_be_bytes());
        push_hex(&mut prefix, &instance.to_be_bytes());
        UniqueIds { prefix, counter: AtomicU32::new(0) }
    }

    /// Appends the next id. `month_millis` is the number of milliseconds since the current month began (local time).
    pub fn write_next(&self, out: &mut String, month_millis: u32) {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        out.push_str(&self.prefix);
        push_hex(out, &month_millis.to_be_bytes());
        push_hex(out, &(count as u16).to_be_bytes());
    }
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    out.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]));
}

/// An unspecified address of the same family, for places that have none.
pub fn unspecified_like(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_ids_are_those_of_the_reference() {
        // docs/spec/01-remoting.md §9.12
        let v4: SocketAddr = "192.168.1.2:10911".parse().unwrap();
        let v6: SocketAddr = "[2001:db8::1]:10911".parse().unwrap();
        assert_eq!(offset_id(v4, 123_456_789), "C0A8010200002A9F00000000075BCD15");
        assert_eq!(offset_id(v6, 123_456_789), "20010DB800000000000000000000000100002A9F00000000075BCD15");
        assert_eq!(parse_offset_id("C0A8010200002A9F000000000000007B"), Some((v4, 123)));
        assert_eq!(
            parse_offset_id("20010DB800000000000000000000000100002A9F00000000075BCD15"),
            Some((v6, 123_456_789))
        );
        for bad in [
            "",
            "C0A8",
            "C0A8010200002A9F00000000000000Z8",
            "C0A8010200012A9F000000000000007B",
            "äöäöäöäöäöäöäöäö",
        ] {
            assert_eq!(parse_offset_id(bad), None, "{bad}");
        }
        assert_eq!(parse_offset_id("C0A8010200002A9FFFFFFFFFFFFFFFFF"), None, "negative offset");
    }

    #[test]
    fn unique_ids_differ_and_have_the_right_form() {
        let ids = UniqueIds::new("10.0.0.1".parse().unwrap(), 0x3039, 0x18B4_AAC2);
        let (mut first, mut second) = (String::new(), String::new());
        ids.write_next(&mut first, 1);
        ids.write_next(&mut second, 1);
        assert_eq!(first, "0A000001303918B4AAC2000000010000");
        assert_eq!(second, "0A000001303918B4AAC2000000010001");
    }
}
