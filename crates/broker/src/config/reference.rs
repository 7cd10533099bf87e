//! `docs/configuration.md` is written from the tables; this keeps it so.

use std::fmt::Write;
use std::path::Path;

use super::{BrokerConfig, Change, SETTINGS, Setting};

/// What follows in the file is written from the tables.
const MARK: &str =
    "<!-- From here on written by `UPDATE_DOCS=1 cargo test -p ferromq-broker reference`. -->\n";

fn reference() -> String {
    let mut out = String::new();
    let mut theme = "";
    let config = BrokerConfig::default();
    for setting in SETTINGS {
        if setting.theme != theme {
            theme = setting.theme;
            let _ = write!(out, "\n## {theme}\n\n| key | default | changes | meaning |\n|---|---|---|---|\n");
        }
        let star = if setting.important { "★ " } else { "" };
        let changes = match setting.change {
            Change::Live => "at once",
            Change::Restart => "restart",
            Change::Sealed => "file only",
            Change::Unused => "no effect",
        };
        let range = setting.range.map(|(least, most)| format!(" ({least} to {most})")).unwrap_or_default();
        let (key, default, meaning) = (setting.key, default(setting, &config), setting.doc.trim());
        let _ = writeln!(out, "| {star}`{key}` | {default}{range} | {changes} | {meaning} |");
    }
    out
}

/// The default, or how it is found out when that depends on the machine.
fn default(setting: &Setting, config: &BrokerConfig) -> String {
    match setting.default_source {
        "host_name()" => "the host's name".to_owned(),
        "local_address()" => "found out".to_owned(),
        "home_store()" => "`$HOME/store`".to_owned(),
        source if source.contains("processors()") => {
            format!("`{}`", source.replace("processors()", "processors"))
        }
        _ => match (setting.get)(config) {
            Some(text) if !text.is_empty() => format!("`{text}`"),
            _ => "none".to_owned(),
        },
    }
}

#[test]
fn the_reference_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let by_hand = text.split(MARK).next().unwrap();
    let expected = format!("{by_hand}{MARK}{}", reference());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, expected).unwrap();
    } else {
        assert!(text == expected, "run UPDATE_DOCS=1 cargo test -p ferromq-broker reference");
    }
}

#[test]
fn every_key_is_there_once_and_has_a_meaning() {
    let mut keys: Vec<_> = SETTINGS.iter().map(|setting| setting.key).collect();
    keys.sort_unstable();
    assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(SETTINGS.iter().all(|setting| setting.doc.trim().ends_with('.')));
}

/// What a real 5.3.3 broker lists, without the keys that are set to other than the defaults in that recording.
#[test]
fn every_key_and_default_of_rocketmq_is_there() {
    let recorded = include_str!("recorded-5.3.3.properties");
    let config = BrokerConfig::default();
    let own = config.entries();
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = line.split_once('=').unwrap();
        let setting = Setting::find(key).unwrap_or_else(|| panic!("{key} is missing"));
        if setting.default_source.contains('(') && !setting.default_source.contains("Default") {
            continue;
        }
        let ours = own.iter().find(|(own, _)| *own == key).map(|(_, value)| value.as_str());
        assert_eq!(ours, Some(value), "{key}");
    }
}
