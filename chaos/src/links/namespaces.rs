//! Network namespaces on a bridge.
//!
//! Every interface has a fixed hardware address, and everybody knows those of all others from the start, so there is no ARP.
//! A link is cut in one direction by giving the sender a hardware address that nobody has: what it sends gets lost without a
//! word, as on a broken cable. That needs neither packet filters nor their kernel modules.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use super::{Links, Place};

/// Bridges and namespaces of this program are called so, and by a number.
const PREFIX: &str = "fmq";
/// What a bridge's alias says before the id of the process that made it.
const MADE_BY: &str = "made by process ";
const NOBODY: &str = "02:ff:ff:ff:ff:ff";
/// The host part of the bridge's own address: there are name server and clients.
const OUTSIDE: u8 = 254;
const FIRST_PORT: u16 = 10_909;
/// Bytes of a slow link: the load needs several times that.
const SLOW: &str = "rate 256kbit burst 8kb latency 500ms";
const NETWORKS: u16 = 0x7fff;

/// A namespace for each node; gone when dropped.
#[derive(Debug)]
pub struct Namespaces {
    network: u16,
    nodes: usize,
}

impl Namespaces {
    /// Makes a bridge and `nodes` namespaces. Needs root, and `ip`.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn create(nodes: usize) -> io::Result<Self> {
        remove_left_behind()?;
        let made = Self { network: make_bridge()?, nodes };
        // From here on, a failure removes what there is.
        let bridge = made.bridge();
        run(&["link", "set", &bridge, "alias", &format!("{MADE_BY}{}", std::process::id())])?;
        run(&["link", "set", &bridge, "address", &made.hardware(OUTSIDE)])?;
        run(&["address", "add", &format!("{}/24", made.ip(OUTSIDE)), "dev", &bridge])?;
        run(&["link", "set", &bridge, "up"])?;
        for node in 0..nodes {
            made.make_namespace(node)?;
        }
        made.heal()?;
        Ok(made)
    }

    fn make_namespace(&self, node: usize) -> io::Result<()> {
        let name = self.name(node);
        run(&["netns", "add", &name])?;
        let peer = ["peer", "name", "eth0", "netns", &name];
        run(&[&["link", "add", &name, "type", "veth"], &peer[..]].concat())?;
        run(&["link", "set", &name, "master", &self.bridge(), "up"])?;
        let host = host_part(Place::Node(node));
        run(&["-n", &name, "link", "set", "eth0", "address", &self.hardware(host)])?;
        run(&["-n", &name, "address", "add", &format!("{}/24", self.ip(host)), "dev", "eth0"])?;
        run(&["-n", &name, "link", "set", "lo", "up"])?;
        run(&["-n", &name, "link", "set", "eth0", "up"])
    }

    fn bridge(&self) -> String {
        bridge_name(self.network)
    }

    fn name(&self, node: usize) -> String {
        format!("{}-{node}", self.bridge())
    }

    fn ip(&self, host: u8) -> IpAddr {
        let [high, low] = self.network.to_be_bytes();
        Ipv4Addr::new(10, 0x80 | high, low, host).into()
    }

    fn hardware(&self, host: u8) -> String {
        let [high, low] = self.network.to_be_bytes();
        format!("02:00:00:{high:02x}:{low:02x}:{host:02x}")
    }

    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        (0..self.nodes).map(Place::Node).chain([Place::Outside])
    }

    /// Tells `at` the hardware address of `of`.
    fn introduce(&self, at: Place, of: Place, hardware: &str) -> io::Result<()> {
        let ip = self.ip(host_part(of)).to_string();
        let entry = ["neigh", "replace", &ip, "lladdr", hardware, "nud", "permanent", "dev"];
        match at {
            Place::Node(node) => run(&[&["-n", &self.name(node)], &entry[..], &["eth0"]].concat()),
            Place::Outside => run(&[&entry[..], &[&self.bridge()]].concat()),
        }
    }

    fn delete(&self) {
        for node in 0..self.nodes {
            // Its interfaces go with it.
            let _ = run(&["netns", "delete", &self.name(node)]);
        }
        let _ = run(&["link", "delete", &self.bridge()]);
    }
}

impl Links for Namespaces {
    fn describe(&self) -> &'static str {
        "network namespaces"
    }

    fn address(&self, node: usize) -> IpAddr {
        self.ip(host_part(Place::Node(node)))
    }

    fn bind_address(&self, _node: usize) -> IpAddr {
        Ipv4Addr::UNSPECIFIED.into()
    }

    fn outside(&self) -> IpAddr {
        self.ip(OUTSIDE)
    }

    fn ports(&self, _node: usize) -> u16 {
        FIRST_PORT
    }

    fn command(&self, node: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(node)]).arg(program);
        command
    }

    fn has_started(&self, _node: usize, _process: u32) {}

    fn cut(&self, from: Place, to: Place) -> io::Result<()> {
        self.introduce(from, to, NOBODY)
    }

    fn slow(&self, node: usize) -> io::Result<bool> {
        let name = self.name(node);
        let slow: Vec<_> = SLOW.split(' ').collect();
        let discipline = ["-n", &name, "qdisc", "replace", "dev", "eth0", "root", "tbf"];
        match call("tc", &[&discipline[..], &slow].concat()) {
            Ok(()) => Ok(true),
            Err(error) => {
                tracing::warn!(%error, "no slow link: tc can't limit a rate here");
                Ok(false)
            }
        }
    }

    fn heal(&self) -> io::Result<()> {
        for at in self.places() {
            for of in self.places().filter(|of| *of != at) {
                self.introduce(at, of, &self.hardware(host_part(of)))?;
            }
        }
        for node in 0..self.nodes {
            // There may be none.
            let _ = call("tc", &["-n", &self.name(node), "qdisc", "delete", "dev", "eth0", "root"]);
        }
        Ok(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.delete();
    }
}

fn host_part(place: Place) -> u8 {
    match place {
        Place::Node(node) => node as u8 + 1,
        Place::Outside => OUTSIDE,
    }
}

fn bridge_name(network: u16) -> String {
    format!("{PREFIX}{network}")
}

/// Makes the first bridge that nobody else has made, and returns its number.
fn make_bridge() -> io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() as u16).wrapping_mul(8);
    loop {
        let count = NEXT.fetch_add(1, Ordering::Relaxed);
        let network = first.wrapping_add(count) & NETWORKS;
        match run(&["link", "add", &bridge_name(network), "type", "bridge"]) {
            Ok(()) => return Ok(network),
            Err(_) if count < 100 && Path::new("/sys/class/net").join(bridge_name(network)).exists() => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes what processes have left behind that could not do it themselves.
fn remove_left_behind() -> io::Result<()> {
    for entry in fs::read_dir("/sys/class/net")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(network) = name.strip_prefix(PREFIX).and_then(|number| number.parse().ok()) else {
            continue;
        };
        let alias = fs::read_to_string(format!("/sys/class/net/{name}/ifalias")).unwrap_or_default();
        let maker = alias.trim().strip_prefix(MADE_BY);
        if maker.is_some_and(|maker| !Path::new("/proc").join(maker).exists()) {
            Namespaces { network, nodes: 9 }.delete();
        }
    }
    Ok(())
}

fn run(arguments: &[&str]) -> io::Result<()> {
    call("ip", arguments)
}

fn call(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} {}: {}", arguments.join(" "), said.trim())))
}
