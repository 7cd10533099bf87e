//! The network between the nodes of a cluster, and ways to break it.
//!
//! In [`Namespaces`] each node has a network of its own, as on a machine of its own. Where those can't be had (no root, a
//! container), nodes share the loopback interface and reach each other through [`Proxies`] in this process.

mod namespaces;
mod proxies;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

pub use namespaces::Namespaces;
pub use proxies::Proxies;

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A node of the cluster.
    Node(usize),
    /// Name server, clients and this program.
    Outside,
}

/// A network that can be broken.
pub trait Links: Send + fmt::Debug {
    /// How it is done, for the report.
    fn describe(&self) -> &'static str;

    /// Where others reach a node.
    fn address(&self, node: usize) -> IpAddr;

    /// Where a node listens.
    fn bind_address(&self, node: usize) -> IpAddr;

    /// Where the name server listens.
    fn outside(&self) -> IpAddr;

    /// The first of the ports of a node.
    fn ports(&self, node: usize) -> u16;

    /// A command that runs `program` at a node.
    fn command(&self, node: usize, program: &Path) -> Command;

    /// The process of a node is this one from now on.
    fn has_started(&self, node: usize, process: u32);

    /// Nothing gets from one place to the other any more. The other direction is not touched.
    ///
    /// # Errors
    /// What the system says.
    fn cut(&self, from: Place, to: Place) -> io::Result<()>;

    /// Little gets through a node's network in a second. False if this can't be done here.
    ///
    /// # Errors
    /// What the system says.
    fn slow(&self, node: usize) -> io::Result<bool>;

    /// Everything gets everywhere again.
    ///
    /// # Errors
    /// What the system says.
    fn heal(&self) -> io::Result<()>;
}

/// Which network is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LinkKind {
    /// Namespaces if they can be had, else proxies.
    #[default]
    Auto,
    /// Network namespaces; needs root.
    Namespaces,
    /// Proxies on the loopback interface.
    Proxies,
}

impl LinkKind {
    /// Makes a network of so many nodes, on which each listens at these ports, counted from the node's first.
    pub(crate) fn make(self, nodes: usize, ports: &[u16], span: u16) -> io::Result<Box<dyn Links>> {
        let proxies = || Ok(Box::new(Proxies::start(nodes, ports, span)?) as Box<dyn Links>);
        match self {
            LinkKind::Proxies => proxies(),
            LinkKind::Namespaces => Ok(Box::new(Namespaces::create(nodes)?)),
            LinkKind::Auto => match Namespaces::create(nodes) {
                Ok(namespaces) => Ok(Box::new(namespaces)),
                Err(error) => {
                    tracing::warn!(%error, "no network namespaces here, nodes are linked by proxies instead");
                    proxies()
                }
            },
        }
    }
}
