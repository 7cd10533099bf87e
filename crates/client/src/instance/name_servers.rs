//! Which name server is asked (`docs/spec/06-namesrv.md` 13).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Instance;
use super::address_server::{AddressServer, Lookup};
use crate::error::Error;

/// How long after the first look-up at an address server the second one comes, at the latest.
const SECOND_FETCH_MAX: Duration = Duration::from_secs(10);
/// How often it is asked while there is no list at all.
const FETCH_AGAIN: Duration = Duration::from_secs(1);

/// Where a client has its name servers from.
#[derive(Clone, Debug)]
pub(crate) enum NameServerSource {
    /// They were told, `host:port;host:port`.
    List(String),
    /// From an address server, again and again.
    Discovery(AddressServer),
}

/// The list of name servers, and the one that answered last.
///
/// All requests go to one of them, so that a client sees one view of the cluster. When it can't be reached, the next one
/// in the list is asked and kept.
#[derive(Debug)]
pub(crate) struct NameServers {
    state: Mutex<State>,
    /// The page that has the list, if it is not a fixed one.
    lookup: Option<Lookup>,
    /// What came of asking the address server.
    fetched: watch::Sender<Fetched>,
}

/// What came of looking for name servers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fetched {
    NotYet,
    Failed(String),
    Found,
}

#[derive(Debug)]
struct State {
    addresses: Vec<String>,
    chosen: usize,
}

impl NameServers {
    /// The servers of a list, in random order so that clients spread over them; or those that an address server tells to
    /// clients of this unit, once it was asked.
    pub(crate) fn new(source: &NameServerSource, unit: Option<&str>) -> Result<Self, Error> {
        let (lookup, addresses, fetched) = match source {
            NameServerSource::List(list) => (None, parse(list)?, Fetched::Found),
            NameServerSource::Discovery(server) => (Some(server.lookup(unit)), Vec::new(), Fetched::NotYet),
        };
        let state = Mutex::new(State { addresses, chosen: 0 });
        Ok(Self { state, lookup, fetched: watch::Sender::new(fetched) })
    }

    /// Waits until there is a list.
    pub(crate) async fn known(&self, patience: Duration) -> Result<(), Error> {
        let mut fetched = self.fetched.subscribe();
        let found = timeout(patience, fetched.wait_for(|fetched| *fetched == Fetched::Found)).await;
        if found.is_ok_and(|found| found.is_ok()) {
            return Ok(());
        }
        let reason = match &*self.fetched.borrow() {
            Fetched::Failed(reason) => reason.clone(),
            _ => "it has not answered yet".to_owned(),
        };
        let url = self.lookup.as_ref().map_or_else(String::new, Lookup::url);
        Err(Error::AddressServer { url, reason })
    }

    /// The one to ask, if there is a list.
    pub(crate) fn chosen(&self) -> Option<String> {
        let state = self.state.lock();
        state.addresses.get(state.chosen).cloned()
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
        if state.addresses.get(state.chosen).is_some_and(|chosen| chosen == failed) {
            state.chosen = (state.chosen + 1) % state.addresses.len();
        }
    }

    /// Takes over a list. The chosen one stays chosen if it is in it.
    fn replace(&self, list: &str) -> Result<(), Error> {
        let addresses = parse(list)?;
        let mut state = self.state.lock();
        let is_same = addresses.len() == state.addresses.len()
            && addresses.iter().all(|address| state.addresses.contains(address));
        if !is_same {
            tracing::info!(list, "the address server has other name servers");
            let chosen = state.addresses.get(state.chosen);
            let stays = chosen.and_then(|chosen| addresses.iter().position(|address| address == chosen));
            *state = State { chosen: stays.unwrap_or(0), addresses };
        }
        drop(state);
        self.fetched.send_replace(Fetched::Found);
        Ok(())
    }

    /// Asks the address server once.
    async fn fetch(&self, lookup: &Lookup) {
        let replaced = match lookup.fetch().await {
            Ok(list) => self.replace(&list).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = replaced {
            tracing::warn!(url = lookup.url(), reason, "the address server tells no name servers");
            self.fetched.send_if_modified(|fetched| {
                let has_list = *fetched == Fetched::Found;
                if !has_list {
                    *fetched = Fetched::Failed(reason);
                }
                !has_list
            });
        }
    }
}

impl Instance {
    /// Asks the address server at once and then regularly, if there is one.
    pub(super) async fn keep_name_servers(self: Arc<Self>) {
        let Some(lookup) = &self.name_servers.lookup else { return };
        let mut next = Instant::now() + lookup.period.min(SECOND_FETCH_MAX);
        loop {
            self.name_servers.fetch(lookup).await;
            if self.name_servers.len() == 0 {
                sleep(FETCH_AGAIN).await;
            } else {
                sleep_until(next).await;
                next = Instant::now() + lookup.period;
            }
        }
    }
}

/// The items of a list like `host:port;host:port`, in random order.
fn parse(list: &str) -> Result<Vec<String>, Error> {
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
    Ok(addresses)
}

fn is_host_and_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(list: &str) -> Result<NameServers, Error> {
        NameServers::new(&NameServerSource::List(list.to_owned()), None)
    }

    #[test]
    fn a_failed_server_is_left_once() {
        let servers = listed("a:1; b:2;;c:3").unwrap();
        let first = servers.chosen().unwrap();
        servers.leave(&first);
        let second = servers.chosen().unwrap();
        assert_ne!(first, second);
        servers.leave(&first);
        assert_eq!(servers.chosen(), Some(second), "it was left before");
        assert_eq!(servers.len(), 3);
    }

    #[test]
    fn lists_that_can_t_be_used() {
        assert!(matches!(listed(" ; "), Err(Error::NoNameServer)));
        assert!(listed("localhost").is_err());
        assert_eq!(listed("http://x.y:80").unwrap().chosen().as_deref(), Some("x.y:80"));
    }

    #[test]
    fn the_chosen_server_stays_while_it_is_listed() {
        let servers = listed("a:1;b:2;c:3").unwrap();
        let chosen = servers.chosen().unwrap();
        servers.replace("c:3;a:1;b:2").unwrap();
        servers.replace(&format!("d:4;{chosen}")).unwrap();
        assert_eq!((servers.chosen(), servers.len()), (Some(chosen), 2));
        servers.replace("e:5").unwrap();
        assert_eq!(servers.chosen().as_deref(), Some("e:5"));
        assert!(servers.replace("rubbish").is_err());
        assert_eq!(servers.all(), ["e:5"], "what can't be used changes nothing");
    }
}
