//! `ferromq bench` against its own null server: that everything is sent, answered and counted. Nothing is timed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A null server that ends with the test.
struct NullServer {
    process: Child,
    address: String,
}

impl NullServer {
    fn start() -> Self {
        let mut process = ferromq()
            .args(["bench", "null-server", "--port", "0", "--threads", "1"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it tells its address");
        let address = line.trim().rsplit(' ').next().expect("the line has words").to_owned();
        Self { process, address }
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ferromq() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ferromq"))
}

/// Runs a producer and returns its report.
fn produce(address: &str, arguments: &[&str]) -> Value {
    let output = ferromq()
        .args(["bench", "producer", "--addr", address, "--json", "--quiet"])
        .args(arguments)
        .output()
        .expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).expect("the report is JSON")
}

#[test]
fn every_message_is_sent_answered_and_counted() {
    let server = NullServer::start();
    let pid = server.process.id().to_string();
    let variants: [&[&str]; 5] = [
        &["--connections", "3", "--depth", "7"],
        &["--header", "binary", "--threads", "2", "--topics", "3", "--queues", "12"],
        &["--connections", "1", "--depth", "1", "--size", "1"],
        &["--rate", "20000", "--connections", "2"],
        &["--size", "300000", "--depth", "20", "--create", "auto", "--server-pid", &pid],
    ];
    for variant in variants {
        let report = produce(&server.address, &[&["--messages", "1000"], variant].concat());
        assert_eq!(report["messages"], 1000, "{report}");
        assert_eq!(report["latency_us"]["samples"], 1000, "{report}");
        assert_eq!(report["errors"], serde_json::json!({}), "{report}");
        assert_eq!(report["server"].is_object(), variant.contains(&"--server-pid"), "{report}");
    }
}

#[test]
fn batches_are_counted_by_message() {
    let server = NullServer::start();
    let report = produce(&server.address, &["--messages", "1000", "--batch", "10"]);
    assert_eq!((report["messages"].as_u64(), report["answers"].as_u64()), (Some(1000), Some(100)));
}

#[test]
fn refusals_are_counted_by_code() {
    // The null server knows no pulls and no offsets: the consumer is refused before it begins.
    let server = NullServer::start();
    let output =
        ferromq().args(["bench", "consumer", "--addr", &server.address]).output().expect("the binary starts");
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("code 3, ") && error.contains("request type 31 not supported"), "{error}");
}
