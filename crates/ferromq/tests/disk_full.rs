//! A broker on a small file system that fills up. Needs the right to mount one (tmpfs); without it the tests say so and
//! pass.

mod support;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ferromq_protocol::code::response;
use ferromq_protocol::command::RemotingCommand;

use support::client::Client;
use support::messages::{create_topic, read_queue, send};
use support::server::{self, BrokerPlace, Process};

const TOPIC: &str = "Full";
const DISK_BYTES: usize = 64 << 20;
/// How long the broker may take to notice that the disk is full, or that it no longer is.
const NOTICE_MAX: Duration = Duration::from_secs(15);

const SETTINGS: [(&str, &str); 5] = [
    ("mappedFileSizeCommitLog", "1048576"),
    ("mappedFileSizeConsumeQueue", "20000"),
    ("maxHashSlotNum", "1000"),
    ("maxIndexNum", "4000"),
    ("cleanFileForciblyEnable", "false"),
];

#[test]
fn above_the_limit_sends_are_refused_and_reads_go_on() {
    let Some(mut scene) =
        Scene::new(&[("cleanResourceInterval", "100"), ("diskSpaceWarningLevelRatio", "90")])
    else {
        return;
    };
    for _ in 0..100 {
        assert_eq!(scene.send(100).code, response::SUCCESS);
    }

    scene.disk.fill(95);
    let refusal = scene.await_code(response::SERVICE_NOT_AVAILABLE);
    let remark = refusal.remark.expect("a refusal says why");
    let directory = scene.place.store().display().to_string();
    for part in [directory.as_str(), "limit is 90", "diskSpaceWarningLevelRatio"] {
        assert!(remark.contains(part), "the refusal names {part}: {remark}");
    }
    // It may have looked before the disk was as full as it is now.
    let names_use = (91..=97).any(|percent| remark.contains(&format!("uses {percent} percent")));
    assert!(names_use, "the refusal names the use: {remark}");
    scene.expect_all_messages();
    assert_eq!(scene.send(100).code, response::SERVICE_NOT_AVAILABLE, "still full");

    scene.disk.free();
    scene.await_code(response::SUCCESS);
    scene.expect_all_messages();
}

#[test]
fn when_no_byte_is_left_nothing_breaks() {
    // The use is not looked at in time: the file system itself is what refuses.
    let Some(mut scene) = Scene::new(&[("cleanResourceInterval", "3600000")]) else { return };
    assert_eq!(scene.send(100).code, response::SUCCESS);

    scene.disk.fill(100);
    let refusal = scene.await_code(response::SERVICE_NOT_AVAILABLE);
    let remark = refusal.remark.expect("a refusal says why");
    let directory = scene.place.store().display().to_string();
    assert!(remark.contains(&directory), "the refusal names {directory}: {remark}");
    scene.expect_all_messages();

    scene.disk.free();
    scene.await_code(response::SUCCESS);
    scene.expect_all_messages();

    scene.broker.kill();
    scene.broker = scene.place.start();
    scene.client = Client::connect(scene.broker.address());
    scene.expect_all_messages();
    assert_eq!(scene.send(100).code, response::SUCCESS);
}

/// A broker on a small disk.
struct Scene {
    client: Client,
    broker: Process,
    place: BrokerPlace,
    disk: SmallDisk,
    _namesrv: Process,
    _directory: tempfile::TempDir,
    acknowledged: usize,
}

impl Scene {
    fn new(settings: &[(&str, &str)]) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = match SmallDisk::mount(&directory.path().join("disk")) {
            Ok(disk) => disk,
            Err(reason) => {
                println!("skipped: no small file system for this test: {reason}");
                return None;
            }
        };
        let namesrv = server::start_namesrv(&directory.path().join("namesrv"));
        let settings = [&SETTINGS[..], settings].concat();
        let place = BrokerPlace::new(&disk.path.join("broker"), namesrv.address(), &settings);
        let broker = place.start();
        let mut client = Client::connect(broker.address());
        create_topic(&mut client, TOPIC, 1);
        Some(Self { client, broker, place, disk, _namesrv: namesrv, _directory: directory, acknowledged: 0 })
    }

    /// Sends one message, whose body tells its number.
    fn send(&mut self, length: usize) -> RemotingCommand {
        let body = format!("{:0length$}", self.acknowledged);
        let answer = self.client.call(send(TOPIC, 0, body));
        self.acknowledged += usize::from(answer.code == response::SUCCESS);
        answer
    }

    /// Sends until the broker answers so.
    fn await_code(&mut self, code: i32) -> RemotingCommand {
        let deadline = Instant::now() + NOTICE_MAX;
        loop {
            let answer = self.send(50_000);
            if answer.code == code {
                return answer;
            }
            assert!(Instant::now() < deadline, "the broker goes on answering {answer:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reads the whole queue: just the acknowledged messages, in their order.
    fn expect_all_messages(&mut self) {
        let found = read_queue(&mut self.client, TOPIC, 0, 0);
        assert_eq!(found.len(), self.acknowledged);
        for (number, message) in found.iter().enumerate() {
            assert_eq!(message.body.parse::<usize>().ok(), Some(number), "at {}", message.offset);
        }
    }
}

/// A file system in memory, unmounted when dropped.
struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    fn mount(path: &Path) -> Result<Self, String> {
        fs::create_dir_all(path).expect("the mount point");
        let size = format!("size={DISK_BYTES}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output();
        let output = mount.map_err(|error| format!("mount: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        Ok(Self { path: path.to_owned() })
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    /// Uses up the disk to this percentage.
    fn fill(&self, percent: usize) {
        let mut ballast = File::create(self.ballast()).expect("a file that takes space");
        let block = [1; 4096];
        while self.used_percent() < percent as f64 {
            if ballast.write_all(&block).is_err() {
                return; // no byte is left
            }
        }
    }

    fn free(&self) {
        fs::remove_file(self.ballast()).expect("the file that takes space");
    }

    fn used_percent(&self) -> f64 {
        let state = rustix::fs::statvfs(&self.path).expect("the state of the disk");
        100.0 * (state.f_blocks - state.f_bfree) as f64 / state.f_blocks as f64
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _gone_with_the_machine = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
