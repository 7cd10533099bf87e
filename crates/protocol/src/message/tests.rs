//! Records of the reference, and random ones, through the codec (`docs/spec/02-store.md` §18.1).

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn fields<'a>(topic: &'a str, queue_id: i32, body: &'a [u8], properties: &'a [u8]) -> RecordFields<'a> {
    RecordFields {
        topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: "10.0.0.1:54321".parse().unwrap(),
        store_host: "192.168.1.2:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties,
    }
}

#[track_caller]
fn check(
    fields: &RecordFields<'_>,
    queue_offset: i64,
    physical_offset: u64,
    store_timestamp: i64,
    crc: bool,
    expected: &str,
) {
    let mut record = Vec::new();
    let len = match crc {
        true => fields.encode_with_crc_property_into(&mut record).unwrap(),
        false => fields.encode_into(&mut record).unwrap(),
    };
    set_log_fields(&mut record, queue_offset, physical_offset, store_timestamp);
    if crc {
        seal_crc_property(&mut record);
    }
    assert_eq!(len, record.len());
    assert_eq!(record, unhex(expected));
    let view = RecordView::whole(&record, physical_offset).unwrap();
    assert_eq!(view.topic(), Some(fields.topic));
    assert_eq!(view.body(), fields.body);
    assert_eq!((view.queue_offset(), view.store_timestamp()), (queue_offset, store_timestamp));
    assert_eq!((view.born_host(), view.store_host()), (fields.born_host, fields.store_host));
}

#[test]
fn hashes_are_those_of_java() {
    assert_eq!(java_string_hash("TagA"), 2_598_919);
    assert_eq!(java_string_hash("TagB"), 2_598_920);
    assert_eq!(java_string_hash("中文标签"), 622_041_809);
    assert_eq!(java_string_hash("中文"), 646_394);
    assert_eq!(java_string_hash("polygenelubricants"), i32::MIN);
    assert_eq!(java_string_hash("TopicTest#k1"), 2_746_024);
    assert_eq!(java_string_hash("TopicTest#AC11000100002A9F0000000000000001"), -1_797_237_886);
    assert_eq!(java_string_hash_onto(java_string_hash("TopicTest"), "#k1"), 2_746_024);
    assert_eq!(java_string_hash("*"), 42);
    // A character outside of the basic plane counts as its two surrogates.
    let surrogates =
        [0xD83Du16, 0xDE00].iter().fold(0i32, |h, u| h.wrapping_mul(31).wrapping_add(i32::from(*u)));
    assert_eq!(java_string_hash("\u{1F600}"), surrogates);
    assert_eq!(tags_code(Some("polygenelubricants")), i64::from(i32::MIN));
    assert_eq!(tags_code(None), 0);
}

#[test]
fn crc_has_bit_31_cleared() {
    assert_eq!(crc32(b""), 0);
    assert_eq!(crc32(b"hello"), 907_060_870);
    assert_eq!(crc32(b"a"), 1_756_872_259);
    assert_eq!(crc32(b"123456789"), 1_274_296_614);
    assert_eq!(crc32(b"hi"), 1_486_039_724);
}

#[test]
fn r1_and_r2_plain_messages() {
    let properties = b"UNIQ_KEY\x01AC11000100002A9F0000000000000001\x02KEYS\x01k1 k2\x02TAGS\x01TagA\x02";
    let first = "000000a8daa320a73610a686000000030000000000000000000000000000000000000000000000000000018bcfe568000a0000010000d431\
        0000018bcfe56cd2c0a8010200002a9f0000000000000000000000000000000568656c6c6f09546f70696354657374003f554e49515f4b4559\
        014143313130303031303030303241394630303030303030303030303030303031024b455953016b31206b320254414753015461674102";
    check(&fields("TopicTest", 3, b"hello", properties), 0, 0, 1_700_000_001_234, false, first);
    let second = "0000007cdaa320a769c865ed0000000300000000000000000000000100000000000000a8000000000000018bcfe568000a0000010000d431\
        0000018bcfe570bac0a8010200002a9f0000000000000000000000000000000e48656c6c6f20526f636b65744d5109546f70696354657374\
        000a54414753015461674202";
    check(
        &fields("TopicTest", 3, b"Hello RocketMQ", b"TAGS\x01TagB\x02"),
        1,
        168,
        1_700_000_002_234,
        false,
        second,
    );
}

