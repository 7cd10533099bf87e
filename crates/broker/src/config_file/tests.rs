use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Table = BTreeMap<String, i64>;

fn table(text: &str) -> Table {
    json::from_slice(text.as_bytes()).unwrap()
}

struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("config/t.json")
    }

    fn write(&self, suffix: &str, content: &[u8]) {
        fs::create_dir_all(self.path().parent().unwrap()).unwrap();
        fs::write(self.path().to_string_lossy().into_owned() + suffix, content).unwrap();
    }

    fn read(&self, suffix: &str) -> Option<String> {
        fs::read_to_string(self.path().to_string_lossy().into_owned() + suffix).ok()
    }

    fn load(&self) -> Result<(ConfigFile, Option<Table>), LoadError> {
        ConfigFile::load(self.path())
    }
}

#[test]
fn without_any_file_there_is_nothing() {
    assert_eq!(Home::new().load().unwrap().1, None);
}

#[test]
fn a_save_keeps_the_state_before_it_as_backup() {
    let home = Home::new();
    let (file, _) = home.load().unwrap();
    file.save("{\"a\":1}").unwrap();
    assert_eq!((home.read(""), home.read(".bak")), (Some("{\"a\":1}".into()), None));
    file.save("{\"a\":2}").unwrap();
    assert_eq!((home.read(""), home.read(".bak")), (Some("{\"a\":2}".into()), Some("{\"a\":1}".into())));
    assert_eq!(home.read(".tmp"), None);
    assert_eq!(home.load().unwrap().1, Some(table("{a:2}")));
}

#[test]
fn a_crash_between_the_two_renames_costs_nothing() {
    let home = Home::new();
    home.write(".bak", b"{\"a\":1}");
    home.write(".tmp", b"{\"a\":2}");
    let (file, loaded) = home.load().unwrap();
    assert_eq!(loaded, Some(table("{a:1}")));
    file.save("{}").unwrap();
    assert_eq!((home.read(""), home.read(".bak")), (Some("{}".into()), Some("{\"a\":1}".into())));
}

#[test]
fn a_damaged_file_gives_way_to_its_backup_and_is_kept() {
    for damaged in [&b""[..], b" \n", b"\0\0\0\0", b"{\"a\":1", b"{\"a\":\"x\"}", b"\xff\xfe"] {
        let home = Home::new();
        home.write("", damaged);
        home.write(".bak", b"{\"a\":7}");
        let (file, loaded) = home.load().unwrap();
        assert_eq!(loaded, Some(table("{a:7}")), "{damaged:?}");
        file.save("{\"a\":8}").unwrap();
        assert_eq!(home.read(".bak"), Some("{\"a\":7}".into()), "not replaced by the damaged file");
        assert_eq!(fs::read(home.path().to_string_lossy().into_owned() + ".damaged").unwrap(), damaged);
        assert_eq!(home.load().unwrap().1, Some(table("{a:8}")));
    }
}

#[test]
fn what_is_unreadable_is_never_taken_for_empty() {
    let home = Home::new();
    home.write("", b"{\"a\":");
    let message = home.load().unwrap_err().to_string();
    let path = home.path().display().to_string();
    assert!(message.starts_with(&format!("{path} is damaged (at byte 5:")), "{message}");
    assert!(message.contains(&format!("remove {path} to start without what it held")), "{message}");

    home.write(".bak", b"\0");
    assert!(matches!(home.load(), Err(LoadError::Damaged { .. })));
    fs::remove_file(home.path()).unwrap();
    assert!(matches!(home.load(), Err(LoadError::DamagedBackup { reason: Damage::Zeros, .. })));
    assert_eq!(home.read(".bak"), Some("\0".into()), "files are left as they were found");
}

fn saved(home: &Home, delay: Duration) -> (SavedFile, Arc<Mutex<Table>>) {
    let (file, loaded) = home.load().unwrap();
    let shared = Arc::new(Mutex::new(loaded.unwrap_or_default()));
    let source = shared.clone();
    (SavedFile::start(file, delay, move || source.lock().clone()).unwrap(), shared)
}

