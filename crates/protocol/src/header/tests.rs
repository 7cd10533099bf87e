use super::*;
use crate::frame::{HeaderEncoding, split};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn json_frame(header: &str) -> Vec<u8> {
    let mut bytes = (header.len() as u32 + 4).to_be_bytes().to_vec();
    bytes.extend_from_slice(&(header.len() as u32).to_be_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes
}

fn with_json<T>(header: &str, check: impl FnOnce(Result<Request<'_>, HeaderError>) -> T) -> T {
    let bytes = json_frame(header);
    let (frame, _) = split(&bytes).unwrap().unwrap();
    check(HeaderScratch::default().parse(&frame))
}

fn text(request: &Request<'_>, name: &str) -> Option<String> {
    request.fields.get(name).map(|value| value.text().unwrap().into_owned())
}

#[test]
fn a_field_whose_name_needs_escapes_costs_only_itself() {
    let header = r#"{"code":10,"extFields":{"to\u0000pic":"a","topic":"T","q\"":"b"},"opaque":4}"#;
    with_json(header, |request| {
        let request = request.unwrap();
        assert_eq!((request.code, request.opaque, request.fields.iter().count()), (10, 4, 1));
        assert_eq!(text(&request, "topic").as_deref(), Some("T"));
    });
}

#[test]
fn json_request_of_the_vectors() {
    // docs/spec/01-remoting.md 9.1
    let bytes = hex(
        "00000087000000837b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a22546f70696354657374227d2c22666c61
         67223a302c226c616e6775616765223a224a415641222c226f7061717565223a312c2273657269616c697a655479706543757272656e7452504322
         3a224a534f4e222c2276657273696f6e223a3437397d",
    );
    let (frame, _) = split(&bytes).unwrap().unwrap();
    let mut scratch = HeaderScratch::default();
    let request = scratch.parse(&frame).unwrap();
    assert_eq!((request.code, request.opaque, request.version, request.flag), (105, 1, 479, 0));
    assert_eq!(text(&request, "topic").as_deref(), Some("TopicTest"));

    let mut written = Vec::new();
    let head = Head { code: 105, opaque: 1, flag: 0, language: Language::JAVA, version: 479, remark: None };
    write_response(
        &mut written,
        HeaderEncoding::Json,
        &head,
        Some([("topic", FieldOut::Text("TopicTest"))]),
        b"",
    );
    assert_eq!(written, bytes);
}

#[test]
fn binary_frames_of_the_vectors() {
    // 9.2 and 9.3
    let request_bytes = hex(
        "0000002d 01000029 0069 00 01df 00000001 00000000 00000000 00000014 0005 746f706963 00000009 546f70696354657374",
    );
    let (frame, _) = split(&request_bytes).unwrap().unwrap();
    let mut scratch = HeaderScratch::default();
    let request = scratch.parse(&frame).unwrap();
    assert_eq!(
        (request.code, request.opaque, text(&request, "topic").as_deref()),
        (105, 1, Some("TopicTest"))
    );
    let mut written = Vec::new();
    let head = Head { code: 105, opaque: 1, flag: 0, language: Language::JAVA, version: 479, remark: None };
    write_response(
        &mut written,
        HeaderEncoding::Binary,
        &head,
        Some([("topic", FieldOut::Text("TopicTest"))]),
        b"",
    );
    assert_eq!(written, request_bytes);

    let response_bytes = hex("0000001d 01000017 0011 00 01df 00000102 00000001 00000002 6e6f 00000000 6869");
    let (frame, _) = split(&response_bytes).unwrap().unwrap();
    let response = scratch.parse(&frame).unwrap();
    assert_eq!((response.code, response.opaque, response.body), (17, 258, &b"hi"[..]));
    assert_eq!(response.remark().as_deref(), Some("no"));
    let mut written = Vec::new();
    let no_fields = None::<[(&str, FieldOut<'_>); 0]>;
    write_response(
        &mut written,
        HeaderEncoding::Binary,
        &Head::response(17, 258, Some("no")),
        no_fields,
        b"hi",
    );
    assert_eq!(written, response_bytes);
}

#[test]
fn minimal_json_response_of_the_vectors() {
    let mut written = Vec::new();
    let no_fields = None::<[(&str, FieldOut<'_>); 0]>;
    write_response(&mut written, HeaderEncoding::Json, &Head::response(0, 1, None), no_fields, b"");
    let expected =
        r#"{"code":0,"flag":1,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}"#;
    assert_eq!(&written[8..], expected.as_bytes());
    assert_eq!(&written[..8], &[0, 0, 0, 0x63, 0, 0, 0, 0x5f]);
}

#[test]
fn send_header_in_both_encodings() {
    // 9.5
    let binary = hex(
        "000000b1010000a801360001df000000020000000000000000000000930001610000000250470001620000000154000163000000065442573130320001
         640000000134000165000000013000016600000001300001670000000d31373030303030303030303030000168000000013000016900000011544147
         530141025741495401747275650200016a000000013000016b0000000566616c736500016d0000000566616c736500016e00000002623068656c6c6f",
    );
    let json = json_frame(
        "{\"code\":310,\"extFields\":{\"a\":\"PG\",\"b\":\"T\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"0\",\"f\":\"0\",\"g\":\"1700000000000\",\"h\":\"0\",\
         \"i\":\"TAGS\\u0001A\\u0002WAIT\\u0001true\\u0002\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\",\"n\":\"b0\"},\"flag\":0,\"language\":\"JAVA\",\
         \"opaque\":2,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
    );
    for bytes in [binary, json] {
        let (frame, _) = split(&bytes).unwrap().unwrap();
        let mut scratch = HeaderScratch::default();
        let request = scratch.parse(&frame).unwrap();
        let header = crate::send::SendHeader::parse(&request).unwrap();
        assert_eq!((&*header.topic, header.queue_id, header.born_timestamp), ("T", 0, 1_700_000_000_000));
        let mut properties = Vec::new();
        header.properties.unwrap().append_to(&mut properties).unwrap();
        assert_eq!(properties, b"TAGS\x01A\x02WAIT\x01true\x02");
    }
}

#[test]
fn lenient_headers() {
    // 9.9
    let language = |header: &str| {
        with_json(header, |request| request.map(|request| request.language.map(Language::name)).ok())
    };
    assert_eq!(language(r#"{"code":1,"language":9}"#), Some(Some("GO")));
    assert_eq!(language(r#"{"code":1,"language":"go"}"#), Some(Some("GO")));
    assert_eq!(language(r#"{"code":1,"language":"GOLANG"}"#), Some(None));
    assert_eq!(language(r#"{"code":1,"language":"9"}"#), Some(None));
    assert_eq!(language(r#"{"code":1,"language":99}"#), None);
    assert_eq!(language(r#"{"code":1}"#), Some(Some("JAVA")));
    with_json(r#"{"extFields":{"a":1,"b":true,"c":null,"d":1.5,"e":{"x":1}}}"#, |request| {
        let request = request.unwrap();
        assert_eq!(text(&request, "a").as_deref(), Some("1"));
        assert_eq!(text(&request, "b").as_deref(), Some("true"));
        assert_eq!(text(&request, "c"), None);
        assert_eq!(text(&request, "d").as_deref(), Some("1.5"));
        assert_eq!(text(&request, "e").as_deref(), Some(r#"{"x":1}"#));
    });
    assert!(with_json(r#"{"code":3000000000}"#, |request| request.is_err()));
    assert!(with_json("{\"code\":10}\n", |request| request.is_ok()));
    assert!(with_json("{\"code\":10} x", |request| request.is_err()));
    assert!(with_json("", |request| request.is_err()));
    assert!(with_json("{'CODE':'10',ext_fields:{k:'v'}}", |request| {
        let request = request.unwrap();
        request.code == 10 && text(&request, "k").as_deref() == Some("v")
    }));
    assert!(with_json(r#"{"code":"10","remark":5,"unknown":[1,{}]}"#, |request| request.unwrap().code == 10));
}

#[test]
fn strings_are_escaped_as_fastjson_does() {
    // 9.10
    let input = "\u{4e2d}\u{7f}\u{80}\u{9f}\u{a0}\u{2028}/<>&'\"\\\u{8}\u{c}\n\r\t\0\u{1f}\u{1f600}";
    let mut out = Vec::new();
    write_json_string(&mut out, input.as_bytes());
    let expected =
        "\"\u{4e2d}\\u007F\\u0080\\u009F\u{a0}\\u2028/<>&'\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001F\u{1f600}\"";
    assert_eq!(String::from_utf8(out.clone()).unwrap(), expected);
    let mut back = Vec::new();
    super::json::unescape(&out[1..out.len() - 1], &mut back).unwrap();
    assert_eq!(back, input.as_bytes());
}

#[test]
fn binary_lengths_are_checked() {
    for (what, bytes) in [
        ("remark", "0000001a 01000016 0069 00 01df 00000001 00000000 7fffffff 00000000 00"),
        ("negative", "0000001a 01000016 0069 00 01df 00000001 00000000 ffffffff 00000000 00"),
        ("field map", "0000001a 01000016 0069 00 01df 00000001 00000000 00000000 00000100 00"),
    ] {
        let bytes = hex(bytes);
        let (frame, _) = split(&bytes).unwrap().unwrap();
        assert!(HeaderScratch::default().parse(&frame).is_err(), "{what}");
    }
    // 9.7: an empty value is null.
    let bytes = hex("00000020 0100001c 000b 00 01df 00000004 00000000 00000000 00000007 0001 6b 00000000");
    let (frame, _) = split(&bytes).unwrap().unwrap();
    let mut scratch = HeaderScratch::default();
    let request = scratch.parse(&frame).unwrap();
    assert!(request.fields.is_present() && request.fields.get("k").is_none());
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), binary: bool) {
            let mut framed = ((bytes.len() + 4) as u32).to_be_bytes().to_vec();
            framed.extend_from_slice(&(bytes.len() as u32 | u32::from(binary) << 24).to_be_bytes());
            framed.extend_from_slice(&bytes);
            let (frame, _) = split(&framed).unwrap().unwrap();
            if let Ok(request) = HeaderScratch::default().parse(&frame) {
                let _ = crate::send::SendHeader::parse(&request);
                let _ = crate::pull::PullHeader::parse(&request);
            }
        }

        #[test]
        fn any_text_survives(text in ".*") {
            let mut out = Vec::new();
            write_json_string(&mut out, text.as_bytes());
            let mut back = Vec::new();
            super::super::json::unescape(&out[1..out.len() - 1], &mut back).unwrap();
            prop_assert_eq!(back, text.as_bytes());
        }
    }
}
