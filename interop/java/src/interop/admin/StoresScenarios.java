package interop.admin;

import interop.Environment;
import interop.Scenario;
import interop.Suite;
import java.util.ArrayList;
import java.util.List;

/**
 * Servers of different make run one after another on the same directory: what one has written, in order or until it was killed,
 * the next one serves unchanged, and it writes on.
 */
public final class StoresScenarios {
    private static final String OURS = System.getenv("INTEROP_AGAINST");

    /** How a server ends. */
    private enum End { STOP, KILL }

    private record Turn(String kind, End end) { }

    private StoresScenarios() { }

    public static void main(String[] args) throws Exception {
        Suite suite = new Suite();
        for (String version : List.of("5.3.3", "4.9.7")) {
            suite.add("java-first-" + version, s -> javaFirst(s, version));
            suite.add("ours-first-" + version, s -> oursFirst(s, version));
        }
        suite.main(4, args);
    }

    private static void javaFirst(Scenario s, String version) throws Exception {
        String java = "rocketmq-" + version;
        List<String> settings = new ArrayList<>(List.of("enableLmq=true", "enableMultiDispatch=true"));
        SharedStore store = new SharedStore(s, SharedStore.Hosts.IPV4, settings);
        store.withLightQueues();
        if (version.startsWith("5")) {
            store.withInnerBatches();
        }
        run(store, List.of(new Turn(java, End.STOP), new Turn(ours(version), End.STOP), new Turn(java, End.KILL),
            new Turn(ours(version), End.KILL), new Turn(java, End.KILL)));
    }

    private static void oursFirst(Scenario s, String version) throws Exception {
        String java = "rocketmq-" + version;
        // 4.9 does not know the setting, but reads what it does to the records.
        SharedStore store = new SharedStore(s, SharedStore.Hosts.IPV6, List.of("enabledAppendPropCRC=true"));
        run(store, List.of(new Turn(ours(version), End.KILL), new Turn(java, End.KILL), new Turn(ours(version), End.STOP),
            new Turn(java, End.STOP), new Turn(ours(version), End.KILL)));
    }

    /** Against the real one, the same broker takes all the turns. */
    private static String ours(String version) {
        return OURS.equals("ferromq") ? OURS : "rocketmq-" + version;
    }

    private static void run(SharedStore store, List<Turn> turns) throws Exception {
        Turn before = null;
        for (Turn turn : turns) {
            boolean last = turn == turns.get(turns.size() - 1);
            try {
                // Only the log can tell what a killed broker has delivered, and the real one does not ask it.
                store.start(turn.kind, before != null && before.end == End.KILL && turn.kind.startsWith("rocketmq"));
                store.check();
                store.write();
                if (!last) {
                    store.prepareForEnd(turn.end == End.KILL);
                }
                Environment.servers(turn.end.name().toLowerCase(), store.server());
            } catch (Throwable e) {
                throw new AssertionError(turn + " after " + before + ": " + e.getMessage(), e);
            }
            before = turn;
        }
    }
}
