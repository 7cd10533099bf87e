//! Who a client is: its address and its id (`docs/spec/07-client.md` 2).

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The instance name that stands for "none was chosen".
pub(crate) const DEFAULT_INSTANCE: &str = "DEFAULT";

/// Name of a client towards brokers and other members of its groups.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// `<ip>@<instance>`, with the unit and `@STREAM` behind it where they apply (2.1).
    pub(crate) client_id: String,
    /// The same for things that outlive a process: without an instance name of its own, a client has a new id after each
    /// start, and the offsets that a broadcasting consumer kept would be lost.
    pub(crate) lasting_id: String,
}

impl Identity {
    pub(crate) fn new(address: &str, instance: Option<&str>, unit: Option<&str>, stream: bool) -> Self {
        let named = instance.filter(|name| *name != DEFAULT_INSTANCE);
        let own = named.map_or_else(unique_instance, str::to_owned);
        Self {
            client_id: client_id(address, &own, unit, stream),
            lasting_id: client_id(address, named.unwrap_or(DEFAULT_INSTANCE), unit, stream),
        }
    }
}

fn client_id(address: &str, instance: &str, unit: Option<&str>, stream: bool) -> String {
    let mut id = format!("{address}@{instance}");
    if let Some(unit) = unit.filter(|unit| !unit.trim().is_empty()) {
        id.push('@');
        id.push_str(unit);
    }
    if stream {
        id.push_str("@STREAM");
    }
    id
}

/// `<pid>#<number>`: no other client on this machine has it, now or after a restart with the same process id.
fn unique_instance() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let taken = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(now.max(last + 1)));
    let number = taken.map_or(now, |last| now.max(last + 1));
    format!("{}#{number}", std::process::id())
}

/// The address that stands in client ids (2.2), IPv6 ones in brackets.
pub(crate) fn local_address() -> String {
    match choose_address(&interface_addresses()) {
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => format!("[{address}]"),
        None => "127.0.0.1".to_owned(),
    }
}

/// The addresses of all interfaces in the system's order.
pub(crate) fn interface_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    interfaces.iter().map(|interface| interface.ip()).collect()
}

/// The first public IPv4 address, else the last IPv4 one, else the first IPv6 one that is valid beyond its site, else the
/// first one.
fn choose_address(addresses: &[IpAddr]) -> Option<IpAddr> {
    let outward = || addresses.iter().filter(|address| !address.is_loopback());
    let v4 = || outward().filter(|address| address.is_ipv4());
    let public = v4().find(|address| !is_private(address));
    let v6 = outward().find(|address| address.is_ipv6() && !is_private(address));
    public.or_else(|| v4().next_back()).or(v6).or_else(|| outward().next()).copied()
}

/// Whether an address means something only on its machine, link or site.
pub(crate) fn is_private(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback(),
        // fec0::/10 is Java's "site local"; fd00::/8 counts as global.
        IpAddr::V6(v6) => {
            v6.is_unspecified()
                || v6.is_loopback()
                || v6.is_unicast_link_local()
                || v6.segments()[0] & 0xffc0 == 0xfec0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_spec_25_2() {
        let id = |unit, stream| client_id("10.0.0.9", "1234#5678", unit, stream);
        assert_eq!(id(None, false), "10.0.0.9@1234#5678");
        assert_eq!(id(Some("unitA"), false), "10.0.0.9@1234#5678@unitA");
        assert_eq!(id(Some("unitA"), true), "10.0.0.9@1234#5678@unitA@STREAM");
        assert_eq!(id(None, true), "10.0.0.9@1234#5678@STREAM");
    }

    #[test]
    fn a_client_without_a_name_is_unique_but_keeps_its_lasting_id() {
        let (first, second) = (
            Identity::new("10.0.0.9", None, None, false),
            Identity::new("10.0.0.9", Some("DEFAULT"), None, false),
        );
        assert_ne!(first.client_id, second.client_id);
        assert_eq!(first.lasting_id, "10.0.0.9@DEFAULT");
        let named = Identity::new("10.0.0.9", Some("me"), None, false);
        assert_eq!((&*named.client_id, &*named.lasting_id), ("10.0.0.9@me", "10.0.0.9@me"));
    }

    #[test]
    fn a_public_address_goes_first() {
        let choose = |list: &[&str]| {
            let list: Vec<IpAddr> = list.iter().map(|text| text.parse().unwrap()).collect();
            choose_address(&list).map(|address| address.to_string())
        };
        assert_eq!(choose(&["127.0.0.1", "10.0.0.1", "8.8.8.8", "192.168.0.1"]).as_deref(), Some("8.8.8.8"));
        assert_eq!(choose(&["10.0.0.1", "192.168.0.1"]).as_deref(), Some("192.168.0.1"));
        assert_eq!(choose(&["fe80::1", "fec0::1", "2001:db8::1"]).as_deref(), Some("2001:db8::1"));
        assert_eq!(choose(&["fe80::1"]).as_deref(), Some("fe80::1"));
        assert_eq!(choose(&["127.0.0.1"]), None);
    }
}
