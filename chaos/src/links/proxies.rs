//! Proxies on the loopback interface, for machines where network namespaces can't be had.
//!
//! A node listens on 127.0.1.x and calls itself 127.0.2.x, where this process listens on the same ports and passes on what
//! comes. Who connects is found out from the tables of the system: whose process has the other end of the connection.
//! A cut link holds back what is under way and what comes, until it is healed, as TCP would by repeating it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Links, Place};

/// Pause after each piece that goes over a slow link, and the size of these pieces.
const SLOW_PAUSE: Duration = Duration::from_millis(100);
const PIECE: usize = 4096;

/// What is broken.
#[derive(Clone, Debug, Default)]
struct State {
    cut: HashSet<(Place, Place)>,
    slow: HashSet<usize>,
}

impl State {
    fn is_slow(&self, place: Place) -> bool {
        matches!(place, Place::Node(node) if self.slow.contains(&node))
    }
}

/// A proxy before each port of each node; gone when dropped.
#[derive(Debug)]
pub struct Proxies {
    first_ports: Vec<u16>,
    state: watch::Sender<State>,
    processes: Arc<Mutex<HashMap<u32, usize>>>,
    stop: CancellationToken,
}

impl Proxies {
    /// Proxies before `nodes`, each of which listens on `ports`, counted from the first of the `span` ports that it has. Needs
    /// a Tokio runtime.
    ///
    /// # Errors
    /// If no ports are free.
    pub fn start(nodes: usize, ports: &[u16], span: u16) -> io::Result<Self> {
        let first = free_ports(nodes as u16 * span)?;
        let proxies = Self {
            first_ports: (0..nodes as u16).map(|node| first + node * span).collect(),
            state: watch::Sender::default(),
            processes: Arc::default(),
            stop: CancellationToken::new(),
        };
        for node in 0..nodes {
            for port in ports {
                proxies.listen(node, proxies.first_ports[node] + port)?;
            }
        }
        Ok(proxies)
    }

    fn listen(&self, node: usize, port: u16) -> io::Result<()> {
        let listener = std::net::TcpListener::bind((front(node), port))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let (state, processes, stop) = (self.state.clone(), self.processes.clone(), self.stop.clone());
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let ends = (from, SocketAddr::new(front(node), port));
                let place = owner(ends, &processes.lock()).map_or(Place::Outside, Place::Node);
                let state = state.subscribe();
                let passing = pass(stream, place, node, port, state);
                tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
                    if let Err(error) = passing.await {
                        tracing::debug!(%error, ?place, node, "a connection ended");
                    }
                }));
            }
        }));
        Ok(())
    }
}

impl Links for Proxies {
    fn describe(&self) -> &'static str {
        "proxies on the loopback interface"
    }

    fn address(&self, node: usize) -> IpAddr {
        front(node)
    }

    fn bind_address(&self, node: usize) -> IpAddr {
        back(node)
    }

    fn outside(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }

    fn ports(&self, node: usize) -> u16 {
        self.first_ports[node]
    }

    fn command(&self, _node: usize, program: &Path) -> Command {
        Command::new(program)
    }

    fn has_started(&self, node: usize, process: u32) {
        self.processes.lock().insert(process, node);
    }

    fn cut(&self, from: Place, to: Place) -> io::Result<()> {
        self.state.send_if_modified(|state| state.cut.insert((from, to)));
        Ok(())
    }

    fn slow(&self, node: usize) -> io::Result<bool> {
        self.state.send_if_modified(|state| state.slow.insert(node));
        Ok(true)
    }

    fn heal(&self) -> io::Result<()> {
        self.state.send_replace(State::default());
        Ok(())
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn front(node: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 2, node as u8 + 1).into()
}

fn back(node: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 1, node as u8 + 1).into()
}

/// Connects to the node itself, from the address of the caller, and passes on both directions until one ends.
async fn pass(
    stream: TcpStream,
    from: Place,
    node: usize,
    port: u16,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    let to = Place::Node(node);
    // The first packets of a connection don't get through either.
    wait_for(&mut state, from, to).await?;
    let socket = TcpSocket::new_v4()?;
    if let Place::Node(caller) = from {
        socket.bind(SocketAddr::new(back(caller), 0))?;
    }
    let target = socket.connect(SocketAddr::new(back(node), port)).await?;
    stream.set_nodelay(true)?;
    target.set_nodelay(true)?;
    let (read_stream, write_stream) = stream.into_split();
    let (read_target, write_target) = target.into_split();
    tokio::select! {
        ended = pump(read_stream, write_target, from, to, state.clone()) => ended,
        ended = pump(read_target, write_stream, to, from, state) => ended,
    }
}

async fn pump(
    mut reader: OwnedReadHalf,
    mut writer: OwnedWriteHalf,
    from: Place,
    to: Place,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    let mut piece = [0; PIECE];
    loop {
        let len = reader.read(&mut piece).await?;
        wait_for(&mut state, from, to).await?;
        if len == 0 {
            return Ok(());
        }
        let is_slow = {
            let state = state.borrow();
            state.is_slow(from) || state.is_slow(to)
        };
        if is_slow {
            tokio::time::sleep(SLOW_PAUSE).await;
        }
        writer.write_all(&piece[..len]).await?;
    }
}

async fn wait_for(state: &mut watch::Receiver<State>, from: Place, to: Place) -> io::Result<()> {
    let is_open = state.wait_for(|state| !state.cut.contains(&(from, to))).await;
    is_open.map(drop).map_err(|_| io::Error::from(io::ErrorKind::NotConnected))
}

/// Whose process the first end of a connection belongs to.
fn owner((end, other): (SocketAddr, SocketAddr), processes: &HashMap<u32, usize>) -> Option<usize> {
    let (SocketAddr::V4(end), SocketAddr::V4(other)) = (end, other) else { return None };
    let ends = (hex(end), hex(other));
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = table.lines().skip(1).find_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        (columns.get(1) == Some(&ends.0.as_str()) && columns.get(2) == Some(&ends.1.as_str()))
            .then(|| columns.get(9).map(ToString::to_string))?
    })?;
    let wanted = format!("socket:[{inode}]");
    let has_it = |process: &u32| {
        let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|file| file.as_os_str() == wanted.as_str())
    };
    processes.iter().find(|(process, _)| has_it(process)).map(|(_, node)| *node)
}

/// An address as `/proc/net/tcp` writes it.
fn hex(address: SocketAddrV4) -> String {
    let ip = u32::from_ne_bytes(address.ip().octets());
    format!("{ip:08X}:{:04X}", address.port())
}

/// The first of so many ports in a row that nobody has, below the range of outgoing connections.
fn free_ports(count: u16) -> io::Result<u16> {
    let start = std::process::id() as u16 % 400 * 32;
    (0..500u16)
        .map(|attempt| 11_000 + (start + attempt * 32) % 16_000)
        .find(|first| {
            (*first..first + count)
                .all(|port| std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok())
        })
        .ok_or_else(|| io::Error::other(format!("no {count} free ports in a row from 11000 to 27000")))
}
