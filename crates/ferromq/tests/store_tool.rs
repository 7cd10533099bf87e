//! `ferromq store` as an operator uses it: exit statuses, output that other programs can read, and stores in use.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use support::client::Client;
use support::messages::{create_topic, send};
use support::server::{self, BrokerPlace};

/// Small files, so that there are several of each kind.
const SETTINGS: [(&str, &str); 4] = [
    ("mappedFileSizeCommitLog", "65536"),
    ("mappedFileSizeConsumeQueue", "2000"),
    ("maxHashSlotNum", "500"),
    ("maxIndexNum", "2000"),
];
const TOPIC: &str = "Looked-Into";

fn store(arguments: &[&str], root: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ferromq"))
        .arg("store")
        .args(arguments)
        .arg(root)
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is text")
}

/// The status and what was printed.
fn status(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// A store with `messages` in two queues of one topic, after a clean stop.
fn filled(directory: &Path, messages: usize) -> PathBuf {
    let namesrv = server::start_namesrv(&directory.join("namesrv"));
    let place = BrokerPlace::new(&directory.join("broker"), namesrv.address(), &SETTINGS);
    let mut broker = place.start();
    let mut client = Client::connect(broker.address());
    create_topic(&mut client, TOPIC, 2);
    for number in 0..messages {
        client.call(send(TOPIC, number as i32 % 2, format!("body {number} {}", "x".repeat(600))));
    }
    assert!(broker.terminate(Duration::from_secs(30)).success());
    place.store()
}

#[test]
fn a_sound_store_a_damaged_one_and_none_are_told_apart_by_the_exit_status() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = filled(directory.path(), 200);
    let (code, said) = status(&store(&["check"], &root));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("200 whole records") && said.contains("The store is sound."), "{said}");
    // With the broker's settings it is the same.
    let settings = directory.path().join("broker/broker.conf");
    let (code, said) = status(&store(&["check", "-c", &settings.display().to_string()], &root));
    assert_eq!(code, Some(0), "{said}");

    let log = fs::File::options().write(true).open(root.join("commitlog/00000000000000000000"));
    log.expect("the log's first file").write_all_at(b"?", 1000).expect("a damaged byte");
    let (code, said) = status(&store(&["check"], &root));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("commitlog/00000000000000000000:") && said.contains("1 log-damaged"), "{said}");
    let (code, said) = status(&store(&["check", "--limit", "0"], &root));
    assert_eq!(code, Some(1), "{said}");
    assert!(!said.contains("body CRC") && said.contains("more (see --limit)"), "{said}");

    let nowhere = directory.path().join("nowhere");
    let (code, said) = status(&store(&["check"], &nowhere));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is no store") && !nowhere.exists(), "{said}");
    let (code, said) = status(&store(&["check", "--no-such-option"], &root));
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn a_store_in_use_is_refused_with_the_process_that_uses_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let namesrv = server::start_namesrv(&directory.path().join("namesrv"));
    let place = BrokerPlace::new(&directory.path().join("broker"), namesrv.address(), &SETTINGS);
    let broker = place.start();
    let (code, said) = status(&store(&["check"], &place.store()));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("process {}", broker.id())), "{said}");
}

#[test]
fn a_configuration_file_that_cannot_be_read_is_found() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = filled(directory.path(), 4);
    fs::write(root.join("config/topics.json"), "{\"topicConfigTable\":{").expect("a cut file");
    let (code, said) = status(&store(&["check"], &root));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("config/topics.json"), "{said}");
}
