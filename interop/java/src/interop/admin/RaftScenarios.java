package interop.admin;

import interop.Check;
import interop.Environment;
import interop.Inbox;
import interop.Scenario;
import interop.Suite;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A Raft group of three brokers, used by clients with their default settings and by mqadmin: its leader is the master, and when it is
 * killed another one is, with everything that was acknowledged.
 */
public final class RaftScenarios {
    private static final String NAME = "broker-a";
    private static final int MEMBERS = 3;
    private static final int QUEUES = 4;

    private RaftScenarios() { }

    public static void main(String[] args) throws Exception {
        // One after the other: commands of mqadmin print to the process's output, and one scenario kills the leader.
        new Suite()
            .add("mqadmin", RaftScenarios::mqadmin)
            .add("leader-dies", RaftScenarios::leaderDies)
            .main(1, args);
    }

    // What mqadmin shows, and what it does

    private static void mqadmin(Scenario s) throws Exception {
        Group group = new Group(s);
        Mqadmin mqadmin = group.mqadmin;
        group.awaitMembers();
        int leader = group.leader();

        mqadmin.run("updateTopic", "-c", Shop.CLUSTER, "-t", s.topic(), "-r", "" + QUEUES, "-w", "" + QUEUES)
            .contains("create topic to " + group.address(leader) + " success.");
        group.awaitEverywhere("topic " + s.topic(), address -> group.hasTopic(address, s.topic()));
        Check.equal(1L, mqadmin.run("topicList").lines().stream().filter(s.topic()::equals).count(), "times in topicList");

        DefaultMQProducer producer = group.producer(s.group("producer"));
        for (int i = 0; i < 3 * QUEUES; i++) {
            send(producer, s.topic(), i % QUEUES, "m" + i);
        }
        Inbox inbox = new Inbox();
        group.consume(s.group(), s.topic(), inbox);
        inbox.awaitExactly(IntStream.range(0, 3 * QUEUES).mapToObj(i -> "m" + i).toList(), 60);

        Mqadmin.Output status = mqadmin.run("topicStatus", "-t", s.topic());
        for (int queue = 0; queue < QUEUES; queue++) {
            status.check(status.rowWith(NAME, "" + queue).subList(2, 4).equals(List.of("0", "3")), "offsets of queue " + queue);
        }
        // A consumer commits every five seconds.
        Check.eventually(60, () -> {
            Mqadmin.Output progress = mqadmin.run("consumerProgress", "-g", s.group());
            for (int queue = 0; queue < QUEUES; queue++) {
                progress.rowWith(s.topic(), NAME, "" + queue, "3", "3", "0");
            }
            progress.contains("Consume Diff Total: 0");
        });
        Mqadmin.Output progress = mqadmin.run("consumerProgress");
        progress.check(progress.rowWith(s.group(), "1").contains("CLUSTERING"), "the group is online");
        Mqadmin.Output stats = mqadmin.run("brokerConsumeStats", "-b", group.address(leader));
        for (int queue = 0; queue < QUEUES; queue++) {
            stats.rowWith(s.topic(), s.group(), NAME, "" + queue, "3", "3", "0");
        }

        String end = mqadmin.run("brokerStatus", "-b", group.address(leader)).value("commitLogMaxOffset");
        for (int id = 0; id < MEMBERS; id++) {
            String address = group.address(id);
            Check.eventually(60, () -> {
                Mqadmin.Output output = mqadmin.run("brokerStatus", "-b", address);
                output.check(Long.parseLong(output.value("commitLogMaxOffset")) >= Long.parseLong(end), "the log ends before " + end);
            });
            Mqadmin.Output config = mqadmin.run("getBrokerConfig", "-b", address);
            Map.of("brokerId", "" + (id == leader ? 0 : id + 1), "brokerRole", id == leader ? "SYNC_MASTER" : "SLAVE",
                "enableDLegerCommitLog", "true", "dLegerSelfId", "n" + id
            ).forEach((key, value) -> config.check(config.rowsWith(key, "=", value).size() == 1, key + " should be " + value));
        }

        mqadmin.run("deleteTopic", "-t", s.topic(), "-c", Shop.CLUSTER).prints(
            "delete topic [" + s.topic() + "] from cluster [DefaultCluster] success.",
            "delete topic [" + s.topic() + "] from NameServer success.");
        group.awaitEverywhere("no topic " + s.topic(), address -> !group.hasTopic(address, s.topic()));
        mqadmin.run("topicRoute", "-t", s.topic()).fails("CODE: 17");
    }

    // A killed leader

