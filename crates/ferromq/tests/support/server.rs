//! Name servers and brokers as processes of their own, each in a directory of its own, on ports of 127.0.0.1.
//!
//! The program is the binary under test. With `FERROMQ_TEST_PROGRAM` it is another one that takes the same arguments:
//! `interop/peer/rocketmq` runs the real RocketMQ, and so a test is known to be right before it judges us.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take until it accepts connections. The real RocketMQ needs some seconds.
const START_MAX: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(5);

/// Whether the servers are those of the real RocketMQ.
pub(crate) fn is_reference() -> bool {
    std::env::var_os("FERROMQ_TEST_PROGRAM").is_some()
}

fn program() -> PathBuf {
    std::env::var_os("FERROMQ_TEST_PROGRAM")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_ferromq")), PathBuf::from)
}

/// A running server. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Process {
    fn start<S: AsRef<OsStr>>(
        directory: &Path,
        arguments: &[S],
        address: SocketAddr,
        serialize: &str,
    ) -> Self {
        let log = directory.join("log");
        let output =
            File::options().create(true).append(true).open(&log).expect("the server's log can be opened");
        let errors = output.try_clone().expect("a second handle of the server's log");
        let child = Command::new(program())
            .args(arguments)
            .env("ROCKETMQ_SERIALIZE_TYPE", serialize)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{} can't be started: {error}", program().display()));
        Self { child, address, log }
    }

    fn listening(mut self) -> Self {
        self.await_listening();
        self
    }

    fn await_listening(&mut self) {
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait().expect("the server's state") {
                panic!("the server ended early, {status}:\n{}", self.log_tail());
            }
            assert!(Instant::now() < deadline, "nothing listens on {}:\n{}", self.address, self.log_tail());
            thread::sleep(POLL);
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server's end");
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn terminate(&mut self, patience: Duration) -> ExitStatus {
        let deadline = Instant::now() + patience;
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("the server gets a SIGTERM");
        loop {
            if let Some(status) = self.child.try_wait().expect("the server's state") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server ignores SIGTERM:\n{}", self.log_tail());
            thread::sleep(POLL);
        }
    }

    /// What it printed last.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _already_dead = self.child.kill();
        let _reaped = self.child.wait();
        if thread::panicking() {
            eprintln!("--- log of the server on {}:\n{}\n---", self.address, self.log_tail());
        }
    }
}

/// Starts a name server in `directory`.
pub(crate) fn start_namesrv(directory: &Path) -> Process {
    fs::create_dir_all(directory).expect("the server's directory");
    let port = free_port();
    let configuration = directory.join("namesrv.conf");
    let kv_file = directory.join("kvConfig.json");
    let lines = format!("listenPort={port}\nbindAddress=127.0.0.1\nkvConfigPath={}\n", kv_file.display());
    fs::write(&configuration, lines).expect("namesrv.conf");
    let arguments = [OsStr::new("namesrv"), OsStr::new("-c"), configuration.as_os_str()];
    Process::start(directory, &arguments, local(port), "JSON").listening()
}

/// Starts a group of controllers, each in a directory of its own below `directory`.
pub(crate) fn start_controllers(directory: &Path, count: usize) -> Vec<Process> {
    let ports: Vec<u16> = (0..count).map(|_| free_port()).collect();
    let peers: Vec<_> =
        ports.iter().enumerate().map(|(id, port)| format!("n{id}-127.0.0.1:{port}")).collect();
    let start = |(id, port): (usize, &u16)| {
        let directory = directory.join(id.to_string());
        fs::create_dir_all(&directory).expect("the server's directory");
        let configuration = directory.join("controller.conf");
        let lines = format!(
            "controllerDLegerGroup=group1\ncontrollerDLegerPeers={}\ncontrollerDLegerSelfId=n{id}\n\
             controllerStorePath={}\nbindAddress=127.0.0.1\n",
            peers.join(";"),
            directory.join("store").display(),
        );
        fs::write(&configuration, lines).expect("controller.conf");
        let arguments = [OsStr::new("controller"), OsStr::new("-c"), configuration.as_os_str()];
        Process::start(&directory, &arguments, local(*port), "JSON")
    };
    let started: Vec<_> = ports.iter().enumerate().map(start).collect();
    started.into_iter().map(Process::listening).collect()
}

/// A broker that can be started again and again on the same port and store.
pub(crate) struct BrokerPlace {
    directory: PathBuf,
    namesrv: SocketAddr,
    port: u16,
    /// Encoding of the headers that it writes: `JSON` or `ROCKETMQ`.
    pub(crate) serialize: &'static str,
}

impl BrokerPlace {
    /// Writes `broker.conf` with `settings` beside those that every test broker has.
    pub(crate) fn new(directory: &Path, namesrv: SocketAddr, settings: &[(&str, &str)]) -> Self {
        fs::create_dir_all(directory).expect("the server's directory");
        let port = free_port();
        let store = directory.join("store");
        let mut lines = format!(
            "brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=0\nbrokerIP1=127.0.0.1\nbrokerIP2=127.0.0.1\n\
             listenPort={port}\nnamesrvAddr={namesrv}\nstorePathRootDir={0}\nstorePathCommitLog={0}/commitlog\n\
             autoCreateTopicEnable=true\nbrokerFastFailureEnable=false\n",
            store.display()
        );
        for (key, value) in settings {
            lines += &format!("{key}={value}\n");
        }
        fs::write(directory.join("broker.conf"), lines).expect("broker.conf");
        Self { directory: directory.to_owned(), namesrv, port, serialize: "JSON" }
    }

    /// Starts the broker and waits until it listens.
    pub(crate) fn start(&self) -> Process {
        self.begin_to_start().listening()
    }

    /// Starts the broker and waits for nothing.
    pub(crate) fn begin_to_start(&self) -> Process {
        let configuration = self.directory.join("broker.conf");
        let namesrv = self.namesrv.to_string();
        let arguments = ["broker", "-n", &namesrv, "-c"].map(OsStr::new);
        let arguments = [&arguments[..], &[configuration.as_os_str()]].concat();
        Process::start(&self.directory, &arguments, local(self.port), self.serialize)
    }

    /// Where its files are.
    pub(crate) fn store(&self) -> PathBuf {
        self.directory.join("store")
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A port below the range of outgoing connections; so are the two below it and the one above it, which a broker uses
/// too. Processes that test at the same time begin at different places.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = std::process::id() as u16 % 1500 * 8;
    loop {
        let port = 15_002 + (start + NEXT.fetch_add(4, Ordering::Relaxed)) % 16_000;
        if (port - 2..=port + 1).all(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()) {
            return port;
        }
    }
}
