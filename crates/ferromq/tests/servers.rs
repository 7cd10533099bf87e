//! The servers as their users run them: the real program, its output, its exit status.

#![allow(clippy::unwrap_used, reason = "this is all test code")]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Client;
use rustix::process::{Pid, Signal, kill_process};

/// The program with an environment that says nothing.
fn ferromq(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferromq"));
    command.args(args).env_clear().env("HOME", "/nowhere");
    command
}

fn output(args: &[&str]) -> Output {
    ferromq(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A file with this text, in a directory that lives as long as the first part of the answer.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("broker.conf");
    std::fs::write(&file, text).unwrap();
    let path = file.display().to_string();
    (directory, path)
}

/// A server that is stopped at the end of its test, whatever happens.
struct Server {
    process: Child,
    /// What it printed until it was ready.
    banner: String,
}

impl Server {
    /// Runs the program until it prints `ready`.
    fn start(command: &mut Command, ready: &str) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut banner = String::new();
        for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            banner += &format!("{line}\n");
            if line.contains(ready) {
                break;
            }
        }
        assert!(banner.contains(ready), "it ended with {:?} after\n{banner}", process.wait());
        Self { process, banner }
    }

    /// The number that follows the last `:` of the banner's line that begins with `name`.
    fn port(&self, name: &str) -> u16 {
        let line = self.banner.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.rsplit([':', ' ']).next().unwrap().parse().unwrap()
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// The exit status, after at most ten seconds.
    fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not stop");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn standalone(store: &Path) -> Command {
    let store = store.to_str().unwrap();
    ferromq(&["standalone", "--namesrv-port", "0", "--broker-port", "0", "--store", store])
}

#[test]
fn standalone_serves_and_stops() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("data");
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&mut standalone(&store), "The broker[");
        for part in ["FerroMQ", "standalone", "name server", "try next", "mqadmin clusterList -n 127.0.0.1:"]
        {
            assert!(server.banner.contains(part), "`{part}` is missing in\n{}", server.banner);
        }
        assert!(server.banner.contains(&store.display().to_string()));
        assert!(!server.banner.contains('\x1b'), "colours without a terminal");
        TcpStream::connect(("127.0.0.1", server.port("name server"))).unwrap();
        TcpStream::connect(("127.0.0.1", server.port("fast port"))).unwrap();
        server.signal(signal);
        assert_eq!(server.wait(), Some(0));
    }
}

/// `timeout` and some terminals send a signal to the process and to its group.
#[test]
fn a_signal_that_arrives_twice_counts_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(&mut standalone(directory.path()), "The broker[");
    server.signal(Signal::TERM);
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0));
}

/// Sends one request and returns the answer.
fn ask(port: u16, command: RemotingCommand) -> RemotingCommand {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer =
        async { Client::new().invoke(&format!("127.0.0.1:{port}"), command, Duration::from_secs(5)).await };
    runtime.block_on(answer).unwrap()
}

fn update(properties: &str) -> RemotingCommand {
    RemotingCommand::request(request::UPDATE_BROKER_CONFIG).with_body(properties.to_owned())
}

#[test]
fn changed_settings_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(&mut standalone(directory.path()), "The broker[");
    let answer = ask(server.port("fast port"), update("fileReservedTime=48\nregionId=a b\n"));
    assert_eq!((answer.code, answer.remark), (0, None));
    let changes = std::fs::read_to_string(directory.path().join("config/broker-changes.properties")).unwrap();
    assert_eq!(changes, "fileReservedTime=48\nregionId=a b\n");
    server.signal(Signal::TERM);
    server.wait();

    let server = Server::start(&mut standalone(directory.path()), "The broker[");
    let answer = ask(server.port("fast port"), RemotingCommand::request(request::GET_BROKER_CONFIG));
    let settings = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(
        settings.contains("\nfileReservedTime=48\n") && settings.contains("\nregionId=a b\n"),
        "{settings}"
    );
}

#[test]
fn clients_can_t_move_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&mut standalone(directory.path()), "The broker[");
    let elsewhere = directory.path().join("elsewhere");
    for key in ["storePathRootDir", "storePathCommitLog", "rocketmqHome", "brokerConfigPath"] {
        let answer = ask(server.port("fast port"), update(&format!("{key}={}\n", elsewhere.display())));
        assert_eq!(answer.code, 16, "{key}");
    }
    assert!(!elsewhere.exists() && !directory.path().join("config/broker-changes.properties").exists());
}

#[test]
fn the_lines_that_scripts_wait_for() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&mut standalone(directory.path()), "The broker[");
    let port = server.port("name server");
    let namesrv = format!("The Name Server boot success. serializeType=JSON, address 0.0.0.0:{port}\n");
    assert!(server.banner.contains(&namesrv), "{}", server.banner);
    let broker = server.banner.lines().last().unwrap();
    let end = format!("] boot success. serializeType=JSON and name server is 127.0.0.1:{port}");
    assert!(broker.ends_with(&end), "{broker}");
}