    private static void leaderDies(Scenario s) throws Exception {
        Group group = new Group(s);
        group.awaitMembers();
        int old = group.leader();
        // Made at the old leader: the new one has it too.
        group.mqadmin.run("updateTopic", "-b", group.address(old), "-t", s.topic(), "-r", "" + QUEUES, "-w", "" + QUEUES)
            .contains("success");
        DefaultMQProducer producer = group.producer(s.group("producer"));
        Check.await(60, "a route", () -> queues(producer, s.topic()) == QUEUES);
        int sent = 10;
        for (int number = 0; number < sent; number++) {
            for (int queue = 0; queue < QUEUES; queue++) {
                send(producer, s.topic(), queue, body(queue, number));
            }
        }
        // A group that is away while the leader dies goes on where it was.
        String early = s.group("early");
        Inbox before = new Inbox();
        DefaultMQPushConsumer consumer = group.consume(early, s.topic(), before);
        before.await(sent * QUEUES, 60);
        consumer.shutdown();
        int expected = sent;
        group.awaitEverywhere("progress of " + early, address -> group.committed(address, early, s.topic())
            .equals(Map.of(0, (long) expected, 1, (long) expected, 2, (long) expected, 3, (long) expected)));

        Inbox concurrent = new Inbox();
        Inbox orderly = new Inbox();
        group.consume(s.group("concurrent"), s.topic(), concurrent);
        group.consumeOrderly(s.group("orderly"), s.topic(), orderly);
        Sender sender = new Sender(producer, s.topic(), sent);
        sender.await(100, 60);
        Environment.servers("kill", group.server(old));
        int acknowledged = sender.count();
        // The client looks for a new master every thirty seconds.
        sender.await(acknowledged + 200, 90);
        List<Integer> numbers = sender.stop();

        int leader = group.leader();
        Check.that(leader != old, "the killed broker is still the master");
        Environment.servers("start", group.server(old));
        group.awaitMembers();
        Check.equal(leader, group.leader(), "leader after the return of the old one");

        for (Inbox inbox : List.of(concurrent, orderly)) {
            Check.eventually(90, () -> {
                for (int queue = 0; queue < QUEUES; queue++) {
                    Check.equal(bodies(queue, 0, numbers.get(queue)), firstDeliveries(inbox, queue, inbox == orderly), "of queue " + queue);
                }
            });
        }
        Inbox after = new Inbox();
        group.consume(early, s.topic(), after);
        Check.eventually(60, () -> {
            for (int queue = 0; queue < QUEUES; queue++) {
                Check.equal(bodies(queue, sent, numbers.get(queue)), firstDeliveries(after, queue, false), "of queue " + queue);
            }
        });
        // All progress arrives, at the new leader and at the member that was away.
        group.awaitEverywhere("all progress", address -> {
            Map<Integer, Long> committed = group.committed(address, s.group("orderly"), s.topic());
            return committed.size() == QUEUES && committed.equals(group.committed(address, s.group("concurrent"), s.topic()))
                && committed.equals(group.committed(address, early, s.topic())) && committed.equals(group.ends(leader, s.topic()));
        });
    }

    private static String body(int queue, int number) {
        return "%d-%05d".formatted(queue, number);
    }

    private static List<String> bodies(int queue, int from, int to) {
        return IntStream.range(from, to).mapToObj(number -> body(queue, number)).toList();
    }

    /**
     * The messages of a queue in the order in which they were delivered first; sorted unless the order counts. An unanswered send and what
     * was consumed after the last commit come twice.
     */
    private static List<String> firstDeliveries(Inbox inbox, int queue, boolean inOrder) {
        var bodies = inbox.messages().stream().filter(message -> message.getQueueId() == queue).map(Inbox::body).distinct();
        return inOrder ? bodies.toList() : bodies.sorted().toList();
    }

    private static void send(DefaultMQProducer producer, String topic, int queue, String body) throws Exception {
        Message message = new Message(topic, body.getBytes());
        Check.equal(SendStatus.SEND_OK, producer.send(message, new MessageQueue(topic, NAME, queue)).getSendStatus(), "status of " + body);
    }

    private static int queues(DefaultMQProducer producer, String topic) {
        try {
            return producer.fetchPublishMessageQueues(topic).size();
        } catch (MQClientException noRouteYet) {
            return 0;
        }
    }

    /** Sends to all queues in turn, each message until it is acknowledged. */
    private static final class Sender {
        private final int first;
        private final CompletableFuture<Void> end;
        private volatile int count;
        private volatile boolean isStopped;

        Sender(DefaultMQProducer producer, String topic, int first) {
            this.first = first;
            end = CompletableFuture.runAsync(() -> {
                while (!isStopped) {
                    int queue = count % QUEUES;
                    sendUntilAcknowledged(producer, topic, queue, body(queue, first + count / QUEUES));
                    count++;
                }
            });
        }

