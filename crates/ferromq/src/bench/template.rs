//! Send requests that are encoded once; afterwards only the digits that differ are patched.
//!
//! A request is what the Java client sends: SEND_MESSAGE_V2 (or SEND_BATCH_MESSAGE) with the fields `a` to `n` and the
//! properties `UNIQ_KEY`, `WAIT` and `TAGS` (`docs/spec/01-remoting.md` 6.1, 6.2).

use std::net::Ipv4Addr;

use ferromq_protocol::code::request;
use ferromq_protocol::frame::{self, HeaderEncoding};
use ferromq_protocol::header::{FieldOut, Head, HeaderScratch, begin_frame};
use ferromq_protocol::message::batch::{self, BatchMessage};
use ferromq_protocol::message::properties;
use ferromq_protocol::version::{self, Language};
use jiff::Zoned;

/// Group that the messages say they come from.
const PRODUCER_GROUP: &str = "ferromq_bench_producer";
/// Tag of all messages.
const TAG: &str = "TagA";
/// Digits of a unique id that never change: address and process id.
const UNIQUE_ID_FIXED_DIGITS: usize = 12;
/// Digits of a unique id that change: instance, milliseconds of the month, counter.
const UNIQUE_ID_PATCHED_DIGITS: usize = 20;
/// Digits of milliseconds since 1970, from 2001 to 2286.
const MILLIS_DIGITS: usize = 13;
/// Digits of the numbers in [`super::opaque`].
const OPAQUE_DIGITS: usize = 10;

/// What all messages of a run have in common.
#[derive(Debug, Clone)]
pub(super) struct MessageShape {
    /// How headers are written.
    pub(super) encoding: HeaderEncoding,
    /// Bytes of a message's body.
    pub(super) body_bytes: usize,
    /// Messages of a request; above 1 the request is a batch.
    pub(super) batch: u32,
    /// Queues that a topic gets when it is created by the first message.
    pub(super) default_queues: u32,
}

/// The clocks that go into a message, rendered once for many messages.
#[derive(Debug, Clone)]
pub(super) struct Stamp {
    unix_millis: u64,
    born: [u8; MILLIS_DIGITS],
    month_start_millis: u64,
    month_millis: u32,
}

impl Stamp {
    /// The clocks at `unix_millis`.
    pub(super) fn new(unix_millis: u64) -> Self {
        let month = Zoned::now().first_of_month().and_then(|day| day.start_of_day());
        let month_start_millis = month.map_or(0, |start| start.timestamp().as_millisecond() as u64);
        let mut stamp =
            Self { unix_millis: 0, born: [0; MILLIS_DIGITS], month_start_millis, month_millis: 0 };
        stamp.set(unix_millis);
        stamp
    }

    /// Moves the clocks on.
    pub(super) fn set(&mut self, unix_millis: u64) {
        if unix_millis != self.unix_millis {
            self.unix_millis = unix_millis;
            write_decimal(&mut self.born, unix_millis);
            self.month_millis = unix_millis.wrapping_sub(self.month_start_millis) as u32;
        }
    }
}

/// The request of one queue, up to its body.
#[derive(Debug)]
struct QueueTemplate {
    head: Vec<u8>,
    opaque_at: usize,
    born_at: usize,
    /// Where the unique id stands; batches have theirs in the body.
    unique_at: Option<usize>,
}

/// The requests of all queues that one thread sends to.
#[derive(Debug)]
pub(super) struct SendTemplates {
    encoding: HeaderEncoding,
    queues: Vec<QueueTemplate>,
    body: Vec<u8>,
    /// Where the unique ids of a batch stand in the body.
    unique_in_body: Vec<usize>,
    /// Tells the unique ids of this thread from those of others.
    instance: u32,
    counter: u16,
}

impl SendTemplates {
    /// Templates for `queues` of (broker name, topic, queue id).
    pub(super) fn new(shape: &MessageShape, queues: &[(String, String, u32)], instance: u32) -> Self {
        let text: Vec<u8> = (b'a'..=b'z').cycle().take(shape.body_bytes).collect();
        let (mut body, mut unique_in_body) = (text, Vec::new());
        if shape.batch > 1 {
            let text = std::mem::take(&mut body);
            for _ in 0..shape.batch {
                let message = BatchMessage { flag: 0, body: &text, properties: &message_properties() };
                let start = body.len();
                batch::append(&mut body, &message);
                unique_in_body.push(
                    start + find(&body[start..], properties::UNIQ_KEY.as_bytes()) + unique_digits_from(),
                );
            }
        }
        let queues = queues.iter().map(|queue| queue_template(shape, queue, body.len())).collect();
        Self { encoding: shape.encoding, queues, body, unique_in_body, instance, counter: 0 }
    }

