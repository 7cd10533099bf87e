//! Replays frames that were recorded between a plain client and the real RocketMQ 5.3.3, and checks our answers as
//! recorded. `vectors/remoting/` holds them, one file per scenario, each of which gets a fresh broker.
//!
//! With `FERROMQ_TEST_PROGRAM=…/interop/peer/rocketmq` (an absolute path) they are replayed against the real one again,
//! which meets all checks but those of the text behind a Java exception: some JVMs leave it out.

mod recorded;
mod support;

use std::collections::HashSet;

use recorded::deviations::DEVIATIONS;
use recorded::line::Line;
use recorded::replay::replay;
use recorded::scope::LEFT_OUT;

#[test]
fn send() {
    replay("send", "JSON", &[]);
}

#[test]
fn pull() {
    replay("pull", "JSON", &[("enablePropertyFilter", "true")]);
}

#[test]
fn offsets() {
    replay("offsets", "JSON", &[]);
}

#[test]
fn consumers() {
    replay("consumers", "JSON", &[]);
}

#[test]
fn admin() {
    replay("admin", "JSON", &[]);
}

#[test]
fn errors() {
    replay("errors", "JSON", &[]);
}

#[test]
fn transport() {
    replay("transport", "JSON", &[]);
}

#[test]
fn binary_headers() {
    replay("binary", "ROCKETMQ", &[]);
}

#[test]
fn the_tables_name_lines_that_exist() {
    let values = DEVIATIONS.iter().flat_map(|entry| entry.values.iter().map(|value| (entry.file, value.0)));
    let mut named: Vec<_> = values.collect();
    named.extend(LEFT_OUT.iter().flat_map(|entry| entry.lines.iter().map(|line| (entry.file, *line))));
    for file in ["send", "pull", "offsets", "consumers", "admin", "errors", "transport", "binary"] {
        let names: HashSet<_> = Line::read_all(file).into_iter().map(|line| line.name).collect();
        named.retain(|(of, line)| *of != file || !names.contains(*line));
    }
    assert!(named.is_empty(), "unknown lines: {named:?}");
}

#[test]
fn every_deviation_is_documented() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = words(include_str!("../../../docs/differences.md"));
    for deviation in DEVIATIONS {
        assert!(page.contains(&words(deviation.reason)), "not in docs/differences.md: {}", deviation.reason);
    }
}
