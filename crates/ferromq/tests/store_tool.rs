//! `ferromq store` as an operator uses it: exit statuses, output that other programs can read, and stores in use.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use support::client::Client;
use support::messages::{create_topic, create_topic_with, send};
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
    // It listens before its store is open; an answer comes after that.
    create_topic(&mut Client::connect(broker.address()), TOPIC, 1);
    for command in ["check", "dump", "rebuild", "stat"] {
        let (code, said) = status(&store(&[command], &place.store()));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&format!("process {}", broker.id())), "{said}");
    }
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

/// Every line of a dump.
fn lines(output: &Output) -> Vec<serde_json::Value> {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[test]
fn a_dump_is_lines_of_json() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = filled(directory.path(), 100);
    let all = lines(&store(&["dump"], &root));
    assert_eq!(all.len(), 100);
    for (number, message) in all.iter().enumerate() {
        assert_eq!(message["topic"], TOPIC);
        assert_eq!(
            (&message["queueId"], &message["queueOffset"]),
            (&(number % 2).into(), &(number / 2).into())
        );
        assert_eq!(message["bodyEncoding"], "text");
        assert!(message["body"].as_str().is_some_and(|body| body.starts_with(&format!("body {number} "))));
        assert_eq!(message["properties"]["TAGS"], "A");
    }
    let queue = ["dump", "--topic", TOPIC, "--queue", "1", "--queue-from", "10", "--queue-to", "13"];
    let bodies = |lines: &[serde_json::Value]| -> Vec<String> {
        lines.iter().map(|line| line["body"].as_str().unwrap_or_default()[..7].to_owned()).collect()
    };
    assert_eq!(bodies(&lines(&store(&queue, &root))), ["body 21", "body 23", "body 25"]);
    let one = all[70]["physicalOffset"].to_string();
    assert_eq!(lines(&store(&["dump", "--offset", &one], &root)), [all[70].clone()]);
    let (code, said) = status(&store(&["dump", "--offset", "1"], &root));
    assert_eq!(code, Some(1), "{said}");
    let key = all[42]["properties"]["UNIQ_KEY"].as_str().expect("the broker gives one").to_owned();
    assert_eq!(lines(&store(&["dump", "-t", TOPIC, "-k", &key], &root)), [all[42].clone()]);
    assert_eq!(lines(&store(&["dump", "--max", "7"], &root)).len(), 7);
    assert_eq!(lines(&store(&["dump", "--begin", "2200-01-01T00:00:00Z"], &root)).len(), 0);
    assert_eq!(lines(&store(&["dump", "--end", "2200-01-01 00:00:00"], &root)).len(), 100);
}

#[test]
fn a_dump_that_nobody_reads_on_ends_quietly() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = filled(directory.path(), 400);
    let mut child = Command::new(env!("CARGO_BIN_EXE_ferromq"))
        .args(["store", "dump"])
        .arg(&root)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut first = String::new();
    BufReader::with_capacity(64, child.stdout.take().expect("a pipe")).read_line(&mut first).expect("a line");
    assert!(first.starts_with('{'));
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(status(&output), (Some(0), String::new()));
}

#[test]
fn a_rebuilt_store_is_sound_and_serves_the_same_messages() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = filled(directory.path(), 200);
    let before = lines(&store(&["dump"], &root));
    fs::remove_dir_all(root.join("consumequeue").join(TOPIC).join("1")).expect("a lost queue");
    fs::remove_dir_all(root.join("index")).expect("a lost index");
    let (code, said) = status(&store(&["check"], &root));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1 units-missing") && said.contains("1 keys-missing"), "{said}");

    let (code, said) = status(&store(&["rebuild"], &root));
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("200 records") && said.contains("with 200 units") && said.contains("records/s"),
        "{said}"
    );
    let (code, said) = status(&store(&["check"], &root));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(lines(&store(&["dump"], &root)), before);
    let bodies = |queue: usize| {
        before.iter().filter(move |line| line["queueId"] == queue).map(|line| line["body"].clone())
    };

    // The broker serves it.
    let namesrv = server::start_namesrv(&directory.path().join("namesrv-2"));
    let place = BrokerPlace::new(&directory.path().join("broker"), namesrv.address(), &SETTINGS);
    let broker = place.start();
    let mut client = Client::connect(broker.address());
    for queue in 0..2 {
        let served = support::messages::read_queue(&mut client, TOPIC, queue, 0);
        let served: Vec<_> =
            served.into_iter().map(|message| serde_json::Value::from(message.body)).collect();
        assert_eq!(served, bodies(queue as usize).collect::<Vec<_>>());
    }
}