#[test]
fn who_waits_finds_the_change_on_the_disk() {
    let home = Home::new();
    let (file, shared) = saved(&home, Duration::ZERO);
    for value in 0..5 {
        shared.lock().insert("a".into(), value);
        let revision = file.changed();
        assert_eq!(file.wait(revision), Ok(()));
        assert_eq!(home.load().unwrap().1, Some(Table::from([("a".into(), value)])));
    }
}

#[test]
fn stopping_saves_what_is_still_waiting() {
    let home = Home::new();
    let (file, shared) = saved(&home, Duration::from_secs(3600));
    shared.lock().insert("a".into(), 1);
    file.changed();
    shared.lock().insert("a".into(), 2);
    file.changed();
    file.stop();
    assert_eq!(home.load().unwrap().1, Some(table("{a:2}")));
    assert_eq!(home.read(".bak"), None, "both changes went with one save");
}

#[test]
fn who_is_in_a_hurry_does_not_wait_for_others() {
    let home = Home::new();
    let (file, shared) = saved(&home, Duration::from_secs(3600));
    shared.lock().insert("a".into(), 1);
    assert_eq!(file.save_now(file.changed()), Ok(()));
    assert_eq!(home.load().unwrap().1, Some(table("{a:1}")));
}

#[test]
fn nothing_is_written_without_a_change() {
    let home = Home::new();
    saved(&home, Duration::ZERO).0.stop();
    assert_eq!(home.read(""), None);
}

#[test]
fn who_waits_is_told_that_the_disk_refused() {
    let home = Home::new();
    let (file, _) = saved(&home, Duration::ZERO);
    // A file where the directory should be.
    fs::write(home.directory.path().join("config"), b"").unwrap();
    let error = file.wait(file.changed()).unwrap_err().to_string();
    assert!(error.starts_with("the change is in force, but it could not be saved: "), "{error}");
    assert!(error.contains("t.json: "), "{error}");
}

/// What may have happened to a file since it was saved.
#[derive(Clone, Debug)]
enum Fate {
    Whole,
    Missing,
    Cut(usize),
    Zeroed,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        Just(Fate::Whole),
        Just(Fate::Missing),
        (0..1000usize).prop_map(Fate::Cut),
        Just(Fate::Zeroed)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a crash did to the two files: the newest whole state is loaded, or the start is refused; never less.
    #[test]
    fn the_newest_whole_state_is_loaded(
        old in prop::collection::btree_map("[a-z@%]{1,8}", any::<i64>(), 0..6),
        new in prop::collection::btree_map("[a-z@%]{1,8}", any::<i64>(), 0..6),
        (main, backup) in (fate(), fate()),
    ) {
        let home = Home::new();
        let (file, _) = home.load().unwrap();
        file.save(&json::to_string_pretty(&old)).unwrap();
        file.save(&json::to_string_pretty(&new)).unwrap();
        for (suffix, fate) in [("", &main), (".bak", &backup)] {
            let path = home.path().to_string_lossy().into_owned() + suffix;
            let bytes = fs::read(&path).unwrap();
            match fate {
                Fate::Whole => {}
                Fate::Missing => fs::remove_file(&path).unwrap(),
                Fate::Cut(at) => fs::write(&path, &bytes[..at % bytes.len()]).unwrap(),
                Fate::Zeroed => fs::write(&path, vec![0; bytes.len()]).unwrap(),
            }
        }
        match (main, backup, home.load()) {
            (Fate::Whole, _, Ok((_, loaded))) => prop_assert_eq!(loaded, Some(new)),
            (_, Fate::Whole, Ok((_, loaded))) => prop_assert_eq!(loaded, Some(old)),
            (Fate::Missing, Fate::Missing, Ok((_, loaded))) => prop_assert_eq!(loaded, None),
            (_, _, Err(LoadError::Damaged { .. } | LoadError::DamagedBackup { .. })) => {}
            (main, backup, other) => prop_assert!(false, "{:?} {:?} {:?}", main, backup, other.map(|(_, v)| v)),
        }
    }
}