#[test]
fn r3_ipv6_and_r4_long_topic() {
    let v6 = RecordFields {
        born_host: "[2001:db8::1]:54321".parse().unwrap(),
        store_host: "[2001:db8::2]:10911".parse().unwrap(),
        ..fields("TopicV6", 0, b"ipv6", b"")
    };
    let expected = "0000007edaa320a70544442c000000000000000000000000000000000000000000000124000000300000018bcfe5680020010db800000000\
        00000000000000010000d4310000018bcfe574a220010db800000000000000000000000200002a9f00000000000000000000000000000004\
        6970763607546f70696356360000";
    check(&v6, 0, 292, 1_700_000_003_234, false, expected);
    let long = format!("%RETRY%{}", "g".repeat(123));
    let expected = format!(
        "000000e0daa320ab706b9d0f0000000000000000000000000000000000000000000001a2000000000000018bcfe568000a0000010000d431\
         0000018bcfe574a2c0a8010200002a9f00000000000000000000000000000002763200822552455452592567{}0000",
        "67".repeat(122)
    );
    check(&fields(&long, 0, b"v2", b""), 0, 418, 1_700_000_003_234, false, &expected);
}

#[test]
fn r5_prepared_and_r6_blank() {
    let half = RecordFields {
        sys_flag: sysflag::TRANSACTION_PREPARED,
        ..fields("TopicTest", 3, b"half", b"KEYS\x01kt\x02TAGS\x01TagA\x02")
    };
    let expected = "0000007adaa320a77b5a4121000000030000000000000000000000000000000000001000000000040000018bcfe568000a0000010000d431\
        0000018bcfe5788ac0a8010200002a9f0000000000000000000000000000000468616c6609546f7069635465737400124b455953016b7402\
        54414753015461674102";
    check(&half, 0, 4096, 1_700_000_004_234, false, expected);
    assert!(!sysflag::takes_queue_offset(half.sys_flag));
    assert_eq!(encode_blank(44).to_vec(), unhex("0000002ccbd43194"));
}

#[test]
fn r7_to_r9_crc_property() {
    let expected = "00000087daa320a73610a686000000000000000000000000000000000000000000000000000000000000018bcfe568000a0000010000d431\
        0000018bcfe56cd2c0a8010200002a9f0000000000000000000000000000000568656c6c6f09546f70696354657374001e54414753015461\
        6741025f5f435243333223013833313930353435333102";
    check(&fields("TopicTest", 0, b"hello", b"TAGS\x01TagA\x02"), 0, 0, 1_700_000_001_234, true, expected);
    let expected = "0000007ddaa320a73610a68600000000000000000000000000000002000000000000010e000000000000018bcfe568000a0000010000d431\
        0000018bcfe56cd2c0a8010200002a9f0000000000000000000000000000000568656c6c6f09546f7069635465737400145f5f4352433332\
        23013630353935313930333002";
    check(&fields("TopicTest", 0, b"hello", b""), 2, 270, 1_700_000_001_234, true, expected);
    let expected = "0000008edaa320a730cb2b7600000000000000000000000000000003000000000000018b000000000000018bcfe568000a0000010000d431\
        0000018bcfe56cd2c0a8010200002a9f00000000000000000000000000000002623009546f70696354657374002857414954017472756502\
        544147530154616741025f5f435243333223013335323837303134373002";
    let properties = b"WAIT\x01true\x02TAGS\x01TagA\x02";
    check(&fields("TopicTest", 0, b"b0", properties), 3, 395, 1_700_000_001_234, true, expected);
    // A missing separator is put in.
    let mut record = Vec::new();
    fields("T", 0, b"", b"a\x01b").encode_with_crc_property_into(&mut record).unwrap();
    seal_crc_property(&mut record);
    assert_eq!(RecordView::whole(&record, 0).unwrap().property("a"), Some("b"));
}

#[test]
fn the_delivered_form_of_the_remoting_chapter() {
    // docs/spec/01-remoting.md §9.14
    let record = unhex(
        "00000065 daa320a7 58932aac 00000003 00000005 0000000000000009 00000000000003e8 00000000 0000018bcfe56800 0a00000100001388
         0000018bcfe56801 c0a8010200002a9f 00000000 0000000000000000 00000002 6869 01 54 0007 54414753014102",
    );
    let view = RecordView::whole(&record, 1000).unwrap();
    assert_eq!((view.queue_id(), view.flag(), view.queue_offset(), view.size()), (3, 5, 9, 101));
    assert_eq!(view.property("TAGS"), Some("A"));
    assert_eq!(id::offset_id(view.store_host(), view.physical_offset()), "C0A8010200002A9F00000000000003E8");
    assert_eq!(
        RecordView::whole(&record, 1001).unwrap_err(),
        RecordError::PhysicalOffset { declared: 1000, actual: 1001 }
    );
}