#[test]
fn a_name_server_alone() {
    let (_directory, file) = file("listenPort=0\n");
    let mut server = Server::start(&mut ferromq(&["namesrv", "-c", &file]), "The Name Server boot success.");
    assert!(server.banner.contains(&format!("load config properties file OK, {file}\n")));
    TcpStream::connect(("127.0.0.1", server.port("name server"))).unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_port_that_is_taken() {
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let (_directory, file) = file(&format!("listenPort={}\n", taken.local_addr().unwrap().port()));
    let output = output(&["namesrv", "-c", &file]);
    assert_eq!(output.status.code(), Some(253));
    assert!(stderr(&output).contains("Is another one running?"), "{}", stderr(&output));
}

#[test]
fn all_settings() {
    let (_directory, file) = file("brokerName=broker-x\nmessageDelayLevel=1s 5s\n");
    let output = output(&["broker", "-c", &file, "-n", "10.0.0.1:9876", "-p"]);
    assert_eq!(output.status.code(), Some(0));
    let settings = stdout(&output);
    for line in ["brokerName=broker-x", "namesrvAddr=10.0.0.1:9876", "listenPort=10911", "haListenPort=10912"]
    {
        assert!(settings.lines().any(|l| l == line), "`{line}` is missing in\n{settings}");
    }
    assert!(settings.contains("messageDelayLevel=1s 5s\n"));
    assert!(settings.contains(&format!("brokerConfigPath={file}\n")));
    assert!(settings.contains("storePathRootDir=/nowhere/store\n"));
    assert!(settings.lines().is_sorted());
}

#[test]
fn important_settings() {
    let settings = stdout(&output(&["broker", "-m"]));
    assert!(settings.contains("brokerClusterName=DefaultCluster\n"));
    assert!(settings.contains("autoCreateTopicEnable=true\n"));
    assert!(!settings.contains("serverWorkerThreads"));
}

#[test]
fn the_environment_counts_less_than_the_file_and_that_less_than_the_command_line() {
    let name_servers = |args: &[&str]| {
        let output = ferromq(args).env("NAMESRV_ADDR", "env:1").output().unwrap();
        let settings = stdout(&output);
        settings.lines().find_map(|line| line.strip_prefix("namesrvAddr=")).unwrap().to_owned()
    };
    let (_directory, file) = file("namesrvAddr=file:1\n");
    assert_eq!(name_servers(&["broker", "-p"]), "env:1");
    assert_eq!(name_servers(&["broker", "-p", "-c", &file]), "file:1");
    assert_eq!(name_servers(&["broker", "-p", "-c", &file, "-n", "line:1"]), "line:1");
}

#[test]
fn settings_of_a_name_server() {
    let (_directory, file) = file("supportActingMaster=true\nmine=1\n");
    let output = output(&["namesrv", "-c", &file, "-p"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("supportActingMaster=true\n"));
    assert!(stdout(&output).contains("mine=1\n"));
    assert_eq!(stderr(&output), format!("warning: {file}:2: unknown key `mine`, it has no effect\n"));
}

#[test]
fn an_unknown_key_is_a_warning() {
    let (_directory, file) = file("brokerName=a\nflushDiskTyp=SYNC_FLUSH\n");
    let output = output(&["broker", "-c", &file, "-p"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), format!("warning: {file}:2: unknown key `flushDiskTyp`, it has no effect\n"));
    assert!(stdout(&output).contains("flushDiskTyp=SYNC_FLUSH\n"));
}

#[test]
fn a_malformed_value_stops_the_start() {
    let (_directory, file) = file("# mine\nbrokerName=a\nlistenPort=1091l\n");
    for command in [["broker", "-c", &file], ["standalone", "-c", &file]] {
        let output = output(&command);
        assert_eq!(output.status.code(), Some(255));
        let expected =
            format!("ferromq: {file}:3: listenPort must be a whole number from 0 to 65535, not `1091l`\n");
        assert_eq!(stderr(&output), expected);
    }
    let output = output(&["namesrv", "-c", &file]);
    assert_eq!(output.status.code(), Some(255));
    assert!(stderr(&output).starts_with(&format!("ferromq: {file}:3: listenPort: ")), "{}", stderr(&output));
}

#[test]
fn settings_that_can_t_be() {
    for (text, status, message) in [
        ("diskSpaceWarningLevelRatio=20", 255, "from 35 to 99, not `20`"),
        ("namesrvAddr=10.0.0.1", 253, "The Name Server Address[10.0.0.1] illegal"),
        ("brokerRole=SLAVE", 253, "Slave's brokerId must be > 0"),
        ("enableControllerMode=true\nenableDLegerCommitLog=true", 252, "cannot both be true"),
        ("authenticationEnabled=true", 253, "everyone would be let in"),
    ] {
        let (_directory, file) = file(text);
        let output = output(&["broker", "-c", &file]);
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
    let output = output(&["broker", "-c", "/no/such/broker.conf"]);
    assert_eq!(output.status.code(), Some(255));
    assert!(stderr(&output).contains("can't read the configuration file /no/such/broker.conf"));
}

#[test]
fn usage_errors() {
    for (args, message) in [
        (&["standalone", "--port", "1"][..], "unexpected argument '--port'"),
        (&["brocker"], "similar subcommand exists: 'broker'"),
        (&["standalone", "--namesrv-port", "x"], "invalid value 'x'"),
        (&[], "Usage:"),
    ] {
        let output = output(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
    for args in [["broker", "-h"], ["namesrv", "--help"], ["standalone", "--version"]] {
        assert_eq!(output(&args).status.code(), Some(0));
    }
}
