package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Every way of sending; what was stored is read back with plain pulls. */
final class SendScenarios {
    private SendScenarios() { }

    static List<String> bodies(String prefix, int count) {
        return IntStream.range(0, count).mapToObj(i -> String.format("%s %04d", prefix, i)).toList();
    }

    static void sync(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        Map<String, SendResult> results = new HashMap<>();
        for (int i = 0; i < 20; i++) {
            Message message = new Message(s.topic(), "tag" + i % 3, "key" + i, ("sync " + i).getBytes(StandardCharsets.UTF_8));
            message.setFlag(i);
            message.putUserProperty("umlaut", "größer " + i);
            SendResult result = producer.send(message);
            Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "send status");
            Check.equal(s.topic(), result.getMessageQueue().getTopic(), "topic of the result");
            results.put("sync " + i, result);
        }
        Map<Integer, List<MessageExt>> stored = s.stored(s.topic(), 20);
        Check.equal(Scenario.QUEUES, stored.size(), "queues");
        stored.forEach((queueId, messages) -> {
            Check.that(!messages.isEmpty(), "nothing in queue %d, though producers take them in turn", queueId);
            for (MessageExt message : messages) {
                SendResult result = results.remove(Inbox.body(message));
                int i = message.getFlag();
                Check.equal("sync " + i, Inbox.body(message), "body");
                Check.equal(queueId, result.getMessageQueue().getQueueId(), "queue of the result");
                Check.equal(message.getQueueOffset(), result.getQueueOffset(), "queue offset of the result");
                Check.equal(message.getMsgId(), result.getMsgId(), "unique id");
                Check.equal("tag" + i % 3, message.getTags(), "tag");
                Check.equal("key" + i, message.getKeys(), "key");
                Check.equal("größer " + i, message.getUserProperty("umlaut"), "user property");
                Check.equal(0, message.getReconsumeTimes(), "reconsume times");
                Check.between(0, 60_000, message.getStoreTimestamp() - message.getBornTimestamp(), "store time - born time");
            }
        });
        Check.that(results.isEmpty(), "not stored: %s", results);
    }

    static void async(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        int count = 100;
        Set<String> ids = new HashSet<>();
        List<Throwable> errors = new ArrayList<>();
        CountDownLatch answered = new CountDownLatch(count);
        for (String body : bodies("async", count)) {
            producer.send(s.message(body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    synchronized (ids) {
                        ids.add(result.getMsgId());
                    }
                    answered.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    synchronized (ids) {
                        errors.add(e);
                    }
                    answered.countDown();
                }
            });
        }
        Check.that(answered.await(60, TimeUnit.SECONDS), "%d callbacks missing", answered.getCount());
        Check.equal(List.of(), errors, "errors");
        Check.equal(count, ids.size(), "distinct ids");
        Check.equal(bodies("async", count), s.storedBodies(s.topic(), count), "stored");
    }

    static void oneway(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        for (String body : bodies("oneway", 20)) {
            producer.sendOneway(s.message(body));
        }
        Check.equal(bodies("oneway", 20), s.storedBodies(s.topic(), 20), "stored");
    }

    static void batch(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        List<String> bodies = bodies("batch", 10);
        SendResult result = producer.send(bodies.stream().map(s::message).toList());
        Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "send status");
        Check.equal(10, result.getMsgId().split(",").length, "ids in the result");
        List<MessageExt> stored = s.stored(s.topic(), 10).get(result.getMessageQueue().getQueueId());
        Check.equal(bodies, stored.stream().map(Inbox::body).toList(), "messages in one queue in order");
        Check.equal(Arrays.asList(result.getOffsetMsgId().split(",")),
            stored.stream().map(Inbox::offsetId).toList(), "offset ids");
    }

    static void large(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        byte[] compressible = "compressible ".repeat(100_000).getBytes(StandardCharsets.UTF_8);
        byte[] random = new byte[2 * 1024 * 1024];
        new Random(1).nextBytes(random);
        producer.send(new Message(s.topic(), compressible), (queues, message, arg) -> Scenario.queue(queues, 0), null);
        producer.send(new Message(s.topic(), random), (queues, message, arg) -> Scenario.queue(queues, 0), null);
        List<MessageExt> stored = s.stored(s.topic(), 2).get(0);
        Check.that(Arrays.equals(compressible, stored.get(0).getBody()), "compressed body differs");
        Check.that(stored.get(0).getStoreSize() < compressible.length / 10, "stored without compression");
        Check.that(Arrays.equals(random, stored.get(1).getBody()), "random body differs");
    }

    static void selector(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        List<String> bodies = bodies("selector", 12);
        for (SendResult result : s.send(producer, 2, bodies)) {
            Check.equal(2, result.getMessageQueue().getQueueId(), "queue of the result");
        }
        List<MessageExt> stored = s.stored(s.topic(), 12).get(2);
        Check.equal(bodies, stored.stream().map(Inbox::body).toList(), "queue 2 in order");
    }

    static void delayLevel(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        Map<String, Integer> levels = Map.of("1 s", 1, "5 s", 2);
        Map<String, Long> millis = Map.of("1 s", 1000L, "5 s", 5000L);
        Inbox inbox = new Inbox();
        s.consume(s.group(), inbox);
        for (Map.Entry<String, Integer> level : levels.entrySet()) {
            Message message = s.message(level.getKey());
            message.setDelayTimeLevel(level.getValue());
            Check.equal(SendStatus.SEND_OK, producer.send(message).getSendStatus(), "send status");
        }
        inbox.awaitExactly(levels.keySet(), 60);
        for (MessageExt message : inbox.messages()) {
            String body = Inbox.body(message);
            long delay = millis.get(body);
            Check.equal(s.topic(), message.getTopic(), "topic");
            Check.equal(levels.get(body), message.getDelayTimeLevel(), "level kept in the message");
            Check.between(delay, delay + 20_000, message.getStoreTimestamp() - message.getBornTimestamp(), "delay of " + body);
        }
    }
}