        private void sendUntilAcknowledged(DefaultMQProducer producer, String topic, int queue, String body) {
            while (!isStopped) {
                try {
                    send(producer, topic, queue, body);
                    return;
                } catch (MQBrokerException | MQClientException | RemotingException notNow) {
                    pause();
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            }
        }

        private static void pause() {
            try {
                Thread.sleep(50);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        int count() {
            return count;
        }

        void await(int wanted, int seconds) throws Exception {
            Check.await(seconds, wanted + " sends are acknowledged", () -> {
                Check.that(!end.isCompletedExceptionally(), "%s", end);
                return count >= wanted;
            });
        }

        /** How many messages each queue has now. */
        List<Integer> stop() {
            isStopped = true;
            end.join();
            return IntStream.range(0, QUEUES).mapToObj(queue -> first + (count + QUEUES - 1 - queue) / QUEUES).toList();
        }
    }

    @FunctionalInterface
    private interface Condition {
        boolean holds(String address) throws Exception;
    }

    /** The group that `interop/run` has started, and its clients. */
    private static final class Group {
        final Mqadmin mqadmin;
        private final Scenario scenario;
        private final DefaultMQAdminExt admin = new DefaultMQAdminExt();

        Group(Scenario s) throws Exception {
            scenario = s;
            mqadmin = new Mqadmin(s.namesrv());
            admin.setNamesrvAddr(s.namesrv());
            admin.setInstanceName(s.topic());
            admin.start();
            s.closing(admin::shutdown);
        }

        String server(int id) {
            return "broker-" + id;
        }

        String address(int id) throws Exception {
            return Environment.address(server(id));
        }

        /** The member that clusterList shows with id 0, once there is one that runs. */
        int leader() throws Exception {
            int[] found = {-1};
            Check.await(60, "a master", () -> {
                List<List<String>> rows = mqadmin.run("clusterList").rowsWith(Shop.CLUSTER, NAME, "0");
                for (int id = 0; id < MEMBERS; id++) {
                    String address = address(id);
                    if (Environment.directory(server(id)).resolve("pid").toFile().exists()
                        && rows.stream().anyMatch(row -> row.get(3).equals(address))) {
                        found[0] = id;
                    }
                }
                return found[0] >= 0;
            });
            return found[0];
        }

        /** Until clusterList shows one member with id 0, the others with their own. */
        void awaitMembers() throws Exception {
            Check.eventually(60, () -> {
                int leader = leader();
                Mqadmin.Output list = mqadmin.run("clusterList");
                for (int id = 0; id < MEMBERS; id++) {
                    list.rowWith(Shop.CLUSTER, NAME, "" + (id == leader ? 0 : id + 1), address(id));
                }
                list.check(list.rowsWith(Shop.CLUSTER, NAME).size() == MEMBERS, MEMBERS + " members");
            });
        }

        /** Members that do not lead copy tables every ten seconds. */
        void awaitEverywhere(String what, Condition condition) throws Exception {
            for (int id = 0; id < MEMBERS; id++) {
                String address = address(id);
                Check.await(60, what + " at n" + id, () -> condition.holds(address));
            }
        }

        boolean hasTopic(String address, String topic) throws Exception {
            return admin.getAllTopicConfig(address, 10_000).getTopicConfigTable().containsKey(topic);
        }

        /** Progress of a group at one member, by queue. */
        Map<Integer, Long> committed(String address, String group, String topic) throws Exception {
            Map<Integer, Long> offsets = new TreeMap<>();
            admin.examineConsumeStats(address, group, topic, 10_000).getOffsetTable()
                .forEach((queue, offset) -> offsets.put(queue.getQueueId(), offset.getConsumerOffset()));
            return offsets;
        }

        /** Where the queues end at one member. */
        Map<Integer, Long> ends(int id, String topic) throws Exception {
            Map<Integer, Long> ends = new TreeMap<>();
            admin.examineTopicStats(address(id), topic).getOffsetTable()
                .forEach((queue, offset) -> ends.put(queue.getQueueId(), offset.getMaxOffset()));
            return ends;
        }

        DefaultMQProducer producer(String group) throws Exception {
            DefaultMQProducer producer = new DefaultMQProducer(group);
            producer.setNamesrvAddr(scenario.namesrv());
            producer.start();
            scenario.closing(producer::shutdown);
            return producer;
        }

        DefaultMQPushConsumer consume(String group, String topic, Inbox inbox) throws Exception {
            DefaultMQPushConsumer consumer = consumer(group, topic);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(inbox::add);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            return consumer;
        }

        void consumeOrderly(String group, String topic, Inbox inbox) throws Exception {
            DefaultMQPushConsumer consumer = consumer(group, topic);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(inbox::add);
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
        }

        private DefaultMQPushConsumer consumer(String group, String topic) throws Exception {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
            consumer.setNamesrvAddr(scenario.namesrv());
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            scenario.closing(consumer::shutdown);
            return consumer;
        }
    }
}