    /// How many queues there are.
    pub(super) fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Appends the next request to a queue.
    pub(super) fn append(&mut self, queue: usize, opaque: i32, stamp: &Stamp, out: &mut Vec<u8>) {
        let template = &self.queues[queue];
        let start = out.len();
        out.extend_from_slice(&template.head);
        let head = &mut out[start..];
        let opaque_at = template.opaque_at;
        match self.encoding {
            HeaderEncoding::Json => {
                write_decimal(&mut head[opaque_at..opaque_at + OPAQUE_DIGITS], opaque as u64);
            }
            HeaderEncoding::Binary => head[opaque_at..opaque_at + 4].copy_from_slice(&opaque.to_be_bytes()),
        }
        head[template.born_at..template.born_at + MILLIS_DIGITS].copy_from_slice(&stamp.born);
        if let Some(at) = template.unique_at {
            patch_unique(&mut head[at..], self.instance, stamp.month_millis, &mut self.counter);
        }
        let start = out.len();
        out.extend_from_slice(&self.body);
        for at in &self.unique_in_body {
            patch_unique(&mut out[start + at..], self.instance, stamp.month_millis, &mut self.counter);
        }
    }
}

/// Properties with a unique id whose changing digits are zeros.
fn message_properties() -> Vec<u8> {
    let [a, b, c, d] = Ipv4Addr::LOCALHOST.octets();
    let process = std::process::id() as u16;
    let unique = format!("{a:02X}{b:02X}{c:02X}{d:02X}{process:04X}{:0UNIQUE_ID_PATCHED_DIGITS$}", 0);
    let mut encoded = Vec::new();
    for (name, value) in
        [(properties::UNIQ_KEY, unique.as_str()), (properties::WAIT, "true"), (properties::TAGS, TAG)]
    {
        properties::append(&mut encoded, name, value);
    }
    encoded
}

/// From the first byte of a plain `UNIQ_KEY` property to the digits that change.
fn unique_digits_from() -> usize {
    properties::UNIQ_KEY.len() + 1 + UNIQUE_ID_FIXED_DIGITS
}

fn queue_template(shape: &MessageShape, queue: &(String, String, u32), body_bytes: usize) -> QueueTemplate {
    let (broker, topic, queue_id) = queue;
    let is_batch = shape.batch > 1;
    let encoded = if is_batch { b"WAIT\x01true\x02".to_vec() } else { message_properties() };
    let encoded = String::from_utf8(encoded).expect("properties are ASCII");
    let fields = [
        ("a", FieldOut::Text(PRODUCER_GROUP)),
        ("b", FieldOut::Text(topic)),
        ("c", FieldOut::Text("TBW102")),
        ("d", FieldOut::Number(i64::from(shape.default_queues))),
        ("e", FieldOut::Number(i64::from(*queue_id))),
        ("f", FieldOut::Number(0)),
        ("g", FieldOut::Number(10i64.pow(MILLIS_DIGITS as u32 - 1))),
        ("h", FieldOut::Number(0)),
        ("i", FieldOut::Text(&encoded)),
        ("j", FieldOut::Number(0)),
        ("k", FieldOut::Boolean(false)),
        ("m", FieldOut::Boolean(is_batch)),
        ("n", FieldOut::Text(broker)),
    ];
    let head = Head {
        code: if is_batch { request::SEND_BATCH_MESSAGE } else { request::SEND_MESSAGE_V2 },
        opaque: 10i32.pow(OPAQUE_DIGITS as u32 - 1),
        flag: 0,
        language: Language::JAVA,
        version: version::CURRENT,
        remark: None,
    };
    let mut bytes = Vec::new();
    let (start, header_end) = begin_frame(&mut bytes, shape.encoding, &head, Some(fields));
    bytes.resize(header_end + body_bytes, 0);
    frame::finish(&mut bytes, start, header_end, shape.encoding);
    let opaque_at = match shape.encoding {
        HeaderEncoding::Json => find(&bytes, b"\"opaque\":") + b"\"opaque\":".len(),
        // Behind the frame's prefix: code, language, version.
        HeaderEncoding::Binary => frame::FRAME_PREFIX_BYTES + 2 + 1 + 2,
    };
    let (born_at, properties_at) = (field_at(&bytes, "g"), field_at(&bytes, "i"));
    let unique_at = (!is_batch).then(|| {
        // The mark between name and value is one byte, or six in JSON.
        let mark_bytes = if shape.encoding == HeaderEncoding::Json { "\\u0001".len() } else { 1 };
        properties_at + properties::UNIQ_KEY.len() + mark_bytes + UNIQUE_ID_FIXED_DIGITS
    });
    bytes.truncate(header_end);
    QueueTemplate { head: bytes, opaque_at, born_at, unique_at }
}

