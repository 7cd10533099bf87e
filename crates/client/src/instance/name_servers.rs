//! Which name server is asked (`docs/spec/06-namesrv.md` 13.4).

use parking_lot::Mutex;

use crate::error::Error;

/// The list of name servers, and the one that answered last.
///
/// All requests go to one of them, so that a client sees one view of the cluster. When it can't be reached, the next one
/// in the list is asked and kept.
#[derive(Debug)]
pub(crate) struct NameServers {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    addresses: Vec<String>,
    chosen: usize,
}

impl NameServers {
    /// The servers of a list like `host:port;host:port`, in random order so that clients spread over them.
    pub(crate) fn new(list: &str) -> Result<Self, Error> {
        // What is in front of the last `/` belongs to the form `http://host:port` of some vendors' instances.
        let list = match list.trim() {
            endpoint if endpoint.starts_with("http://") => endpoint.rsplit('/').next().unwrap_or_default(),
            list => list,
        };
        let mut addresses: Vec<String> =
            list.split(';').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect();
        if addresses.is_empty() {
            return Err(Error::NoNameServer);
        }
        if let Some(bad) = addresses.iter().find(|address| !is_host_and_port(address)) {
            return Err(Error::invalid(format!("name server address `{bad}`"), "it must be host:port"));
        }
        fastrand::shuffle(&mut addresses);
        Ok(Self { state: Mutex::new(State { addresses, chosen: 0 }) })
    }

    /// The one to ask.
    pub(crate) fn chosen(&self) -> String {
        let state = self.state.lock();
        state.addresses[state.chosen].clone()
    }

    /// All of them, each followed by `;`: how administrators see them.
    pub(crate) fn list(&self) -> String {
        self.state.lock().addresses.iter().map(|address| format!("{address};")).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<String> {
        self.state.lock().addresses.clone()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().addresses.len()
    }

    /// Chooses the next one, unless another caller has left `failed` already.
    pub(crate) fn leave(&self, failed: &str) {
        let mut state = self.state.lock();
        if state.addresses[state.chosen] == failed {
            state.chosen = (state.chosen + 1) % state.addresses.len();
        }
    }
}

fn is_host_and_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_server_is_left_once() {
        let servers = NameServers::new("a:1; b:2;;c:3").unwrap();
        let first = servers.chosen();
        servers.leave(&first);
        let second = servers.chosen();
        assert_ne!(first, second);
        servers.leave(&first);
        assert_eq!(servers.chosen(), second, "it was left before");
        assert_eq!(servers.len(), 3);
    }

    #[test]
    fn lists_that_can_t_be_used() {
        assert!(matches!(NameServers::new(" ; "), Err(Error::NoNameServer)));
        assert!(NameServers::new("localhost").is_err());
        assert_eq!(NameServers::new("http://x.y:80").unwrap().chosen(), "x.y:80");
    }
}
