package interop.admin;

import interop.Check;
import interop.Environment;
import interop.Inbox;
import interop.Scenario;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A store directory with a broker on it, and what must be in it: every message exactly as it was when it was first read, every
 * configuration and every committed offset. {@link #write} adds some of everything, {@link #check} looks whether all is still there.
 */
final class SharedStore {
    enum Hosts { IPV4, IPV6 }

    /** Of topic `plain`. */
    private static final int QUEUES = 3;
    private static final int PLAIN_MESSAGES = 150;
    private static final int TIMEOUT_MILLIS = 10_000;
    /** Level 2 is for messages that wait while the broker is down, level 3 for ones that never come. */
    private static final String DELAY_LEVELS = "messageDelayLevel=1s 8s 2h";
    private static final long WAITING_MILLIS = 8_000;
    /** Several files of everything. */
    private static final List<String> SMALL_FILES = List.of("mappedFileSizeCommitLog=131072", "mappedFileSizeConsumeQueue=800",
        "mapperFileSizeBatchConsumeQueue=460", "maxHashSlotNum=100", "maxIndexNum=400");
    private static final List<String> SOON_ON_DISK = List.of("flushConsumerOffsetInterval=1000", "flushDelayOffsetInterval=1000");

    private final Scenario scenario;
    private final String server;
    private final String plain;
    private final String delayed;
    private final String retried;
    private final String group;
    private final String retryGroup;
    private String light;
    private String batched;

    private final DefaultMQAdminExt admin = new DefaultMQAdminExt();
    private final DefaultMQProducer producer;
    private final DefaultMQPullConsumer reader;

    private int turn;
    /** Of the broker that has this turn. */
    private String kind;
    private boolean deliversAgain;
    private final Map<MessageQueue, List<MessageExt>> messages = new HashMap<>();
    private final Map<MessageQueue, Long> ends = new HashMap<>();
    private final Map<MessageQueue, Long> committed = new HashMap<>();
    /** Delayed messages that were not delivered when the broker ended: body to the time before which they must not come. */
    private final Map<String, Long> waiting = new HashMap<>();
    private Map<String, String> topicConfigs = Map.of();
    private Map<String, String> groupConfigs = Map.of();

    SharedStore(Scenario scenario, Hosts hosts, List<String> settings) throws Exception {
        this.scenario = scenario;
        plain = scenario.topic();
        delayed = scenario.topic() + "-delayed";
        retried = scenario.topic() + "-retried";
        group = scenario.group("reading");
        retryGroup = scenario.group("retrying");
        server = plain + "-broker";
        List<String> lines = new ArrayList<>(List.of("namesrvAddr=" + Environment.NAMESRV, "brokerName=" + server, DELAY_LEVELS));
        if (hosts == Hosts.IPV6) {
            lines.addAll(List.of("brokerIP1=::1", "brokerIP2=::1", "bindAddress=::"));
        }
        lines.addAll(SMALL_FILES);
        lines.addAll(SOON_ON_DISK);
        lines.addAll(settings);
        List<String> arguments = new ArrayList<>(List.of("ferromq"));
        arguments.addAll(lines);
        Environment.servers("create", server, arguments.toArray(String[]::new));

        admin.setNamesrvAddr(Environment.NAMESRV);
        admin.setInstanceName(plain);
        admin.start();
        scenario.closing(admin::shutdown);
        producer = new DefaultMQProducer(scenario.group("producer"));
        producer.setNamesrvAddr(Environment.NAMESRV);
        producer.setSendMsgTimeout(TIMEOUT_MILLIS);
        producer.start();
        scenario.closing(producer::shutdown);
        reader = scenario.pullConsumer(group);
    }

    /** From now on there are light queues too. */
    void withLightQueues() {
        light = plain + "-light";
    }

    /** From now on there is a topic whose batches are one record each. */
    void withInnerBatches() {
        batched = plain + "-batched";
    }

    String server() {
        return server;
    }

    private boolean answers() throws Exception {
        try {
            return !producer.fetchPublishMessageQueues(plain).isEmpty() && reader.maxOffset(queue(plain, 0)) >= 0 && !topicConfigs().isEmpty();
        } catch (RemotingException | MQClientException connectionsOfTheLastTurn) {
            return false;
        }
    }

    private boolean isRegistered() throws Exception {
        return admin.examineBrokerClusterInfo().getBrokerAddrTable().containsKey(server);
    }

    private String address() throws Exception {
        return admin.examineBrokerClusterInfo().getBrokerAddrTable().get(server).getBrokerAddrs().get(MixAll.MASTER_ID);
    }

    /** Starts a broker of some kind. One that was killed before may deliver again what it had delivered, if `deliversAgain`. */
    void start(String kind, boolean deliversAgain) throws Exception {
        turn++;
        this.deliversAgain = deliversAgain;
        this.kind = kind;
        Environment.servers("become", server, kind);
        Environment.servers("start", server);
        Check.await(60, "the broker has registered", this::isRegistered);
        if (turn == 1) {
            createTopicsAndGroups();
        }
        Check.await(60, "the topic has a route and the broker answers", this::answers);
    }

    private void createTopicsAndGroups() throws Exception {
        createTopic(plain, QUEUES, Map.of());
        createTopic(delayed, 1, Map.of());
        createTopic(retried, 1, Map.of());
        if (light != null) {
            createTopic(light, 2, Map.of());
        }
        if (batched != null) {
            createTopic(batched, 1, Map.of("+queue.type", "BatchCQ"));
        }
        for (String name : List.of(group, retryGroup)) {
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName(name);
            config.setRetryMaxTimes(7);
            config.setConsumeBroadcastEnable(false);
            config.setWhichBrokerWhenConsumeSlowly(0);
            admin.createAndUpdateSubscriptionGroupConfig(address(), config);
        }
    }

    private void createTopic(String name, int queues, Map<String, String> attributes) throws Exception {
        TopicConfig config = new TopicConfig(name, queues, queues);
        config.setAttributes(attributes);
        admin.createAndUpdateTopicConfig(address(), config);
    }

    // What is written

    /** Some of everything, and reads it once. */
    void write() throws Exception {
        writePlain();
        writeDelayed(1, "soon");
        writeRetried();
        if (light != null) {
            writeLight();
        }
        if (batched != null) {
            writeInnerBatches();
        }
        awaitDelivered("soon " + turn);
        look();
        for (int queueId = 0; queueId < QUEUES; queueId++) {
            MessageQueue queue = queue(plain, queueId);
            commit(queue, ends.get(queue) - queueId);
        }
        topicConfigs = topicConfigs();
        groupConfigs = groupConfigs();
    }

    private void writePlain() throws Exception {
        Random random = new Random(turn);
        for (int i = 0; i < PLAIN_MESSAGES; i++) {
            MessageQueue queue = queue(plain, i % QUEUES);
            byte[] body = body(random, i);
            Message message = new Message(plain, i % 2 == 0 ? "even" : "ungerade ü", "key-" + turn + "-" + i + " turn-" + turn, body);
            message.setFlag(i);
            message.putUserProperty("number", String.valueOf(i));
            expectNext(queue, producer.send(message, queue));
            if (i % 50 == 20) {
                List<Message> batch = new ArrayList<>();
                for (int j = 0; j < 5; j++) {
                    batch.add(new Message(plain, "batch", "batch-" + turn + "-" + i + "-" + j, ("batch " + i + " " + j).getBytes()));
                }
                expectNext(queue, producer.send(batch, queue));
                ends.merge(queue, 4L, Long::sum);
            }
        }
    }

    /** Some are long enough to be compressed by the client; some of those can't be. */
    private static byte[] body(Random random, int i) {
        if (i % 30 != 29) {
            return ("message " + i).getBytes(StandardCharsets.UTF_8);
        }
        byte[] body = new byte[20_000];
        if (i % 60 == 29) {
            random.nextBytes(body);
        }
        return body;
    }

    /** The message was stored, behind the last one. */
    private void expectNext(MessageQueue queue, SendResult result) {
        Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "send status");
        Check.equal(ends.getOrDefault(queue, 0L), result.getQueueOffset(), "offset of a new message in " + queue);
        ends.merge(queue, 1L, Long::sum);
    }

    private void writeDelayed(int level, String name) throws Exception {
        Message message = new Message(delayed, (name + " " + turn).getBytes());
        message.setDelayTimeLevel(level);
        producer.send(message);
    }

    private void awaitDelivered(String body) throws Exception {
        MessageQueue queue = queue(delayed, 0);
        Check.await(30, "delivery of " + body, () -> read(queue).stream().anyMatch(m -> Inbox.body(m).equals(body)));
    }

    /** One message succeeds when it comes again, one is dead after the first failure. */
    private void writeRetried() throws Exception {
        List<String> expected = new ArrayList<>(List.of("again " + turn, "again " + turn, "dead " + turn));
        for (String body : expected.subList(1, 3)) {
            expectNext(queue(retried, 0), producer.send(new Message(retried, body.getBytes()), queue(retried, 0)));
        }
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scenario.pushConsumer(retryGroup);
        consumer.setInstanceName(retryGroup + turn);
        consumer.subscribe(retried, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
            list.forEach(inbox::add);
            context.setDelayLevelWhenNextConsume(Inbox.body(list.get(0)).startsWith("dead") ? -1 : 1);
            return list.get(0).getReconsumeTimes() > 0 ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        // Nothing that was consumed in an earlier turn, unless it was delivered again.
        List<String> earlier = IntStream.range(1, turn).mapToObj(i -> "again " + i).toList();
        Check.eventually(60, () -> Check.sameElements(expected,
            inbox.bodies().stream().filter(body -> !deliversAgain || !earlier.contains(body)).toList(), "received"));
        committed.put(queue(retried, 0), ends.get(queue(retried, 0)));
        committed.put(queue("%RETRY%" + retryGroup, 0), admin.maxOffset(queue("%RETRY%" + retryGroup, 0)));
        Check.eventually(30, this::checkOffsets);
        consumer.shutdown();
    }

    private void writeLight() throws Exception {
        for (int i = 0; i < 50; i++) {
            Message message = new Message(light, "even", ("light " + turn + " " + i).getBytes());
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_MULTI_DISPATCH,
                i % 2 == 0 ? lightQueue("a").getTopic() : lightQueue("a").getTopic() + "," + lightQueue("b").getTopic());
            expectNext(queue(light, i % 2), producer.send(message, queue(light, i % 2)));
        }
        commit(lightQueue("a"), 10 + turn);
    }

    private MessageQueue lightQueue(String name) {
        return queue("%LMQ%" + light + name, 0);
    }

    private void writeInnerBatches() throws Exception {
        MessageQueue queue = queue(batched, 0);
        for (int i = 0; i < 20; i++) {
            List<Message> batch = new ArrayList<>();
            for (int j = 0; j <= i % 4; j++) {
                batch.add(new Message(batched, "tag", "inner-" + turn + "-" + i, ("inner " + i + " " + j).getBytes()));
            }
            expectNext(queue, i % 5 == 4 ? producer.send(batch.get(0), queue) : producer.send(batch, queue));
            ends.merge(queue, i % 5 == 4 ? 0L : batch.size() - 1, Long::sum);
        }
    }

    private void commit(MessageQueue queue, long offset) throws Exception {
        admin.updateConsumeOffset(address(), readBy(queue.getTopic()), queue, offset);
        committed.put(queue, offset);
    }

    /** The group that commits offsets of a topic. */
    private String readBy(String topic) {
        return topic.startsWith("%LMQ%") ? "%LMQ%" + group : topic.endsWith(retried) || topic.endsWith(retryGroup) ? retryGroup : group;
    }

    /** The last thing before the broker's end. */
    void prepareForEnd(boolean killed) throws Exception {
        if (killed) {
            // What a broker has in memory only is lost with it; every second it is saved, after the first ten seconds.
            Check.await(30, "offsets on disk", () -> offsetsOnDisk().entrySet().containsAll(expectedOffsetsOnDisk().entrySet()));
        }
        writeDelayed(3, "never");
        writeDelayed(2, "late");
        waiting.put("late " + turn, System.currentTimeMillis() + WAITING_MILLIS - 100);
    }

    private Map<String, Long> expectedOffsetsOnDisk() {
        Map<String, Long> expected = new TreeMap<>();
        committed.forEach((queue, offset) -> {
            if (!queue.getTopic().startsWith("%LMQ%")) {
                expected.put(queue.getTopic() + "@" + readBy(queue.getTopic()) + "-" + queue.getQueueId(), offset);
            }
        });
        return expected;
    }

    private Map<String, Long> offsetsOnDisk() throws Exception {
        Path config = Environment.directory(server).resolve("store/config");
        Map<String, Long> found = new TreeMap<>();
        Path file = config.resolve(light == null ? "consumerOffset.json" : "lmqConsumerOffset.json");
        ConsumerOffsetSerializeWrapper table = null;
        try {
            table = RemotingSerializable.fromJson(Files.readString(file), ConsumerOffsetSerializeWrapper.class);
        } catch (NoSuchFileException | RuntimeException notWhole) {
            // As below.
        }
        if (table == null) {
            // Not written yet; or this very moment: RocketMQ 4.9 deletes the file and then renames the new one, 5.3 writes over it.
            return found;
        }
        table.getOffsetTable().forEach((key, queues) -> queues.forEach((queueId, offset) -> found.put(key + "-" + queueId, offset)));
        return found;
    }

    // What is checked

    /** Everything from the turns before is there. */
    void check() throws Exception {
        if (turn == 1) {
            return;
        }
        Check.equal(topicConfigs, topicConfigs(), "topics");
        Check.equal(groupConfigs, groupConfigs(), "groups");
        checkOffsets();
        checkDelivery();
        look();
        checkTags();
        checkLookUps();
    }

    /** Reads every queue: what was read before must be as it was, and there may be new messages only where delayed ones arrive. */
    private void look() throws Exception {
        for (MessageQueue queue : queues()) {
            List<MessageExt> known = messages.getOrDefault(queue, List.of());
            List<MessageExt> found = read(queue);
            for (int i = 0; i < found.size(); i++) {
                if (i < known.size()) {
                    Check.equal(text(known.get(i)), text(found.get(i)), queue + " message " + i);
                }
                Check.equal((long) i, offsetIn(queue, found.get(i)), queue + ": queue offset");
            }
            Check.that(found.size() >= known.size(), "%s: %d messages, had %d", queue, found.size(), known.size());
            if (ends.containsKey(queue)) {
                Check.equal(ends.get(queue), (long) found.size(), "messages in " + queue);
            }
            Check.equal(0L, admin.minOffset(queue), "first offset of " + queue);
            Check.equal((long) found.size(), admin.maxOffset(queue), "end of " + queue);
            messages.put(queue, found);
        }
    }

    private List<MessageQueue> queues() {
        List<MessageQueue> queues = new ArrayList<>();
        for (int queueId = 0; queueId < QUEUES; queueId++) {
            queues.add(queue(plain, queueId));
        }
        queues.add(queue(delayed, 0));
        queues.add(queue(retried, 0));
        queues.add(queue("%RETRY%" + retryGroup, 0));
        queues.add(queue("%DLQ%" + retryGroup, 0));
        if (light != null) {
            queues.addAll(List.of(queue(light, 0), queue(light, 1), lightQueue("a"), lightQueue("b")));
        }
        if (batched != null) {
            queues.add(queue(batched, 0));
        }
        return queues;
    }

    private MessageQueue queue(String topic, int queueId) {
        return new MessageQueue(topic, server, queueId);
    }

    private List<MessageExt> read(MessageQueue queue) throws Exception {
        return read(queue, "*");
    }

    private List<MessageExt> read(MessageQueue queue, String tags) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        long offset = 0;
        while (true) {
            PullResult result = reader.pull(queue, tags, offset, 32);
            if (result.getPullStatus() == PullStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
            } else if (result.getPullStatus() != PullStatus.NO_MATCHED_MSG) {
                return found;
            }
            offset = result.getNextBeginOffset();
        }
    }

    private long offsetIn(MessageQueue queue, MessageExt message) {
        if (!queue.getTopic().startsWith("%LMQ%")) {
            return message.getQueueOffset();
        }
        List<String> names = List.of(message.getProperty(MessageConst.PROPERTY_INNER_MULTI_DISPATCH).split(","));
        String[] offsets = message.getProperty(MessageConst.PROPERTY_INNER_MULTI_QUEUE_OFFSET).split(",");
        return Long.parseLong(offsets[names.indexOf(queue.getTopic())]);
    }

    /** All that is stored of a message. */
    private static String text(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        // Added by the reading client.
        properties.remove(MessageConst.PROPERTY_MIN_OFFSET);
        properties.remove(MessageConst.PROPERTY_MAX_OFFSET);
        return String.join(" ", message.getTopic(), "" + message.getQueueId(), "" + message.getQueueOffset(), "" + message.getCommitLogOffset(),
            "" + message.getStoreSize(), "" + message.getFlag(), "" + message.getSysFlag(), "" + message.getBornTimestamp(),
            "" + message.getBornHost(), "" + message.getStoreTimestamp(), "" + message.getStoreHost(), "" + message.getReconsumeTimes(),
            "" + message.getPreparedTransactionOffset(), "" + message.getBodyCRC(), "" + Arrays.hashCode(message.getBody()), "" + properties);
    }

    private void checkOffsets() throws Exception {
        for (Map.Entry<MessageQueue, Long> each : committed.entrySet()) {
            String by = readBy(each.getKey().getTopic());
            Check.equal(each.getValue(), offset(by, each.getKey()), "offset of " + by + " in " + each.getKey());
        }
    }

    private long offset(String group, MessageQueue queue) throws Exception {
        QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(queue.getTopic());
        header.setQueueId(queue.getQueueId());
        return admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl().queryConsumerOffset(address(), header, TIMEOUT_MILLIS);
    }

    /** What was waiting comes, once and not too early; what waits for hours does not. */
    private void checkDelivery() throws Exception {
        MessageQueue queue = queue(delayed, 0);
        for (String body : waiting.keySet()) {
            awaitDelivered(body);
        }
        List<MessageExt> known = messages.get(queue);
        List<MessageExt> found = read(queue);
        List<MessageExt> came = new ArrayList<>(found.subList(known.size(), found.size()));
        if (deliversAgain) {
            came.removeIf(message -> !waiting.containsKey(Inbox.body(message)));
            Map<String, MessageExt> once = new TreeMap<>();
            came.forEach(message -> once.put(Inbox.body(message), message));
            came = new ArrayList<>(once.values());
        }
        Check.sameElements(waiting.keySet(), came.stream().map(Inbox::body).toList(), "delivered after the start");
        for (MessageExt message : came) {
            // 4.9 does not know the delay levels yet when it recovers: what it adds to its queues then is due after a second.
            long earliest = deliversAgain && kind.equals("rocketmq-4.9.7") ? 0 : waiting.get(Inbox.body(message));
            Check.that(message.getStoreTimestamp() >= earliest, "%s came %d ms early", Inbox.body(message), earliest - message.getStoreTimestamp());
        }
        waiting.clear();
        Check.equal((long) turn - 1, admin.maxOffset(queue("SCHEDULE_TOPIC_XXXX", 2)), "messages that wait for hours");
    }

    private void checkTags() throws Exception {
        MessageQueue queue = queue(plain, 0);
        List<Long> expected = messages.get(queue).stream().filter(m -> "ungerade ü".equals(m.getTags())).map(MessageExt::getQueueOffset).toList();
        List<Long> found = read(queue, "ungerade ü").stream().map(MessageExt::getQueueOffset).toList();
        Check.equal(expected, found, "messages with a tag");
    }

    /** Some messages by key, unique id, offset id, and by time. */
    private void checkLookUps() throws Exception {
        for (MessageQueue queue : queues()) {
            List<MessageExt> stored = messages.get(queue);
            boolean system = queue.getTopic().startsWith("%");
            for (int i = 0; i < stored.size(); i += 17) {
                MessageExt message = stored.get(i);
                checkTime(queue, message.getStoreTimestamp());
                if (system || queue.getTopic().equals(batched)) {
                    continue;
                }
                Check.equal(text(message), text(admin.viewMessage(queue.getTopic(), Inbox.offsetId(message))), "by offset id");
                Check.equal(message.getMsgId(), admin.viewMessage(queue.getTopic(), message.getMsgId()).getMsgId(), "by unique id");
                if (message.getKeys() != null) {
                    Check.that(byKey(message, message.getKeys().split(" ")[0]), "not found by its key: %s", text(message));
                }
            }
            checkTime(queue, System.currentTimeMillis());
        }
    }

    /** A time finds the first message that was stored then or later. */
    private void checkTime(MessageQueue queue, long time) throws Exception {
        // 4.9 goes by the modification times of the queue's files. 5.3 finds the last batch for any later time.
        if (kind.equals("rocketmq-4.9.7") || kind.startsWith("rocketmq") && queue.getTopic().equals(batched)) {
            return;
        }
        List<MessageExt> stored = messages.get(queue);
        long before = stored.stream().filter(message -> message.getStoreTimestamp() < time).count();
        Check.equal(before, admin.searchOffset(queue, time), queue + ": offset by time " + time);
    }

    private boolean byKey(MessageExt message, String key) throws Exception {
        try {
            return admin.queryMessage(message.getTopic(), key, 32, 0, Long.MAX_VALUE).getMessageList().stream()
                .anyMatch(found -> found.getCommitLogOffset() == message.getCommitLogOffset());
        } catch (MQClientException nothingFound) {
            return false;
        }
    }

    private Map<String, String> topicConfigs() throws Exception {
        Map<String, String> configs = new TreeMap<>();
        admin.getAllTopicConfig(address(), TIMEOUT_MILLIS).getTopicConfigTable().forEach((name, config) -> {
            if (name.contains(plain) && !name.startsWith("rmq_sys_")) {
                configs.put(name, config.toString());
            }
        });
        return configs;
    }

    private Map<String, String> groupConfigs() throws Exception {
        Map<String, String> configs = new TreeMap<>();
        admin.getAllSubscriptionGroup(address(), TIMEOUT_MILLIS).getSubscriptionGroupTable().forEach((name, config) -> {
            if (name.contains(plain)) {
                configs.put(name, config.toString());
            }
        });
        return configs;
    }
}
