//! Recorded lines that are not replayed yet, each with its reason. Whoever builds what is missing removes the entry.

/// Lines of one file that need something FerroMQ does not have yet.
pub(crate) struct LeftOut {
    pub(crate) file: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) lines: &'static [&'static str],
}

/// Whether a line waits for a feature.
pub(crate) fn is_left_out(file: &str, line: &str) -> bool {
    LEFT_OUT.iter().any(|entry| entry.file == file && entry.lines.contains(&line))
}

/// How many lines of a file wait, and for what.
pub(crate) fn left_out_of(file: &str) -> impl Iterator<Item = (usize, &'static str)> {
    LEFT_OUT.iter().filter(move |entry| entry.file == file).map(|entry| (entry.lines.len(), entry.reason))
}

/// The whole list.
pub(crate) const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        file: "send",
        reason: "request-reply messages (324, 325, 326)",
        lines: &[
            "reply message without REPLY_TO_CLIENT",
            "reply message, requester unknown",
            "requester registers as producer",
            "reply message, requester connected",
            "pushed reply 326",
            "requester answers the push",
            "answer to the replier",
            "stored replies",
        ],
    },
    LeftOut {
        file: "send",
        reason: "timer messages",
        lines: &["timer message: recall handle", "timer message beyond 3 days"],
    },
    LeftOut { file: "send", reason: "recall of timer messages (370)", lines: &["recall disabled"] },
    LeftOut { file: "send", reason: "batch consume queues", lines: &["inner batch"] },
    LeftOut {
        file: "pull",
        reason: "SQL92 filters",
        lines: &[
            "SQL92 pull",
            "SQL92 pull, does not compile",
            "SQL92 pull, nothing matches",
            "SQL92 by heartbeat",
            "pull with the heartbeat SQL",
            "SQL92 heartbeat that does not compile",
            "pull with the broken heartbeat SQL",
            "check client config: SQL92 fine",
            "check client config: SQL92 broken",
            // An unknown type of filter is judged by the same switch.
            "expressionType tag in lower case",
            "check client config: unknown type",
        ],
    },
    LeftOut {
        file: "consumers",
        reason: "POP (request modes and the assignments that follow from them)",
        lines: &[
            "set request mode POP",
            "query assignment in POP mode",
            "set request mode for a retry topic",
        ],
    },
    LeftOut { file: "admin", reason: "timer messages", lines: &["timer check point", "timer metrics"] },
    LeftOut {
        file: "errors",
        reason: "transactions",
        lines: &["no extFields: end transaction", "empty extFields: end transaction"],
    },
];
