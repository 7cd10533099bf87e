package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
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
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.topic.TopicValidator;

/** A running scenario: its own topic and group names, and clients that are shut down at its end. */
public final class Scenario implements AutoCloseable {
    /** A broker creates a topic that does not exist with this number of queues, as clients ask for it. */
    public static final int QUEUES = 4;

    private static final int TIMEOUT_MILLIS = 20_000;

    private final String name;
    private final Deque<AutoCloseable> clients = new ArrayDeque<>();
    private String namesrv = Environment.NAMESRV;

    Scenario(String name) {
        this.name = name;
    }

    /** Clients created from now on use these name servers. */
    public void useNamesrv(String addresses) {
        namesrv = addresses;
    }

    public String namesrv() {
        return namesrv;
    }

    /** The topic of this scenario. The first message creates it. */
    public String topic() {
        return Environment.name(name);
    }

    public String group(String... suffix) {
        return Environment.name(name, String.join("-", suffix) + "-group");
    }

    /** Shuts the client down at the end of the scenario. */
    public <T extends AutoCloseable> T closing(T client) {
        clients.push(client);
        return client;
    }

    @Override
    public void close() throws Exception {
        for (AutoCloseable client : clients) {
            client.close();
        }
    }

    // Producers

    public DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group("producer"));
        configure(producer);
        producer.setSendMsgTimeout(TIMEOUT_MILLIS);
        producer.start();
        closing(producer::shutdown);
        // The broker may listen already but not be known to the name server.
        Check.await(60, "a broker has registered", () -> hasRoute(producer, TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC));
        return producer;
    }

    private static boolean hasRoute(DefaultMQProducer producer, String topic) {
        try {
            return !producer.fetchPublishMessageQueues(topic).isEmpty();
        } catch (MQClientException e) {
            return false;
        }
    }

    public Message message(String body) {
        return new Message(topic(), body.getBytes(StandardCharsets.UTF_8));
    }

    /** Sends one message for each body and expects it to be stored. */
    public List<SendResult> send(DefaultMQProducer producer, List<String> bodies) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (String body : bodies) {
            SendResult result = producer.send(message(body));
            Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "send status");
            results.add(result);
        }
        return results;
    }

    /** Sends one message for each body to one queue. */
    public List<SendResult> send(DefaultMQProducer producer, int queueId, List<String> bodies) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (String body : bodies) {
            results.add(producer.send(message(body), (queues, message, id) -> queue(queues, queueId), null));
        }
        return results;
    }

    public static MessageQueue queue(Iterable<MessageQueue> queues, int queueId) {
        for (MessageQueue queue : queues) {
            if (queue.getQueueId() == queueId) {
                return queue;
            }
        }
        throw new AssertionError("no queue " + queueId + " in " + queues);
    }

    // Consumers

    /** A push consumer, not started, that reads a topic from its beginning. */
    public DefaultMQPushConsumer pushConsumer(String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        configure(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        closing(consumer::shutdown);
        return consumer;
    }

    /** A running push consumer that receives all messages of the topic successfully. */
    public DefaultMQPushConsumer consume(String group, Inbox inbox) throws MQClientException {
        DefaultMQPushConsumer consumer = pushConsumer(group);
        consumer.subscribe(topic(), "*");
        consumer.registerMessageListener(receiveInto(inbox));
        consumer.start();
        return consumer;
    }

    public static MessageListenerConcurrently receiveInto(Inbox inbox) {
        return (messages, context) -> {
            messages.forEach(inbox::add);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    /** A lite pull consumer, not started, that commits only when told so. */
    public DefaultLitePullConsumer litePullConsumer(String group) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        configure(consumer);
        consumer.setAutoCommit(false);
        closing(consumer::shutdown);
        return consumer;
    }

    /** A running consumer for reading at any offset. */
    public DefaultMQPullConsumer pullConsumer(String group) throws MQClientException {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        configure(consumer);
        consumer.start();
        closing(consumer::shutdown);
        return consumer;
    }

    /** Reads what the broker has stored: the messages of each queue in order. Waits until there are `count`, and fails if more are. */
    public Map<Integer, List<MessageExt>> stored(String topic, int count) throws Exception {
        DefaultMQPullConsumer consumer = pullConsumer(group("reader" + clients.size()));
        Map<Integer, List<MessageExt>> messages = new TreeMap<>();
        Check.await(60, count + " messages in " + topic, () -> {
            int total = 0;
            for (MessageQueue queue : queues(consumer, topic)) {
                List<MessageExt> ofQueue = messages.computeIfAbsent(queue.getQueueId(), id -> new ArrayList<>());
                readOn(consumer, queue, ofQueue);
                total += ofQueue.size();
            }
            Check.that(total <= count, "%d messages in %s, expected %d: %s", total, topic, count, messages);
            return total == count;
        });
        return messages;
    }

    /** As `stored`, all queues together, ordered by body. */
    public List<String> storedBodies(String topic, int count) throws Exception {
        return stored(topic, count).values().stream().flatMap(List::stream).map(Inbox::body).sorted().toList();
    }

    private static Iterable<MessageQueue> queues(DefaultMQPullConsumer consumer, String topic) {
        try {
            return consumer.fetchSubscribeMessageQueues(topic);
        } catch (MQClientException noRouteYet) {
            return List.of();
        }
    }

    private static void readOn(DefaultMQPullConsumer consumer, MessageQueue queue, List<MessageExt> messages) throws Exception {
        while (true) {
            PullResult result = consumer.pull(queue, "*", messages.size(), 32);
            if (result.getPullStatus() != PullStatus.FOUND) {
                return;
            }
            for (MessageExt message : result.getMsgFoundList()) {
                Check.equal((long) messages.size(), message.getQueueOffset(), "queue offset in " + queue);
                messages.add(message);
            }
        }
    }

    private void configure(ClientConfig config) {
        config.setNamesrvAddr(namesrv);
        config.setMqClientApiTimeout(TIMEOUT_MILLIS);
        // The retry topic of a new group is created by its first heartbeat, after the consumer has asked for its route in vain;
        // with the usual 30 s the first retry could come that late.
        config.setPollNameServerInterval(1000);
        config.setPersistConsumerOffsetInterval(1000);
        // A client skips the heartbeat that announces new queues when another thread is sending one; its pulls are then refused
        // ("the subscription is not latest") until the next.
        config.setHeartbeatBrokerInterval(1000);
    }
}
