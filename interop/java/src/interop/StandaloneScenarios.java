package interop;

/** A selection, for name server and broker in one process. The last one restarts it. */
public final class StandaloneScenarios {
    private StandaloneScenarios() { }

    public static void main(String[] args) throws Exception {
        new Suite()
            .add("send-sync", SendScenarios::sync)
            .add("push-concurrent", PushScenarios::concurrent)
            .add("retry", RetryScenarios::retry)
            .add("lite-pull-assign", PullScenarios::assign)
            .add("lookup", LookupScenarios::lookup)
            .add("restart", s -> RestartScenarios.restart(s, "namesrv", "namesrv"))
            .main(1, args);
    }
}
