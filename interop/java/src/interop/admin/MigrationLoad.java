package interop.admin;

import interop.Check;
import interop.Inbox;
import interop.Scenario;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Producers and a consumer that run while brokers are exchanged under them, and what they were promised.
 *
 * A producer sends its numbers in order and repeats a number until it is acknowledged, as an application does. Some messages are
 * delayed, and some fail when they are consumed for the first time, so that they take the way over the retry topic.
 */
final class MigrationLoad {
    private static final int PRODUCERS = 2;
    private static final int PAUSE_MILLIS = 4;
    private static final int DELAYED_EVERY = 50;
    private static final int RETRIED_EVERY = 97;
    /** Delivered after 5 s. */
    private static final int DELAY_LEVEL = 2;

    private final Scenario scenario;
    private final String group;
    private final Set<String> acknowledged = ConcurrentHashMap.newKeySet();
    private final Set<String> delayed = ConcurrentHashMap.newKeySet();
    private final Map<String, AtomicInteger> consumed = new ConcurrentHashMap<>();
    private final Set<String> failedOnce = ConcurrentHashMap.newKeySet();
    private final AtomicLong lastAcknowledgement = new AtomicLong(System.nanoTime());
    private final AtomicLong longestGap = new AtomicLong();
    private final AtomicInteger refused = new AtomicInteger();
    private final List<Thread> producers = new ArrayList<>();
    private volatile boolean stopping;

    MigrationLoad(Scenario scenario, String group) {
        this.scenario = scenario;
        this.group = group;
    }

    void start() throws Exception {
        for (int number = 0; number < PRODUCERS; number++) {
            DefaultMQProducer producer = scenario.producer();
            producer.setSendMsgTimeout(3000);
            String name = "p" + number;
            Thread thread = new Thread(() -> produce(producer, name), name);
            producers.add(thread);
            thread.start();
        }
        DefaultMQPushConsumer consumer = scenario.pushConsumer(group);
        consumer.subscribe(scenario.topic(), "*");
        consumer.registerMessageListener((List<MessageExt> messages, org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext context) -> {
            for (MessageExt message : messages) {
                String body = Inbox.body(message);
                if (number(body) % RETRIED_EVERY == 0 && failedOnce.add(body)) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                consumed.computeIfAbsent(body, any -> new AtomicInteger()).incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private void produce(DefaultMQProducer producer, String name) {
        for (int number = 0; !stopping; number++) {
            String body = name + " " + number;
            Message message = scenario.message(body);
            int queue = number % Scenario.QUEUES;
            if (number % DELAYED_EVERY == 0) {
                message.setDelayTimeLevel(DELAY_LEVEL);
                delayed.add(body);
            }
            while (!stopping) {
                try {
                    producer.send(message, (queues, any, argument) -> Scenario.queue(queues, queue), null);
                    acknowledged.add(body);
                    long now = System.nanoTime();
                    long gap = now - lastAcknowledgement.getAndSet(now);
                    longestGap.accumulateAndGet(gap, Math::max);
                    break;
                } catch (Exception e) {
                    refused.incrementAndGet();
                    pause(100);
                }
            }
            pause(PAUSE_MILLIS);
        }
    }

    int acknowledged() {
        return acknowledged.size();
    }

    /** Waits until so many more messages are acknowledged. */
    void awaitMore(int count) throws Exception {
        int target = acknowledged() + count;
        Check.await(90, count + " more acknowledged messages", () -> acknowledged() >= target);
    }

    /** The longest time without an acknowledgement since this was asked last. */
    double longestGapSeconds() {
        return longestGap.getAndSet(0) / 1e9;
    }

    int consumed() {
        return consumed.size();
    }

    int refused() {
        return refused.get();
    }

    void stopProducers() throws InterruptedException {
        stopping = true;
        for (Thread producer : producers) {
            producer.join();
        }
    }

    /** Every acknowledged message was consumed. Returns how many came more than once. */
    int checkConsumed() throws Exception {
        try {
            Check.await(120, "the rest", () -> consumed.keySet().containsAll(acknowledged));
        } catch (AssertionError e) {
            Set<String> missing = new HashSet<>(acknowledged);
            missing.removeAll(consumed.keySet());
            throw new AssertionError(missing.size() + " acknowledged messages were not consumed: " + sample(missing));
        }
        return (int) consumed.values().stream().filter(count -> count.get() > 1).count();
    }

    /** Every acknowledged message is stored, and each producer's messages lie in order. Returns how many are stored. */
    int checkStored() throws Exception {
        DefaultMQPullConsumer reader = scenario.pullConsumer(scenario.group("reader"));
        Set<String> missing = new HashSet<>(acknowledged);
        int stored = 0;
        for (MessageQueue queue : reader.fetchSubscribeMessageQueues(scenario.topic())) {
            Map<String, Integer> last = new HashMap<>();
            for (MessageExt message : read(reader, queue)) {
                String body = Inbox.body(message);
                stored++;
                missing.remove(body);
                if (!delayed.contains(body)) {
                    int before = last.getOrDefault(producer(body), -1);
                    // A repeated send may have been stored before.
                    Check.that(before <= number(body), "%s lies behind number %d in %s", body, before, queue);
                    last.put(producer(body), number(body));
                }
            }
        }
        Check.that(missing.isEmpty(), "%d acknowledged messages are not stored: %s", missing.size(), sample(missing));
        return stored;
    }

    private static List<MessageExt> read(DefaultMQPullConsumer reader, MessageQueue queue) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        long offset = reader.minOffset(queue);
        while (true) {
            PullResult result = reader.pull(queue, "*", offset, 32);
            if (result.getPullStatus() != PullStatus.FOUND) {
                Check.equal(reader.maxOffset(queue), offset, "end of " + queue);
                return messages;
            }
            for (MessageExt message : result.getMsgFoundList()) {
                Check.equal(offset++, message.getQueueOffset(), "queue offset in " + queue);
                messages.add(message);
            }
        }
    }

    private static String sample(Set<String> bodies) {
        TreeMap<String, String> sorted = new TreeMap<>();
        bodies.stream().limit(1000).forEach(body -> sorted.put(body, body));
        return sorted.keySet().stream().limit(20).toList().toString();
    }

    private static String producer(String body) {
        return body.substring(0, body.indexOf(' '));
    }

    private static int number(String body) {
        return Integer.parseInt(body.substring(body.indexOf(' ') + 1));
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
