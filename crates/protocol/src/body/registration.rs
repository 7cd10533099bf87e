//! A broker's registration with a name server (`docs/spec/01-remoting.md` 5.6, `docs/spec/06-namesrv.md` 3).

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::{Deserialize, Serialize};

use super::{
    DataVersion, TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicFilterType, TopicQueueMappingInfo,
};
use crate::json::{self, JsonError};

/// How long the inflated form of a compressed registration may be, bytes: two million topics, and a bound for what
/// sixteen MiB from a stranger can make of a name server's memory.
pub const INFLATED_MAX: u64 = 128 << 20;

/// Body of code 103: all topics of a broker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegisterBrokerBody {
    /// Obsolete; empty today.
    pub filter_server_list: Vec<String>,
    /// The topics.
    pub topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper,
}

/// Why a registration could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// A plain body, or a JSON part of a compressed one, is wrong.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The body is no zlib stream, ends before its last part, or is longer than [`INFLATED_MAX`] when inflated.
    #[error("{part} of a compressed registration: {source}")]
    Part {
        /// Which part could not be read.
        part: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A length or count is negative.
    #[error("{part} of a compressed registration has length {length}")]
    Length {
        /// Which part.
        part: &'static str,
        /// What it says.
        length: i32,
    },
    /// A topic is not `name read write perm filterType [attributes]`.
    #[error("not a topic's text: `{0}`")]
    TopicText(String),
}

impl RegisterBrokerBody {
    /// The plain form.
    pub fn encode(&self) -> Vec<u8> {
        json::to_vec(self)
    }

    /// Reads the plain form. No body at all is an empty registration. Senders before [`crate::version::V3_0_11`] send
    /// the topics alone: read a [`TopicConfigAndMappingSerializeWrapper`] from them.
    pub fn decode(body: &[u8]) -> Result<Self, RegistrationError> {
        if body.is_empty() { Ok(Self::default()) } else { Ok(json::from_slice(body)?) }
    }

    /// The compressed form. It has no room for `topicSysFlag`, `order` and the history of static topics.
    pub fn encode_compressed(&self) -> Vec<u8> {
        let topics = &self.topic_config_serialize_wrapper;
        let mut plain = Vec::new();
        push_part(&mut plain, &json::to_vec(&topics.data_version));
        push_int(&mut plain, topics.topic_config_table.len());
        for topic in topics.topic_config_table.values() {
            push_part(&mut plain, topic_text(topic).as_bytes());
        }
        push_part(&mut plain, &json::to_vec(&self.filter_server_list));
        push_int(&mut plain, topics.topic_queue_mapping_info_map.len());
        for mapping in topics.topic_queue_mapping_info_map.values() {
            push_part(&mut plain, &json::to_vec(mapping));
        }
        deflate(&plain)
    }

    /// Reads the compressed form. Whether it has the part with static topics depends on the sender's version: from
    /// [`crate::version::V5_0_0`] on it has.
    pub fn decode_compressed(body: &[u8], has_mappings: bool) -> Result<Self, RegistrationError> {
        let mut parts = Parts { inflated: ZlibDecoder::new(body).take(INFLATED_MAX) };
        let data_version: DataVersion = json::from_slice(&parts.next("the data version")?)?;
        let mut topics = TopicConfigAndMappingSerializeWrapper { data_version, ..Default::default() };
        for _ in 0..parts.count("the number of topics")? {
            let topic = parse_topic_text(&String::from_utf8_lossy(&parts.next("a topic")?))?;
            topics.topic_config_table.insert(topic.topic_name.clone(), topic);
        }
        let filter_server_list = json::from_slice(&parts.next("the filter servers")?)?;
        if has_mappings {
            for _ in 0..parts.count("the number of static topics")? {
                let mapping: TopicQueueMappingInfo = json::from_slice(&parts.next("a static topic")?)?;
                topics.topic_queue_mapping_info_map.insert(mapping.topic.clone(), mapping);
            }
        }
        Ok(RegisterBrokerBody { filter_server_list, topic_config_serialize_wrapper: topics })
    }
}

