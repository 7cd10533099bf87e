//! What the reader and the writer promise together.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Key {
    queue_id: i32,
    topic: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Mode {
    #[default]
    Pull,
    PopIt,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Sample {
    by_flag: BTreeMap<bool, i32>,
    by_id: BTreeMap<i64, String>,
    by_key: BTreeMap<Key, i64>,
    by_name: BTreeMap<String, Vec<i32>>,
    empty: Vec<i32>,
    #[serde(deserialize_with = "enum_or_default")]
    mode: Mode,
    #[serde(deserialize_with = "enum_or_none")]
    mode_or_none: Option<Mode>,
    name: Option<String>,
    order: bool,
    #[serde(serialize_with = "in_line")]
    set: Vec<i32>,
    tps: f64,
}

fn sample() -> Sample {
    Sample {
        by_flag: BTreeMap::from([(true, 1)]),
        by_id: BTreeMap::from([(0, "a/é".to_owned()), (10, "b".to_owned())]),
        by_key: BTreeMap::from([(Key { queue_id: 0, topic: "T".to_owned() }, 5)]),
        by_name: BTreeMap::from([("n".to_owned(), vec![1, 2])]),
        mode_or_none: Some(Mode::PopIt),
        set: vec![1, 2],
        tps: 1.5,
        ..Sample::default()
    }
}

fn read(text: &str) -> Sample {
    from_slice(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn error(text: &str) -> String {
    from_slice::<Sample>(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn legacy_form() {
    let text = r#"{"byFlag":{true:1},"byId":{0:"a/é",10:"b"},"byKey":{{"queueId":0,"topic":"T"}:5},"byName":{"n":[1,2]},"empty":[],"mode":"PULL","modeOrNone":"POP_IT","order":false,"set":[1,2],"tps":1.5}"#;
    assert_eq!(to_string(&sample()), text);
    assert_eq!(read(text), sample());
}

#[test]
fn standard_form() {
    let text = r#"{"byFlag":{"true":1},"byId":{"0":"a\/\u00E9","10":"b"},"byKey":{"{\"queueId\":0,\"topic\":\"T\"}":5},"byName":{"n":[1,2]},"empty":[],"mode":"PULL","modeOrNone":"POP_IT","order":false,"set":[1,2],"tps":1.5}"#;
    assert_eq!(String::from_utf8(to_vec_standard(&sample())).unwrap(), text);
    assert_eq!(read(text), sample());
}

#[test]
fn pretty_form() {
    let mut sample = sample();
    sample.by_key.clear();
    let text = "{\n\t\"byFlag\":{true:1\n\t},\n\t\"byId\":{0:\"a/é\",10:\"b\"\n\t},\n\t\"byKey\":{},\n\t\"byName\":{\n\t\t\"n\":[\n\t\t\t1,\n\t\t\t2\n\t\t]\n\t},\n\t\"empty\":[],\n\t\"mode\":\"PULL\",\n\t\"modeOrNone\":\"POP_IT\",\n\t\"order\":false,\n\t\"set\":[1,2],\n\t\"tps\":1.5\n}";
    assert_eq!(to_string_pretty(&sample), text);
    assert_eq!(read(text), sample);
}

#[test]
fn nulls_are_left_out_except_in_lists_and_not_numbers() {
    let values = BTreeMap::from([("a", None), ("b", Some(f64::NAN)), ("c", Some(1.0))]);
    assert_eq!(to_string(&values), r#"{"b":null,"c":1.0}"#);
    assert_eq!(to_string(&[None, Some(1)]), "[null,1]");
    assert_eq!(to_string(&None::<i32>), "null");
    assert_eq!(to_string_pretty(&BTreeMap::from([("a", None::<i32>)])), "{}");
}

#[test]
fn names_of_members_in_any_spelling() {
    let expected = Sample { order: true, tps: 2.0, ..Sample::default() };
    assert_eq!(read("{isOrder:true,'TPS':2}"), expected);
    assert_eq!(read(r#"{"or_der":true,"t-ps":2.0,"unknown":[{"x":null}]}"#), expected);
    assert_eq!(read(r#"{"order":false,"tps":1,"tps":2,"order":true}"#), expected);
}

#[test]
fn null_is_absent() {
    assert_eq!(
        read(r#"{"byId":null,"byName":{"a":null},"empty":[null],"mode":null,"modeOrNone":null,"name":null}"#),
        Sample::default()
    );
    assert_eq!(error("null"), "at $: expected an object, found null");
}

#[test]
fn values_are_converted() {
    let sample =
        read(r#"{"order":"true","empty":["97",98.9,"1,000",true],"tps":"1.5","name":{"x":[1,"a"]}}"#);
    assert_eq!((sample.order, sample.empty, sample.tps), (true, vec![97, 98, 1000, 1], 1.5));
    assert_eq!(sample.name.as_deref(), Some(r#"{"x":[1,"a"]}"#));
    assert_eq!(read(r#"{"name":1.50}"#).name.as_deref(), Some("1.50"));
    assert!(!read(r#"{"order":"N"}"#).order);
}

#[test]
fn enums_by_name_position_or_nothing() {
    assert_eq!(read(r#"{"mode":1,"modeOrNone":"pop_it"}"#).mode, Mode::PopIt);
    assert_eq!(read(r#"{"mode":"PUSH","modeOrNone":"1"}"#), Sample::default());
    assert_eq!(error(r#"{"modeOrNone":2}"#), "at $.modeOrNone: expected a position below 2, found 2");
    assert_eq!(from_slice::<Mode>(b"\"Pop_It\""), Ok(Mode::PopIt));
    assert_eq!(from_slice::<Vec<Mode>>(b"[1,0]"), Ok(vec![Mode::PopIt, Mode::Pull]));
}

#[test]
fn keys_quoted_or_not() {
    assert_eq!(read(r#"{"byId":{"0":"a/é",10:"b"}}"#).by_id, sample().by_id);
    assert_eq!(read(r#"{"byKey":{"{\"topic\":\"T\"}":5}}"#).by_key, sample().by_key);
    assert_eq!(read(r#"{"byKey":{{"topic":"T"}:5}}"#).by_key, sample().by_key);
}

#[test]
fn shape_errors_name_the_place() {
    assert_eq!(error(r#"{"byId":[]}"#), "at $.byId: expected an object, found an array");
    assert_eq!(error(r#"{"byName":{"a":[1,{}]}}"#), "at $.byName.a[1]: expected an integer, found an object");
    assert_eq!(error(r#"{"byId":{"x":"a"}}"#), "at $.byId key: expected an integer, found \"x\"");
    assert!(
        error(r#"{"empty":[3000000000]}"#).starts_with("at $.empty[0]: invalid value: integer `3000000000`")
    );
    assert_eq!(
        from_slice::<i64>(b"9223372036854775808").unwrap_err().to_string(),
        "at $: expected an integer, found 9223372036854775808"
    );
}

#[test]
fn references_are_resolved() {
    let by_name = |text: &str| read(text).by_name;
    let both = BTreeMap::from([("a.b".to_owned(), vec![7]), ("n".to_owned(), vec![7])]);
    assert_eq!(by_name(r#"{"byName":{"a.b":[7],"n":{"$ref":"$.byName.a\\.b"}}}"#), both);
    assert_eq!(by_name(r#"{"byName":{"n":{"$ref":"$.x[1].y"},"a.b":[7]},"x":[0,{"y":[7]}]}"#), both);
    assert_eq!(
        from_slice::<Vec<BTreeMap<String, i32>>>(br#"[{"a":1},{"$ref":"$[0]"}]"#).unwrap()[1],
        BTreeMap::from([("a".to_owned(), 1)])
    );
    let keys = r#"{"pop":{{"queueId":3,"topic":"T"}:1},"byKey":{{"$ref":"$.pop.null"}:2}}"#;
    assert_eq!(read(keys).by_key, BTreeMap::from([(Key { queue_id: 3, topic: "T".to_owned() }, 2)]));
}

#[test]
fn references_that_lead_nowhere_are_absent() {
    for path in
        ["", "$", "..", "@", "$.x", "$[0]", "$.byName", "$.byName.n", "$.byName.n.n", "$.", "$[", "$x"]
    {
        let text = format!(r#"{{"byName":{{"n":{{"$ref":"{path}"}}}}}}"#);
        // A reference to what is around it ends as a list that isn't one, all others as nothing.
        match from_slice::<Sample>(text.as_bytes()) {
            Ok(sample) => assert_eq!(sample, Sample::default(), "{path}"),
            Err(error) => assert_eq!(path, "$.byName", "{error}"),
        }
    }
}

#[test]
fn references_cannot_multiply() {
    type Deep = Vec<Vec<Vec<Vec<Vec<i32>>>>>;
    let refs = |path: &str| vec![format!(r#"{{"$ref":"{path}"}}"#); 100].join(",");
    let text = format!(
        "[[[[[{}],{}],{}],{}]]",
        vec!["1"; 100].join(","),
        refs("$[0][0][0][0]"),
        refs("$[0][0][0]"),
        refs("$[0][0]")
    );
    assert_eq!(from_slice::<Deep>(text.as_bytes()), Err(JsonError::TooManyReferences));
}

#[test]
fn many_references_into_a_large_object_are_cheap() {
    let targets: Vec<_> = (0..20_000).map(|i| format!(r#""t{i}":[{i}]"#)).collect();
    let refs: Vec<_> = (0..20_000).map(|i| format!(r#""r{i}":{{"$ref":"$.x.t{i}"}}"#)).collect();
    let text = format!(r#"{{"x":{{{}}},"byName":{{{}}}}}"#, targets.join(","), refs.join(","));
    assert_eq!(read(&text).by_name["r19999"], [19_999]);
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let maps = (
        any::<BTreeMap<bool, i32>>(),
        any::<BTreeMap<i64, String>>(),
        prop::collection::btree_map((any::<i32>(), any::<String>()), any::<i64>(), 0..4),
        any::<BTreeMap<String, Vec<i32>>>(),
    );
    (
        maps,
        any::<Option<bool>>(),
        any::<Option<String>>(),
        any::<bool>(),
        any::<Vec<i32>>(),
        prop::num::f64::NORMAL,
    )
        .prop_map(|((by_flag, by_id, by_key, by_name), mode, name, order, set, tps)| Sample {
            by_flag,
            by_id,
            by_key: by_key.into_iter().map(|((queue_id, topic), v)| (Key { queue_id, topic }, v)).collect(),
            by_name,
            empty: Vec::new(),
            mode: Mode::Pull,
            mode_or_none: mode.map(|pop| if pop { Mode::PopIt } else { Mode::Pull }),
            name,
            order,
            set,
            tps,
        })
}

proptest! {
    #[test]
    fn what_is_written_is_read(sample in any_sample()) {
        prop_assert_eq!(&from_slice::<Sample>(&to_vec(&sample)).unwrap(), &sample);
        prop_assert_eq!(&from_slice::<Sample>(&to_vec_standard(&sample)).unwrap(), &sample);
        prop_assert_eq!(&from_slice::<Sample>(to_string_pretty(&sample).as_bytes()).unwrap(), &sample);
    }

    #[test]
    fn values_survive_their_own_text(text in json_like()) {
        if let Ok(value) = parse(&text) {
            let written = value.to_string();
            prop_assert_eq!(parse(&written).unwrap(), value);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in any::<Vec<u8>>(), text in json_like()) {
        let _ = from_slice::<Sample>(&bytes);
        let _ = from_slice::<Sample>(text.as_bytes());
        let _ = from_slice::<Vec<Sample>>(text.as_bytes());
    }
}

/// Text that gets far into the reader.
fn json_like() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(","),
        Just(":"),
        Just("\"byKey\""),
        Just("byName"),
        Just("\"$ref\":\"$.byName\""),
        Just("\"$ref\""),
        Just("\"$[0].a\\\\.b\""),
        Just("'\\u4e2d'"),
        Just("\\"),
        Just("\\uD83D"),
        Just("-1.5e3"),
        Just("true"),
        Just("null"),
        Just("é"),
        Just("\"mode\":"),
        Just("0"),
        Just("//"),
        Just("/*"),
        Just(" "),
        Just("\"{topic:1}\""),
        Just("{\"byId\":{0:\"a\"}}"),
        Just("1L"),
    ];
    prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
}