/// Where the value of a header field stands in a frame of ours.
fn field_at(bytes: &[u8], name: &str) -> usize {
    let (frame, _) = frame::split(bytes).ok().flatten().expect("the frame was just written");
    let mut scratch = HeaderScratch::default();
    let request = scratch.parse(&frame).expect("the header was just written");
    let value = request.fields.get(name).expect("the field was just written").raw();
    value.as_ptr().addr() - bytes.as_ptr().addr()
}

fn find(bytes: &[u8], wanted: &[u8]) -> usize {
    memchr::memmem::find(bytes, wanted).expect("the frame was just written")
}

fn patch_unique(digits: &mut [u8], instance: u32, month_millis: u32, counter: &mut u16) {
    let number = u128::from(instance) << 48 | u128::from(month_millis) << 16 | u128::from(*counter);
    *counter = counter.wrapping_add(1);
    let bytes: [u8; 16] = number.to_be_bytes();
    for (pair, byte) in digits[..UNIQUE_ID_PATCHED_DIGITS].as_chunks_mut::<2>().0.iter_mut().zip(&bytes[6..])
    {
        *pair = [hex_digit(byte >> 4), hex_digit(byte & 0xf)];
    }
}

fn hex_digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'A' + value - 10 }
}

/// Fills `digits` with the last digits of `number`.
fn write_decimal(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::command::RemotingCommand;
    use ferromq_protocol::send::SendHeader;

    use super::*;

    const MILLIS: u64 = 1_700_000_000_123;

    fn templates(encoding: HeaderEncoding, batch: u32) -> SendTemplates {
        let shape = MessageShape { encoding, body_bytes: 30, batch, default_queues: 4 };
        let queues = [0, 12].map(|queue| ("broker-a".to_owned(), "Topic".to_owned(), queue));
        SendTemplates::new(&shape, &queues, 0xABCD_0001)
    }

    #[test]
    fn patched_frames_are_those_that_an_encoder_writes() {
        for encoding in [HeaderEncoding::Json, HeaderEncoding::Binary] {
            let mut templates = templates(encoding, 1);
            let stamp = Stamp::new(MILLIS);
            let mut out = Vec::new();
            templates.append(0, 1_234_567_890, &stamp, &mut out);
            templates.append(1, 1_000_000_007, &stamp, &mut out);

            let (frame, length) = frame::split(&out).unwrap().unwrap();
            let first = RemotingCommand::decode(&frame).unwrap();
            let mut again = Vec::new();
            first.encode(encoding, &mut again);
            assert_eq!(again, out[..length]);
            assert_eq!(
                (first.code, first.opaque, first.body.len()),
                (request::SEND_MESSAGE_V2, 1_234_567_890, 30)
            );

            let (frame, second_length) = frame::split(&out[length..]).unwrap().unwrap();
            assert_eq!(length + second_length, out.len());
            let mut scratch = HeaderScratch::default();
            let second = scratch.parse(&frame).unwrap();
            let header = SendHeader::parse(&second).unwrap();
            assert_eq!((second.opaque, header.queue_id, header.topic.as_ref()), (1_000_000_007, 12, "Topic"));
            assert_eq!(header.born_timestamp, MILLIS as i64);
            let encoded = header.properties.unwrap().text().unwrap().into_owned();
            let unique = properties::find(encoded.as_bytes(), properties::UNIQ_KEY).unwrap();
            assert!(unique.starts_with("7F000001"), "{unique}");
            assert_eq!(&unique[12..20], "ABCD0001");
            assert_eq!(unique[20..28], format!("{:08X}", stamp.month_millis));
            assert_eq!(&unique[28..], "0001");
            assert_eq!(properties::find(encoded.as_bytes(), "TAGS"), Some("TagA"));
        }
    }

    #[test]
    fn every_message_of_a_batch_has_an_id_of_its_own() {
        let mut templates = templates(HeaderEncoding::Json, 3);
        let mut out = Vec::new();
        templates.append(0, 1_000_000_000, &Stamp::new(MILLIS), &mut out);
        let (frame, length) = frame::split(&out).unwrap().unwrap();
        assert_eq!(length, out.len());
        assert_eq!(RemotingCommand::decode(&frame).unwrap().code, request::SEND_BATCH_MESSAGE);
        let mut uniques: Vec<_> = batch::iter(frame.body())
            .map(|message| {
                properties::find(message.unwrap().properties, properties::UNIQ_KEY).unwrap().to_owned()
            })
            .collect();
        uniques.dedup();
        assert_eq!(uniques.len(), 3);
        assert!(uniques[2].ends_with("0002"));
    }

    #[test]
    fn clocks_are_rendered_again_only_when_they_moved() {
        let mut stamp = Stamp::new(MILLIS);
        let before = stamp.month_millis;
        stamp.set(MILLIS + 5);
        assert_eq!(&stamp.born, b"1700000000128");
        assert_eq!(stamp.month_millis, before.wrapping_add(5));
    }
}
