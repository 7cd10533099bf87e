package interop.admin;

import interop.Check;
import interop.Environment;
import interop.Inbox;
import interop.Scenario;
import interop.Suite;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A master and a slave of different make: the slave's log is the master's, byte for byte; sends that wait for the slave succeed; and
 * consumers read all of it from the slave when the master was killed.
 */
public final class ReplicationScenarios {
    private static final String OURS = System.getenv("INTEROP_AGAINST");
    private static final int FILE_SIZE = 131072;
    private static final int MESSAGES = 400;

    private ReplicationScenarios() { }

    public static void main(String[] args) throws Exception {
        Suite suite = new Suite();
        for (String version : List.of("5.3.3", "4.9.7")) {
            String java = "rocketmq-" + version;
            suite.add("our-slave-of-" + version, s -> run(s, java, ours(version)));
            suite.add("our-master-of-" + version, s -> run(s, ours(version), java));
        }
        suite.add("our-slave-acts", s -> act(s, "rocketmq-5.3.3", OURS));
        suite.add("our-master-returns", s -> act(s, OURS, "rocketmq-5.3.3"));
        suite.main(2, args);
    }

    /** Against the real one, master and slave are of the same make. */
    private static String ours(String version) {
        return OURS.equals("ferromq") ? OURS : "rocketmq-" + version;
    }

    private static void run(Scenario s, String masterKind, String slaveKind) throws Exception {
        String topic = s.topic();
        String master = topic + "-master";
        String slave = topic + "-slave";
        create(master, masterKind, topic, "brokerRole=SYNC_MASTER", "brokerId=0");
        create(slave, slaveKind, topic, "brokerRole=SLAVE", "brokerId=1", "slaveReadEnable=true");
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(s.namesrv());
        admin.setInstanceName(topic);
        admin.start();
        s.closing(admin::shutdown);
        Environment.servers("start", master);
        Check.await(60, "the master has registered", () -> address(admin, topic, MixAll.MASTER_ID) != null);
        DefaultMQProducer producer = s.producer();
        List<String> bodies = new ArrayList<>();
        // Our slave copies what was there before it came; others begin with the last file.
        if (!slaveKind.equals("ferromq")) {
            Environment.servers("start", slave);
            awaitCopy(producer, topic, bodies);
        }
        bodies.addAll(send(producer, topic, 0, SendStatus.SEND_OK, false));
        if (slaveKind.equals("ferromq")) {
            Environment.servers("start", slave);
        }
        Check.await(60, "the slave has registered", () -> address(admin, topic, 1L) != null);
        awaitSameLog(master, slave);
        // With the slave, a send that waits for it succeeds.
        bodies.addAll(send(producer, topic, MESSAGES, SendStatus.SEND_OK, true));
        awaitSameLog(master, slave);
        checkStatus(admin, topic, masterKind, slaveKind);

        // A slave of the real one gets its topics after a minute.
        Check.await(120, "the slave knows the topic", () -> topics(admin, topic).contains(topic));
        Environment.servers("kill", master);
        Check.await(60, "the master is gone", () -> address(admin, topic, MixAll.MASTER_ID) == null);
        Inbox inbox = new Inbox();
        s.consume(s.group("of-slave"), inbox);
        inbox.awaitExactly(bodies, 120);

        Environment.servers("start", master);
        Check.await(60, "the master has registered again", () -> address(admin, topic, MixAll.MASTER_ID) != null);
        awaitCopy(producer, topic, bodies);
        awaitSameLog(master, slave);
        inbox.awaitExactly(bodies, 60);
        Environment.servers("stop", slave);
        Environment.servers("stop", master);
    }

    /**
     * With enableSlaveActingMaster brokers exchange what they know before they register: the slave when it starts, and the master when it
     * returns, which then has the progress that consumers have made at the slave.
     */
    private static void act(Scenario s, String masterKind, String slaveKind) throws Exception {
        String topic = s.topic();
        String master = topic + "-master";
        String slave = topic + "-slave";
        create(master, masterKind, topic, "brokerRole=ASYNC_MASTER", "brokerId=0", "enableSlaveActingMaster=true", "inSyncReplicas=1");
        create(slave, slaveKind, topic, "brokerRole=SLAVE", "brokerId=1", "enableSlaveActingMaster=true", "slaveReadEnable=true",
            "inSyncReplicas=1");
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(s.namesrv());
        admin.setInstanceName(topic);
        admin.start();
        s.closing(admin::shutdown);
        Environment.servers("start", master);
        Check.await(60, "the master has registered", () -> address(admin, topic, MixAll.MASTER_ID) != null);
        Environment.servers("start", slave);
        Check.await(60, "the slave has registered", () -> address(admin, topic, 1L) != null);
        DefaultMQProducer producer = s.producer();
        List<String> bodies = new ArrayList<>(send(producer, topic, 0, SendStatus.SEND_OK, true));
        Inbox inbox = new Inbox();
        String group = s.group("of-slave");
        DefaultMQPushConsumer consumer = s.consume(group, inbox);
        inbox.awaitExactly(bodies, 60);
        consumer.shutdown();
        bodies.addAll(send(producer, topic, MESSAGES, SendStatus.SEND_OK, true));
        awaitSameLog(master, slave);
        Check.await(120, "the slave knows the topic", () -> topics(admin, topic).contains(topic));
        Check.await(120, "the slave knows the progress", () -> progress(admin, topic, 1L, group) == MESSAGES);

        Environment.servers("kill", master);
        Check.await(60, "the master is gone", () -> address(admin, topic, MixAll.MASTER_ID) == null);
        consumer = s.consume(group, inbox);
        inbox.awaitExactly(bodies, 120);
        consumer.shutdown();
        Check.await(60, "progress at the slave", () -> progress(admin, topic, 1L, group) == 2 * MESSAGES);

        Environment.servers("start", master);
        Check.await(60, "the master has registered again", () -> address(admin, topic, MixAll.MASTER_ID) != null);
        Check.equal(2L * MESSAGES, progress(admin, topic, MixAll.MASTER_ID, group), "progress at the master");
        send(producer, topic, 2 * MESSAGES, SendStatus.SEND_OK, true);
        awaitSameLog(master, slave);
        Environment.servers("stop", slave);
        Environment.servers("stop", master);
    }

