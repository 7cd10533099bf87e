package interop.admin;

import interop.Check;
import interop.Environment;
import interop.Scenario;
import interop.Suite;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The way over from Java and back, as `docs/migration.md` describes it, with clients that run all along: a slave of ours is attached to a
 * Java master and catches up; it becomes the master; the Java broker follows it; and the Java broker becomes the master again.
 *
 * Against the real RocketMQ, "ours" is a Java broker too.
 */
public final class MigrationScenarios {
    private static final String JAVA = "rocketmq-5.3.3";
    private static final String OURS = System.getenv("INTEROP_AGAINST");
    private static final String BROKER = "broker-a";
    private static final int MESSAGES_OF_A_STEP = 1000;
    private static final List<String> PROGRESS = List.of("consumerOffset.json", "delayOffset.json");

    private final Scenario scenario;
    private final MigrationLoad load;
    private final String live;
    private final String idle;
    private final DefaultMQAdminExt admin;
    private final long begun = System.nanoTime();

    private MigrationScenarios(Scenario scenario) throws Exception {
        this.scenario = scenario;
        live = scenario.group("live");
        idle = scenario.group("idle");
        load = new MigrationLoad(scenario, live);
        admin = new DefaultMQAdminExt(10_000);
        admin.setNamesrvAddr(scenario.namesrv());
        admin.setInstanceName("drill");
        scenario.closing(admin::shutdown);
    }

    public static void main(String[] args) throws Exception {
        new Suite().add("there-and-back", s -> new MigrationScenarios(s).run()).main(1, args);
    }

    private void run() throws Exception {
        say("A Java master serves the cluster.");
        create("java", JAVA);
        create("ours", OURS);
        become("java", "ASYNC_MASTER");
        Environment.servers("start", "java");
        admin.start();
        load.start();
        load.awaitMore(MESSAGES_OF_A_STEP);
        List<Long> committed = commitForIdleGroup();
        tell("A second group, nobody of which is connected, has committed %s.", committed);

        say("ATTACH: our broker starts as an empty slave of the Java master, under load.");
        become("ours", "SLAVE");
        Environment.servers("start", "ours");
        load.awaitMore(MESSAGES_OF_A_STEP);

        say("CATCH UP: our slave gets as far as the master.");
        awaitInSync("java");
        switchOver("java", "ours", "SWITCH: our broker becomes the master.", false, committed);

        say("Our broker serves the cluster; the Java broker follows it, with the store that it has.");
        become("java", "SLAVE");
        Environment.servers("start", "java");
        load.awaitMore(2 * MESSAGES_OF_A_STEP);
        awaitInSync("ours");
        switchOver("ours", "java", "ROLL BACK: the Java broker becomes the master again.", true, committed);

        say("And once more: our broker follows the Java master, with the store that it has.");
        become("ours", "SLAVE");
        Environment.servers("start", "ours");
        load.awaitMore(MESSAGES_OF_A_STEP);
        load.stopProducers();
        say("VERDICT");
        int twice = load.checkConsumed();
        int stored = load.checkStored();
        Map<String, Long> end = awaitSameProgress("java", "ours");
        Check.equal(committed, progress("java", idle), "progress of the idle group");
        tell("%d messages were acknowledged (%d sends were refused and repeated).", load.acknowledged(), load.refused());
        tell("All of them are stored, in order (%d with repeated sends); all were consumed, %d more than once.", stored, twice);
        tell("No group's progress went back. At the end: %s on both brokers, the idle group's is %s.", end, committed);
        Environment.servers("stop", "ours");
        Environment.servers("stop", "java");
        tell("The logs of both brokers are the same, byte for byte: %d bytes.", sameLogs());
    }

    /** Writes stop, the slave has everything, the master goes, the slave becomes the master. */
    private void switchOver(String from, String to, String what, boolean copyProgress, List<Long> committed) throws Exception {
        say(what);
        load.longestGapSeconds();
        setPermission(from, 4);
        tell("No more sends to %s (brokerPermission=4). Consumers go on.", name(from));
        long end = awaitStill(from);
        tell("Both logs end at %d.", end);
        Map<String, Long> before = copyProgress ? progressOf(from) : awaitSameProgress(from, to);
        if (!copyProgress) {
            tell("The slave has the progress of all groups: %s.", before);
        }
        Environment.servers("stop", from);
        Environment.servers("stop", to);
        if (copyProgress) {
            // What the clients have committed since.
            for (String file : PROGRESS) {
                Path source = Environment.directory(from).resolve("store/config/" + file);
                Files.copy(source, Environment.directory(to).resolve("store/config/" + file), StandardCopyOption.REPLACE_EXISTING);
            }
            tell("Both are stopped; %s were copied over.", String.join(" and ", PROGRESS));
        }
        become(to, "ASYNC_MASTER");
        Environment.servers("start", to);
        load.awaitMore(MESSAGES_OF_A_STEP);
        Map<String, Long> after = progressOf(to);
        before.forEach((queue, offset) -> Check.that(after.getOrDefault(queue, -1L) >= offset,
            "progress of %s was %d, now it is %s", queue, offset, after.get(queue)));
        Check.equal(committed, progress(to, idle), "progress of the idle group");
        tell("Now %s is the master. Longest time without an acknowledgement: %.1f s.", name(to), load.longestGapSeconds());
    }