#[test]
fn limits_are_errors_and_leave_the_buffer_alone() {
    let properties = vec![b'p'; PROPERTIES_LEN_MAX + 1];
    let mut out = b"before".to_vec();
    let record = fields("T", 0, b"", &properties);
    assert_eq!(record.encode_into(&mut out), Err(EncodeError::PropertiesTooLong { len: 32_768 }));
    let record = fields("T", 0, b"", &properties[..PROPERTIES_LEN_MAX]);
    assert!(record.encode_with_crc_property_into(&mut out).is_err());
    assert_eq!(out, b"before");
    assert_eq!(record.encode_into(&mut out), Ok(record.encoded_len()));
}

fn host() -> impl Strategy<Value = SocketAddr> {
    (any::<std::net::IpAddr>(), any::<u16>()).prop_map(SocketAddr::from)
}

proptest! {
    #[test]
    fn a_hash_is_that_of_one_character_after_the_other(text in "\\PC{0,40}", ascii in "[ -~]{0,70}", more in any::<i32>()) {
        for text in [text, ascii] {
            let one = |h: i32, unit: u16| h.wrapping_mul(31).wrapping_add(i32::from(unit));
            prop_assert_eq!(java_string_hash_onto(more, &text), text.encode_utf16().fold(more, one));
        }
    }

    #[test]
    fn every_record_comes_back(
        topic in "[a-zA-Z0-9_%-]{1,200}",
        numbers in any::<(i32, i32, i64, i32, i64)>(),
        hosts in (host(), host()),
        body in prop::collection::vec(any::<u8>(), 0..300),
        pairs in prop::collection::vec(("[a-zA-Z_]{1,9}", "[^\u{0}\u{1}\u{2}]{1,9}"), 0..6),
        places in (any::<i64>(), 0..i64::MAX as u64, any::<i64>()),
        crc in any::<bool>(),
    ) {
        let (queue_id, flag, born_timestamp, reconsume_times, prepared_transaction_offset) = numbers;
        let mut list = Vec::new();
        for (name, value) in &pairs {
            prop_assert!(properties::append(&mut list, name, value));
        }
        let fields = RecordFields {
            topic: &topic, queue_id, flag, sys_flag: 0x301, born_timestamp, born_host: hosts.0, store_host: hosts.1,
            reconsume_times, prepared_transaction_offset, body: &body, properties: &list,
        };
        let mut record = b"in front".to_vec();
        if crc { fields.encode_with_crc_property_into(&mut record) } else { fields.encode_into(&mut record) }.unwrap();
        let record = &mut record[8..];
        set_log_fields(record, places.0, places.1, places.2);
        if crc {
            seal_crc_property(record);
        }
        let view = RecordView::whole(record, places.1).unwrap();
        prop_assert_eq!(view.topic(), Some(topic.as_str()));
        prop_assert_eq!((view.queue_id(), view.flag(), view.born_timestamp()), (queue_id, flag, born_timestamp));
        prop_assert_eq!((view.reconsume_times(), view.prepared_transaction_offset()), (reconsume_times, prepared_transaction_offset));
        prop_assert_eq!((view.born_host(), view.store_host()), hosts);
        prop_assert_eq!((view.queue_offset(), view.physical_offset(), view.store_timestamp()), places);
        prop_assert_eq!(view.body(), &body[..]);
        prop_assert_eq!(view.is_v2(), topic.len() > 127);
        for (name, _) in &pairs {
            let last = pairs.iter().rfind(|(other, _)| other == name).map(|(_, value)| value.as_str());
            prop_assert_eq!(view.property(name), last);
        }
    }

    #[test]
    fn damage_never_panics_and_cuts_are_seen(
        body in prop::collection::vec(any::<u8>(), 0..60),
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut record = Vec::new();
        fields("Topic", 1, &body, b"a\x01b\x02c\x01d\x02").encode_into(&mut record).unwrap();
        prop_assert!(RecordView::parse(&record[..cut.index(record.len())]).is_err());
        for (at, value) in &changes {
            let at = at.index(record.len());
            record[at] = *value;
        }
        if let Ok(view) = RecordView::parse(&record) {
            let _ = (view.check(0), view.born_host(), view.store_host(), view.topic(), view.property("a"), view.body());
            let _ = (view.store_timestamp(), view.reconsume_times(), view.prepared_transaction_offset());
        }
        let _ = batch::iter(&record).count();
    }
}