    /** How many messages a group has consumed, as one broker says. */
    private static long progress(DefaultMQAdminExt admin, String name, long id, String group) throws Exception {
        return admin.examineConsumeStats(address(admin, name, id), group, name, 10_000).getOffsetTable().values().stream()
            .mapToLong(OffsetWrapper::getConsumerOffset).sum();
    }

    private static void create(String server, String kind, String name, String... settings) throws Exception {
        List<String> arguments = new ArrayList<>(List.of(kind, "namesrvAddr=" + Environment.NAMESRV, "brokerName=" + name,
            "mappedFileSizeCommitLog=" + FILE_SIZE, "inSyncReplicas=2", "totalReplicas=2"));
        arguments.addAll(List.of(settings));
        Environment.servers("create", server, arguments.toArray(String[]::new));
    }

    private static String address(DefaultMQAdminExt admin, String name, long id) throws Exception {
        var broker = admin.examineBrokerClusterInfo().getBrokerAddrTable().get(name);
        return broker == null ? null : broker.getBrokerAddrs().get(id);
    }

    private static String topics(DefaultMQAdminExt admin, String name) throws Exception {
        return admin.getAllTopicConfig(address(admin, name, 1L), 10_000).getTopicConfigTable().keySet().toString();
    }

    /** Until a slave has connected, sends are stored and say that there is no copy. */
    private static void awaitCopy(DefaultMQProducer producer, String topic, List<String> bodies) throws Exception {
        Check.await(60, "a send with a copy", () -> {
            String body = "first " + bodies.size();
            SendResult result = producer.send(new Message(topic, body.getBytes()));
            bodies.add(body);
            return result.getSendStatus() == SendStatus.SEND_OK;
        });
    }

    private static List<String> send(DefaultMQProducer producer, String topic, int from, SendStatus expected, boolean wait) throws Exception {
        List<String> bodies = IntStream.range(from, from + MESSAGES).mapToObj(i -> "m" + i).toList();
        for (String body : bodies) {
            Message message = new Message(topic, "tag", "key-" + body, body.getBytes());
            message.putUserProperty("padding", "x".repeat(body.hashCode() % 500 + 500));
            message.setWaitStoreMsgOK(wait);
            Check.equal(expected, producer.send(message).getSendStatus(), "status of " + body);
        }
        return bodies;
    }

    private static void checkStatus(DefaultMQAdminExt admin, String name, String masterKind, String slaveKind) throws Exception {
        if (!masterKind.endsWith("4.9.7")) {
            HARuntimeInfo status = admin.getBrokerHAStatus(address(admin, name, MixAll.MASTER_ID));
            Check.equal(1, status.getHaConnectionInfo().size(), "slaves of the master");
            Check.equal(0L, status.getHaConnectionInfo().get(0).getDiff(), "what the slave lacks");
        }
        if (!slaveKind.endsWith("4.9.7")) {
            HARuntimeInfo.HAClientRuntimeInfo status = admin.getBrokerHAStatus(address(admin, name, 1L)).getHaClientRuntimeInfo();
            Check.that(status.getMaxOffset() > 2 * FILE_SIZE, "end of the slave's log: %d", status.getMaxOffset());
        }
    }

    /** The slave has the files of the master, or the last ones of them, with the same bytes. */
    private static void awaitSameLog(String master, String slave) throws Exception {
        Check.eventually(60, () -> {
            Map<String, byte[]> theirs = log(master);
            Map<String, byte[]> ours = log(slave);
            Check.that(!ours.isEmpty(), "the slave has nothing");
            List<String> common = theirs.keySet().stream().filter(file -> file.compareTo(ours.keySet().iterator().next()) >= 0).toList();
            Check.equal(common, List.copyOf(ours.keySet()), "log files");
            ours.forEach((file, bytes) -> Check.that(Arrays.equals(bytes, theirs.get(file)), "%s differs", file));
        });
    }

    /** The log files that hold anything, by name. */
    private static Map<String, byte[]> log(String server) throws IOException {
        Map<String, byte[]> files = new TreeMap<>();
        Path directory = Environment.directory(server).resolve("store/commitlog");
        if (!Files.exists(directory)) {
            return files;
        }
        try (Stream<Path> paths = Files.list(directory)) {
            for (Path path : paths.toList()) {
                byte[] bytes = Files.readAllBytes(path);
                if (!Arrays.equals(bytes, new byte[bytes.length])) {
                    files.put(path.getFileName().toString(), bytes);
                }
            }
        }
        return files;
    }
}