    // Brokers

    private void create(String server, String kind) throws Exception {
        Environment.servers("create", server, kind, "namesrvAddr=" + scenario.namesrv(), "brokerName=" + BROKER);
    }

    /** The settings of a role, for the next start. A Java broker has written to its file what was changed meanwhile. */
    private void become(String server, String role) throws Exception {
        Path conf = Environment.directory(server).resolve("conf");
        Path first = Environment.directory(server).resolve("conf.first");
        if (!Files.exists(first)) {
            Files.copy(conf, first);
        }
        List<String> lines = new ArrayList<>(Files.readAllLines(first));
        lines.removeIf(line -> line.startsWith("brokerId="));
        lines.add("brokerId=" + (role.equals("SLAVE") ? 1 : 0));
        lines.add("brokerRole=" + role);
        Files.write(conf, lines);
    }

    private void setPermission(String server, int permission) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("brokerPermission", String.valueOf(permission));
        admin.updateBrokerConfig(Environment.address(server), properties);
    }

    /** Waits for a slave that lacks less than it can get in a moment. */
    private void awaitInSync(String master) throws Exception {
        Check.await(120, "a slave that has caught up", () -> lag(master) < 100_000);
        HARuntimeInfo status = admin.getBrokerHAStatus(Environment.address(master));
        tell("The log of %s ends at %d, its slave lacks %d bytes.", name(master), status.getMasterCommitLogMaxOffset(), lag(master));
    }

    private long lag(String master) throws Exception {
        HARuntimeInfo status = admin.getBrokerHAStatus(Environment.address(master));
        return status.getHaConnectionInfo().stream().mapToLong(slave -> slave.getDiff()).min().orElse(Long.MAX_VALUE);
    }

    /** Waits until the master's log stands still, delayed messages included, and the slave has all of it. Returns the end. */
    private long awaitStill(String master) throws Exception {
        long[] last = {-1, 0};
        Check.await(120, "a log that stands still", () -> {
            HARuntimeInfo status = admin.getBrokerHAStatus(Environment.address(master));
            long end = status.getMasterCommitLogMaxOffset();
            if (end != last[0] || lag(master) != 0) {
                last[0] = end;
                last[1] = System.nanoTime();
            }
            return System.nanoTime() - last[1] > 6_000_000_000L;
        });
        return last[0];
    }

    private long sameLogs() throws Exception {
        Path java = Environment.directory("java").resolve("store/commitlog");
        Path ours = Environment.directory("ours").resolve("store/commitlog");
        long compared = 0;
        try (var files = Files.list(java)) {
            for (Path file : files.filter(path -> path.getFileName().toString().length() == 20).sorted().toList()) {
                Path copy = ours.resolve(file.getFileName());
                if (Files.exists(copy)) {
                    Check.equal(-1L, Files.mismatch(file, copy), "first byte of " + file.getFileName() + " that differs");
                    compared += Files.size(file);
                }
            }
        }
        Check.that(compared > 0, "there is nothing to compare");
        return compared;
    }

    // Progress

    private List<Long> commitForIdleGroup() throws Exception {
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName(idle);
        admin.createAndUpdateSubscriptionGroupConfig(Environment.address("java"), group);
        List<Long> committed = new ArrayList<>();
        for (int queueId = 0; queueId < Scenario.QUEUES; queueId++) {
            long offset = 10L * (queueId + 1);
            admin.updateConsumeOffset(Environment.address("java"), idle, new MessageQueue(scenario.topic(), BROKER, queueId), offset);
            committed.add(offset);
        }
        Check.equal(committed, progress("java", idle), "progress of the idle group");
        return committed;
    }

    private List<Long> progress(String server, String group) throws Exception {
        Map<Integer, Long> offsets = new TreeMap<>();
        admin.examineConsumeStats(Environment.address(server), group, scenario.topic(), 10_000).getOffsetTable()
            .forEach((queue, offset) -> offsets.put(queue.getQueueId(), offset.getConsumerOffset()));
        return List.copyOf(offsets.values());
    }

    private Map<String, Long> progressOf(String server) throws Exception {
        Map<String, Long> offsets = new TreeMap<>();
        for (String group : List.of(live, idle)) {
            List<Long> ofGroup = progress(server, group);
            for (int queueId = 0; queueId < ofGroup.size(); queueId++) {
                offsets.put((group.equals(live) ? "live-" : "idle-") + queueId, ofGroup.get(queueId));
            }
        }
        return offsets;
    }

    private Map<String, Long> awaitSameProgress(String one, String other) throws Exception {
        Check.eventually(90, () -> Check.equal(progressOf(one), progressOf(other), "progress"));
        return progressOf(one);
    }

    // Output

    private void say(String what) {
        System.out.printf("%n[%5.1f s, %d acknowledged, %d consumed] %s%n", (System.nanoTime() - begun) / 1e9, load.acknowledged(),
            load.consumed(), what);
    }

    private static String name(String server) {
        return server.equals("java") ? "the Java broker" : "our broker";
    }

    private static void tell(String what, Object... args) {
        System.out.println("    " + String.format(what, args));
    }
}