fn deflate(plain: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    // Writing to a Vec can't fail.
    let _ = encoder.write_all(plain);
    encoder.finish().unwrap_or_default()
}

fn push_int(out: &mut Vec<u8>, value: usize) {
    out.extend_from_slice(&(value as i32).to_be_bytes());
}

fn push_part(out: &mut Vec<u8>, part: &[u8]) {
    push_int(out, part.len());
    out.extend_from_slice(part);
}

/// `T 8 8 6 SINGLE_TAG {"message.type":"FIFO"}`
fn topic_text(topic: &TopicConfig) -> String {
    let TopicConfig { topic_name, read_queue_nums, write_queue_nums, perm, attributes, .. } = topic;
    let filter_type = match topic.topic_filter_type {
        TopicFilterType::SingleTag => "SINGLE_TAG",
        TopicFilterType::MultiTag => "MULTI_TAG",
    };
    let attributes = json::to_string(attributes);
    format!("{topic_name} {read_queue_nums} {write_queue_nums} {perm} {filter_type} {attributes}")
}

fn parse_topic_text(text: &str) -> Result<TopicConfig, RegistrationError> {
    let parse = || {
        let mut fields = text.split(' ');
        let topic_name = fields.next()?.to_owned();
        let mut number = || fields.next()?.parse::<i32>().ok();
        let (read_queue_nums, write_queue_nums, perm) = (number()?, number()?, number()?);
        let topic_filter_type = match fields.next()? {
            "SINGLE_TAG" => TopicFilterType::SingleTag,
            "MULTI_TAG" => TopicFilterType::MultiTag,
            _ => return None,
        };
        // Attributes that can't be read are ignored, as in Java.
        let attributes: Option<BTreeMap<String, String>> =
            fields.next().and_then(|text| json::from_slice(text.as_bytes()).ok());
        let attributes = attributes.unwrap_or_default();
        let base = TopicConfig { attributes, perm, topic_filter_type, ..TopicConfig::default() };
        Some(TopicConfig { topic_name, read_queue_nums, write_queue_nums, ..base })
    };
    parse().ok_or_else(|| RegistrationError::TopicText(text.chars().take(256).collect()))
}

/// The parts of the inflated form, read as they are inflated.
struct Parts<'b> {
    inflated: io::Take<ZlibDecoder<&'b [u8]>>,
}

