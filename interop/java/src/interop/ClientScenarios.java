package interop;

/** What the official Java client can do against one cluster. The same source runs with each version of the client. */
public final class ClientScenarios {
    private ClientScenarios() { }

    public static void main(String[] args) throws Exception {
        // The slow ones first, so that their waits overlap with the others.
        new Suite()
            .add("consume-from-where", ConsumeFromWhereScenarios::oldTopic)
            .add("dlq-orderly", RetryScenarios::orderlyDeadLetter)
            .add("restart", s -> RestartScenarios.restart(s, "restart-namesrv", "restart-broker"))
            .add("retry", RetryScenarios::retry)
            .add("retry-delay-level", RetryScenarios::delayLevel)
            .add("dlq", RetryScenarios::deadLetter)
            .add("rebalance-kill", RebalanceScenarios::kill)
            .add("rebalance-shutdown", RebalanceScenarios::shutdown)
            .add("rebalance-orderly", RebalanceScenarios::orderly)
            .add("delay-level", SendScenarios::delayLevel)
            .add("send-sync", SendScenarios::sync)
            .add("send-async", SendScenarios::async)
            .add("send-oneway", SendScenarios::oneway)
            .add("send-batch", SendScenarios::batch)
            .add("send-large", SendScenarios::large)
            .add("send-selector", SendScenarios::selector)
            .add("push-concurrent", PushScenarios::concurrent)
            .add("push-orderly", PushScenarios::orderly)
            .add("push-broadcasting", PushScenarios::broadcasting)
            .add("push-long-polling", PushScenarios::longPolling)
            .add("consume-from-where-young", ConsumeFromWhereScenarios::youngTopic)
            .add("tag-filter", PushScenarios::tagFilter)
            .add("lite-pull-assign", PullScenarios::assign)
            .add("lite-pull-subscribe", PullScenarios::subscribe)
            .add("queue-offsets", PullScenarios::queueOffsets)
            .add("lookup", LookupScenarios::lookup)
            .main(8, args);
    }
}
