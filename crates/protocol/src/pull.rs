//! The header of a pull (11, 361), read without building a map (`docs/spec/01-remoting.md` 5.4.1).

use std::borrow::Cow;

use crate::command::{FieldError, FieldReader};
use crate::header::Request;

/// `sysFlag` bit: `commit_offset` is valid.
pub const FLAG_COMMIT_OFFSET: i32 = 1;
/// `sysFlag` bit: the broker may hold the request until messages arrive.
pub const FLAG_SUSPEND: i32 = 2;
/// `sysFlag` bit: the subscription is in the header.
pub const FLAG_SUBSCRIPTION: i32 = 4;
/// `sysFlag` bit: class filter, obsolete.
pub const FLAG_CLASS_FILTER: i32 = 8;
/// `sysFlag` bit: the consumer is a lite pull consumer.
pub const FLAG_LITE_PULL: i32 = 16;

/// What a consumer asks for.
#[derive(Clone, Debug, Default)]
pub struct PullHeader<'a> {
    /// Consumer group.
    pub consumer_group: Cow<'a, str>,
    /// Topic to read.
    pub topic: Cow<'a, str>,
    /// Queue to read.
    pub queue_id: i32,
    /// Queue offset to begin at.
    pub queue_offset: i64,
    /// Most messages to return.
    pub max_msg_nums: i32,
    /// `FLAG_…` bits.
    pub sys_flag: i32,
    /// Progress to commit with this request.
    pub commit_offset: i64,
    /// How long the broker may hold the request, ms.
    pub suspend_timeout_millis: i64,
    /// Filter expression, with [`FLAG_SUBSCRIPTION`].
    pub subscription: Option<Cow<'a, str>>,
    /// Version of the subscription: its sender's clock, ms.
    pub sub_version: i64,
    /// `TAG` or `SQL92`; absent means `TAG`.
    pub expression_type: Option<Cow<'a, str>>,
    /// Most bytes to return.
    pub max_msg_bytes: Option<i32>,
    /// Who asks: -1 an SDK, 0 to 2 a proxy.
    pub request_source: i32,
    /// The proxy's client.
    pub proxy_forward_client_id: Option<Cow<'a, str>>,
}

impl PullHeader<'_> {
    /// The same, owning its texts: for a request that is held.
    pub fn into_owned(self) -> PullHeader<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        PullHeader {
            consumer_group: own(self.consumer_group),
            topic: own(self.topic),
            subscription: self.subscription.map(own),
            expression_type: self.expression_type.map(own),
            proxy_forward_client_id: self.proxy_forward_client_id.map(own),
            ..PullHeader {
                queue_id: self.queue_id,
                queue_offset: self.queue_offset,
                max_msg_nums: self.max_msg_nums,
                sys_flag: self.sys_flag,
                commit_offset: self.commit_offset,
                suspend_timeout_millis: self.suspend_timeout_millis,
                sub_version: self.sub_version,
                max_msg_bytes: self.max_msg_bytes,
                request_source: self.request_source,
                ..PullHeader::default()
            }
        }
    }

    /// Whether a `FLAG_…` bit is set.
    pub fn has(&self, flag: i32) -> bool {
        self.sys_flag & flag != 0
    }
}

impl<'a> PullHeader<'a> {
    /// Reads the header of a pull. A missing field keeps its default, as long as the request can be served without it.
    pub fn parse(request: &Request<'a>) -> Result<Self, FieldError> {
        let read = FieldReader::of(request.code);
        let mut header = Self { request_source: -1, ..Self::default() };
        let (mut group, mut topic, mut queue_id, mut queue_offset, mut max_msg_nums) =
            (None, None, None, None, None);
        let (mut sys_flag, mut commit_offset, mut suspend, mut sub_version) = (None, None, None, None);
        for (key, value) in request.fields.iter() {
            match key {
                b"consumerGroup" => group = Some(read.text("consumerGroup", &value)?),
                b"topic" => topic = Some(read.text("topic", &value)?),
                b"queueId" => queue_id = Some(read.int("queueId", &value)?),
                b"queueOffset" => queue_offset = Some(read.long("queueOffset", &value)?),
                b"maxMsgNums" => max_msg_nums = Some(read.int("maxMsgNums", &value)?),
                b"sysFlag" => sys_flag = Some(read.int("sysFlag", &value)?),
                b"commitOffset" => commit_offset = Some(read.long("commitOffset", &value)?),
                b"suspendTimeoutMillis" => suspend = Some(read.long("suspendTimeoutMillis", &value)?),
                b"subscription" => header.subscription = Some(read.text("subscription", &value)?),
                b"subVersion" => sub_version = Some(read.long("subVersion", &value)?),
                b"expressionType" => header.expression_type = Some(read.text("expressionType", &value)?),
                b"maxMsgBytes" => header.max_msg_bytes = Some(read.int("maxMsgBytes", &value)?),
                b"requestSource" => header.request_source = value.int().unwrap_or(-1),
                b"proxyFrowardClientId" => {
                    header.proxy_forward_client_id = Some(read.text("proxyFrowardClientId", &value)?)
                }
                _ => {}
            }
        }
        header.consumer_group = group.ok_or_else(|| read.missing("consumerGroup"))?;
        header.topic = topic.ok_or_else(|| read.missing("topic"))?;
        header.queue_id = queue_id.ok_or_else(|| read.missing("queueId"))?;
        header.queue_offset = queue_offset.ok_or_else(|| read.missing("queueOffset"))?;
        header.max_msg_nums = max_msg_nums.ok_or_else(|| read.missing("maxMsgNums"))?;
        header.sys_flag = sys_flag.ok_or_else(|| read.missing("sysFlag"))?;
        header.commit_offset = commit_offset.ok_or_else(|| read.missing("commitOffset"))?;
        header.suspend_timeout_millis = suspend.ok_or_else(|| read.missing("suspendTimeoutMillis"))?;
        header.sub_version = sub_version.ok_or_else(|| read.missing("subVersion"))?;
        Ok(header)
    }
}