impl Parts<'_> {
    /// The next count or length.
    fn count(&mut self, part: &'static str) -> Result<u32, RegistrationError> {
        let mut bytes = [0; 4];
        self.inflated.read_exact(&mut bytes).map_err(|source| RegistrationError::Part { part, source })?;
        let length = i32::from_be_bytes(bytes);
        u32::try_from(length).map_err(|_| RegistrationError::Length { part, length })
    }

    /// The next part with a length before it. Memory is taken as bytes arrive, not as the length says.
    fn next(&mut self, part: &'static str) -> Result<Vec<u8>, RegistrationError> {
        let length = self.count(part)?;
        let mut bytes = Vec::new();
        let read = self.inflated.by_ref().take(u64::from(length)).read_to_end(&mut bytes);
        let source = match read {
            Ok(read) if read as u64 == u64::from(length) => return Ok(bytes),
            Ok(_) => io::ErrorKind::UnexpectedEof.into(),
            Err(source) => source,
        };
        Err(RegistrationError::Part { part, source })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample::*;
    use super::*;

    fn body(topic: TopicConfig) -> RegisterBrokerBody {
        RegisterBrokerBody {
            filter_server_list: Vec::new(),
            topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper {
                data_version: dv(),
                topic_config_table: BTreeMap::from([("T".to_owned(), topic)]),
                ..Default::default()
            },
        }
    }

    fn inflate(bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        ZlibDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        plain
    }

    fn unhex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn plain_form() {
        let mut body = body(topic_config_of_the_spec());
        body.topic_config_serialize_wrapper.mapping_data_version = dv();
        let text = format!(
            r#"{{"filterServerList":[],"topicConfigSerializeWrapper":{{"dataVersion":{DV},"mappingDataVersion":{DV},"topicConfigTable":{{"T":{TOPICCONFIG}}},"topicQueueMappingDetailMap":{{}},"topicQueueMappingInfoMap":{{}}}}}}"#
        );
        assert_sample(&body, &text);
        let referring = text.replace(
            &format!(r#""mappingDataVersion":{DV}"#),
            r#""mappingDataVersion":{"$ref":"$.topicConfigSerializeWrapper.dataVersion"}"#,
        );
        assert_eq!(RegisterBrokerBody::decode(referring.as_bytes()).unwrap(), body);
        assert_eq!(RegisterBrokerBody::decode(b"").unwrap(), RegisterBrokerBody::default());
    }

    #[test]
    fn compressed_form_of_the_spec_9_21() {
        let body = body(TopicConfig::new("T", 8));
        let compressed = body.encode_compressed();
        assert_eq!(
            inflate(&compressed),
            unhex(
                "00000038 7b22636f756e746572223a372c22737461746556657273696f6e223a302c2274696d657374616d70223a31373030303030303030
                 3030307d 00000001 00000015 542038203820362053494e474c455f544147207b7d 00000002 5b5d 00000000"
            )
        );
        assert_eq!(RegisterBrokerBody::decode_compressed(&compressed, true).unwrap(), body);
    }

    #[test]
    fn compressed_form_with_everything() {
        let mut body = body(topic_config_of_the_spec());
        body.filter_server_list.push("1.1.1.1:1".to_owned());
        body.topic_config_serialize_wrapper
            .topic_queue_mapping_info_map
            .insert("T".to_owned(), mapping_info());
        let decoded = RegisterBrokerBody::decode_compressed(&body.encode_compressed(), true).unwrap();
        assert_eq!(decoded, body);
        let decoded = RegisterBrokerBody::decode_compressed(&body.encode_compressed(), false).unwrap();
        assert!(decoded.topic_config_serialize_wrapper.topic_queue_mapping_info_map.is_empty());
    }

    #[test]
    fn topic_texts() {
        assert_eq!(parse_topic_text("T 8 8 6 SINGLE_TAG").unwrap(), TopicConfig::new("T", 8));
        assert_eq!(parse_topic_text("T 8 8 6 SINGLE_TAG {\"a b\":1}").unwrap(), TopicConfig::new("T", 8));
        for text in ["", "T 8 8 6", "T 8 8 six SINGLE_TAG", "T 8 8 6 NONE"] {
            assert!(matches!(parse_topic_text(text), Err(RegistrationError::TopicText(_))), "{text}");
        }
    }

    #[test]
    fn what_is_damaged_is_told() {
        let message = |plain: &[u8]| {
            RegisterBrokerBody::decode_compressed(&deflate(plain), true).unwrap_err().to_string()
        };
        assert_eq!(
            message(&[0, 0, 0, 9, b'{']),
            "the data version of a compressed registration: unexpected end of file"
        );
        assert_eq!(message(&[0xff; 4]), "the data version of a compressed registration has length -1");
        assert_eq!(
            message(&[0, 0, 0, 2, b'{', b'}', 0]),
            "the number of topics of a compressed registration: failed to fill whole buffer"
        );
        assert!(RegisterBrokerBody::decode_compressed(b"{}", true).is_err());
        assert!(RegisterBrokerBody::decode(&deflate(b"{}")).is_err());
    }

    #[test]
    fn inflating_stops_at_the_limit() {
        let mut plain = vec![0; 4];
        plain[..4].copy_from_slice(&i32::MAX.to_be_bytes());
        plain.resize(INFLATED_MAX as usize + 1, b' ');
        let error = RegisterBrokerBody::decode_compressed(&deflate(&plain), true).unwrap_err();
        assert!(matches!(error, RegistrationError::Part { part: "the data version", .. }), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in any::<Vec<u8>>()) {
            let _ = RegisterBrokerBody::decode(&bytes);
            let _ = RegisterBrokerBody::decode_compressed(&bytes, true);
            let _ = RegisterBrokerBody::decode_compressed(&deflate(&bytes), true);
        }
    }
}
