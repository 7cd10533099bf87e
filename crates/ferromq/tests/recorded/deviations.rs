//! Where FerroMQ answers otherwise than was recorded, on purpose: line, value, ours and why. `docs/differences.md` tells
//! users the same; each reason here is a sentence there.

use serde_json::Value;

use super::answer;
use super::check::Finding;
use crate::support::server;

/// Values of one file that differ for one reason.
pub(crate) struct Deviation {
    pub(crate) file: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) values: &'static [Differs],
}

/// A line, the path of the value that differs (those below it are meant, too), and what we have there.
pub(crate) struct Differs(pub(crate) &'static str, &'static str, Ours);

/// What we have there.
#[derive(Debug)]
pub(crate) enum Ours {
    /// Nothing at all.
    Absent,
    /// This number.
    Number(i64),
    /// An object.
    Object,
    /// A text that begins with this one.
    Text(&'static str),
}

impl Ours {
    fn is_met(&self, found: Option<&Value>) -> bool {
        match self {
            Self::Absent => found.is_none_or(Value::is_null),
            Self::Number(number) => found.and_then(Value::as_i64) == Some(*number),
            Self::Object => found.is_some_and(Value::is_object),
            Self::Text(start) => found.and_then(Value::as_str).is_some_and(|text| text.starts_with(start)),
        }
    }
}

/// The deviations of a line; the real RocketMQ has none.
pub(crate) fn of_line(file: &str, line: &str) -> Vec<&'static Differs> {
    if server::is_reference() {
        return Vec::new();
    }
    let of_file = DEVIATIONS.iter().filter(|deviation| deviation.file == file);
    of_file.flat_map(|deviation| deviation.values).filter(|Differs(of, ..)| *of == line).collect()
}

/// Whether the deviation is that nothing comes.
pub(crate) fn is_silence(values: &[&Differs]) -> bool {
    values.iter().any(|Differs(_, path, ours)| *path == "response" && matches!(ours, Ours::Absent))
}

/// What is left of the findings when the deviations are taken off, and a finding for each deviation that is none
/// (any more) or is not as the table says.
pub(crate) fn apply(
    line: &str,
    values: &[&Differs],
    mut findings: Vec<Finding>,
    response: &Value,
) -> Vec<Finding> {
    for Differs(_, path, ours) in values {
        let count = findings.len();
        findings.retain(|finding| !is_at_or_below(&finding.path, path));
        let found = answer::find(response, path);
        let wanted = if findings.len() == count {
            "in no table of deviations, for it is as recorded".to_owned()
        } else if !ours.is_met(found.as_ref()) {
            format!("{ours:?}, as the table of deviations says")
        } else {
            continue;
        };
        findings.push(Finding { line: line.to_owned(), path: (*path).to_owned(), wanted, found });
    }
    findings
}