#[test]
fn a_topic_of_batches_is_checked_dumped_and_rebuilt() {
    const TOPIC: &str = "Batches";
    let directory = tempfile::tempdir().expect("a temporary directory");
    let namesrv = server::start_namesrv(&directory.path().join("namesrv"));
    let place = BrokerPlace::new(&directory.path().join("broker"), namesrv.address(), &SETTINGS);
    let mut broker = place.start();
    let mut client = Client::connect(broker.address());
    create_topic_with(&mut client, TOPIC, 1, "+queue.type=BatchCQ");
    for number in 0..150 {
        client.call(send(TOPIC, 0, format!("body {number}")));
    }
    assert!(broker.terminate(Duration::from_secs(30)).success());
    let root = place.store();
    let (code, said) = status(&store(&["check"], &root));
    assert_eq!(code, Some(0), "{said}");
    let dump = || lines(&store(&["dump", "--topic", TOPIC, "--queue", "0"], &root));
    let before = dump();
    assert_eq!(before.len(), 150);

    // Only topics.json says now that the topic is one of batches.
    for lost in ["batchconsumequeue", "batchconsumequeue.units"] {
        fs::remove_dir_all(root.join(lost)).expect("lost queues");
    }
    let (code, said) = status(&store(&["check"], &root));
    assert_eq!(code, Some(1), "{said}");
    for file in ["batchconsumequeue", "batchconsumequeue.units"] {
        let missing = format!(
            "repair  {file}/{TOPIC}/0/00000000000000000000:0: units 0..150 of queue {TOPIC}-0 are missing"
        );
        assert!(said.contains(&missing), "{said}");
    }
    let (code, said) = status(&store(&["rebuild"], &root));
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = status(&store(&["check"], &root));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(dump(), before);
}

#[test]
fn statistics_are_a_table_or_json() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = filled(directory.path(), 50);
    let (code, said) = status(&store(&["stat"], &root));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(TOPIC) && said.contains("messages  50"), "{said}");
    let output = store(&["stat", "--json", "--topics", "1"], &root);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&document["messages"], &document["topics"][0]["topic"]), (&50.into(), &TOPIC.into()));
    assert_eq!(
        (&document["topics"][0]["queues"], document["topics"].as_array().map(Vec::len)),
        (&2.into(), Some(1))
    );
    let days = document["days"].as_object().expect("days");
    assert_eq!(days.values().filter_map(|day| day["messages"].as_u64()).sum::<u64>(), 50);
}

#[test]
fn a_store_of_dledger_mode_is_imported_and_checked() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/data/dledger-5.3.3.tar.gz");
    let unpacked = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(directory.path()).status();
    assert!(unpacked.expect("tar runs").success());
    let source = directory.path().join("store");
    let target = directory.path().join("imported");
    let to = ["import-dledger", "--to", &target.display().to_string()];
    let (code, said) = status(&store(&to, &source));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("434 messages") && said.contains("committed up to 433"), "{said}");
    assert!(said.contains("verified   434 messages"), "{said}");
    let (code, said) = status(&store(&["check"], &target));
    assert_eq!(code, Some(0), "{said}");

    // Once more would overwrite it.
    let (code, said) = status(&store(&to, &source));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is there already"), "{said}");

    fs::remove_dir_all(&target).expect("the imported store goes");
    let entries = source.join("dledger-n1/data/00000000000000000000");
    let entries = fs::File::options().write(true).open(entries).expect("the file of the first entries");
    entries.write_all_at(b"?", 1200).expect("a damaged byte");
    let (code, said) = status(&store(&to, &source));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("dledger-n1/data/00000000000000000000:978: ") && !target.exists(), "{said}");
    let (code, said) = status(&store(&[&to[..], &["--skip-damaged"]].concat(), &source));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("verified   433 messages"), "{said}");
}
