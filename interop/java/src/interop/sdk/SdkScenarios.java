package interop.sdk;

import interop.Suite;

/** Our own client beside the official Java client. */
public final class SdkScenarios {
    private SdkScenarios() { }

    public static void main(String[] args) throws Exception {
        Suite suite = new Suite()
            .add("mixed-group-orderly", MixedGroupScenarios::orderly)
            .add("mixed-group", MixedGroupScenarios::concurrent);
        // Our own broker has no transactions yet.
        if (!System.getenv("INTEROP_AGAINST").equals("ferromq")) {
            suite.add("transaction-from-rust", TransactionScenarios::fromRust)
                .add("transaction-from-java", TransactionScenarios::fromJava);
        }
        suite.main(4, args);
    }
}