fn is_at_or_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The whole table.
pub(crate) const DEVIATIONS: &[Deviation] = &[
    Deviation {
        file: "send",
        reason: "A send never leaves a topic without queues behind: with 0 as the default number of queues it is refused.",
        values: &[
            Differs("TopicD0 configuration", "response.header.code", Ours::Number(17)),
            Differs(
                "TopicD0 configuration",
                "response.header.remark",
                Ours::Text("No topic in this broker."),
            ),
            Differs("TopicD0 configuration", "response.json", Ours::Absent),
            Differs("default queues 0, queueId -1", "response.header.code", Ours::Number(29)),
            Differs("default queues 0, queueId -1", "response.header.extFields", Ours::Object),
        ],
    },
    Deviation {
        file: "offsets",
        reason: "Progress beyond the queue's end is recorded as the queue's end, and the answer says so.",
        values: &[
            Differs(
                "commit a value beyond the queue",
                "response.header.remark",
                Ours::Text("offset 1000 is beyond the queue's end"),
            ),
            Differs("query beyond", "response.header.extFields.offset", Ours::Text("5")),
        ],
    },
    Deviation {
        file: "offsets",
        reason: "Negative progress, and progress on a queue that does not exist, is ignored, and the answer says so.",
        values: &[
            Differs("commit negative", "response.header.remark", Ours::Text("offset -5 is negative")),
            Differs("query negative", "response.header.extFields.offset", Ours::Text("5")),
            Differs(
                "commit to a queue that does not exist",
                "response.header.remark",
                Ours::Text("queueId[99] is not a queue"),
            ),
        ],
    },
    Deviation {
        file: "consumers",
        reason: "The question who consumes a topic is answered with groups; the reference answers with the topic's name.",
        values: &[Differs("who consumes", "response.json.groupList[0]", Ours::Text("GC"))],
    },
    Deviation {
        file: "consumers",
        reason: "A body that is no JSON is refused with a sentence that says at which byte it is wrong.",
        values: &[Differs(
            "heartbeat with broken JSON",
            "response.header.remark",
            Ours::Text("the request's body can't be read: at byte 12"),
        )],
    },
    Deviation {
        file: "consumers",
        reason: "A short fingerprint heartbeat of a client that is not known yet is answered with the wish for the whole one.",
        values: &[Differs(
            "V2 heartbeat of a new client: short form only",
            "response.header.extFields.IS_SUB_CHANGE",
            Ours::Text("true"),
        )],
    },
    Deviation {
        file: "consumers",
        reason: "Unregistering a client that is not registered disturbs nobody.",
        values: &[Differs("notification after the second unregister", "response", Ours::Absent)],
    },
    Deviation {
        file: "admin",
        reason: "A topic whose permission or number of queues makes no sense is refused with INVALID_PARAMETER (29).",
        values: &[
            Differs("create topic: perm 9", "response.header.code", Ours::Number(29)),
            Differs(
                "create topic: perm 9",
                "response.header.remark",
                Ours::Text("perm[9] of topic[TopicPerm9] is illegal"),
            ),
            Differs("create topic: negative queues", "response.header.code", Ours::Number(29)),
            Differs(
                "create topic: negative queues",
                "response.header.remark",
                Ours::Text("readQueueNums[-1] of topic[TopicNeg] is illegal"),
            ),
            Differs("topics, first page of 3", "response.json.topicConfigTable.TopicPerm9", Ours::Absent),
            Differs("topics, first page of 3", "response.json.topicConfigTable.TopicNeg", Ours::Absent),
            Differs("topics, page at 3", "response.json.topicConfigTable.TopicPerm9", Ours::Absent),
            Differs("topics, page at 3", "response.json.topicConfigTable.TopicNeg", Ours::Absent),
        ],
    },
    Deviation {
        file: "admin",
        reason: "A group whose name breaks the rules is refused with INVALID_PARAMETER (29).",
        values: &[
            Differs("create group, bad name", "response.header.code", Ours::Number(29)),
            Differs(
                "create group, bad name",
                "response.header.remark",
                Ours::Text("The specified group: a b, contains illegal characters"),
            ),
            Differs("groups, first page", r#"response.json.subscriptionGroupTable."a b""#, Ours::Absent),
            Differs("all groups", r#"response.json.subscriptionGroupTable."a b""#, Ours::Absent),
            Differs("consume statistics of the broker", "response.json.consumeStatsList[13]", Ours::Absent),
        ],
    },
    Deviation {
        file: "admin",
        reason: "A message whose offset was committed counts as pulled, so that no number of messages in flight is negative.",
        values: &[
            Differs(
                "consume statistics of the broker",
                r#"response.json.consumeStatsList[6].GA[0].offsetTable."{\"brokerName\":\"broker-a\",\"queueId\":0,\"topic\":\"TopicA\"}".pullOffset"#,
                Ours::Number(1),
            ),
            Differs("consume statistics of the broker", "response.json.totalInflightDiff", Ours::Number(0)),
        ],
    },
    Deviation {
        file: "admin",
        reason: "A setting with a malformed value is refused with INVALID_PARAMETER (29) and a sentence.",
        values: &[
            Differs("change configuration, bad number", "response.header.code", Ours::Number(29)),
            Differs(
                "change configuration, bad number",
                "response.header.remark",
                Ours::Text("maxMessageSize must be a whole number"),
            ),
        ],
    },
    Deviation {
        file: "errors",
        reason: "A question for statistics without a name is told which header field is missing.",
        values: &[
            Differs(
                "no extFields: stats",
                "response.header.remark",
                Ours::Text("VIEW_BROKER_STATS_DATA needs header field `statsName`"),
            ),
            Differs(
                "empty extFields: stats",
                "response.header.remark",
                Ours::Text("VIEW_BROKER_STATS_DATA needs header field `statsName`"),
            ),
        ],
    },
    Deviation {
        file: "transport",
        reason: "A one-way request is never answered.",
        values: &[
            Differs("one-way view by id is answered all the same", "response", Ours::Absent),
            Differs("one-way query by key is answered all the same", "response", Ours::Absent),
        ],
    },
];
