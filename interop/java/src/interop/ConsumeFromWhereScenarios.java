package interop;

import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Where a group without progress starts. */
final class ConsumeFromWhereScenarios {
    private ConsumeFromWhereScenarios() { }

    /** In a topic so young that its first message is still in memory it starts with that, whatever it asks for. */
    static void youngTopic(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        List<String> bodies = SendScenarios.bodies("young", 8);
        s.send(producer, bodies);
        start(s, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, "20200101000000").awaitExactly(bodies, 60);
    }

    /**
     * In a topic whose oldest messages are deleted it starts where it asks to. This needs a broker with files of 1 MiB in its commit
     * log that deletes each when it is full. A real one begins with that a minute after its start.
     */
    static void oldTopic(Scenario s) throws Exception {
        s.useNamesrv(Environment.address("small-files-namesrv"));
        DefaultMQProducer producer = s.producer();
        int oldest = fillFirstFile(s, producer);
        List<String> old = SendScenarios.bodies("old", 12);
        List<String> recent = SendScenarios.bodies("recent", 12);
        s.send(producer, 0, old);
        // A consumer's time stamp counts in seconds.
        Thread.sleep(2100);
        String timestamp = new SimpleDateFormat("yyyyMMddHHmmss").format(new Date());
        Thread.sleep(100);
        s.send(producer, 0, recent);
        DefaultMQPullConsumer reader = s.pullConsumer(s.group("reader"));
        MessageQueue queue = Scenario.queue(reader.fetchSubscribeMessageQueues(s.topic()), 0);
        Check.await(120, "the first messages are deleted", () -> reader.minOffset(queue) > 0);
        long min = reader.minOffset(queue);
        Check.that(min < oldest, "only full files are deleted: minimum %d", min);

        Inbox fromFirst = start(s, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, timestamp);
        Inbox fromTimestamp = start(s, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, timestamp);
        Inbox fromLast = start(s, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, timestamp);
        fromFirst.await((int) (oldest - min) + 24, 60);
        fromTimestamp.await(12, 60);
        // When the last one has found its place can only be seen by what it receives.
        List<String> later = new ArrayList<>();
        Check.await(60, "the consumer from the last offset receives something", () -> {
            String body = "later " + later.size();
            later.add(body);
            s.send(producer, 0, List.of(body));
            Thread.sleep(200);
            return fromLast.size() > 0;
        });

        List<String> expected = new ArrayList<>(recent);
        expected.addAll(later);
        fromTimestamp.awaitExactly(expected, 60);
        expected.addAll(0, old);
        fromFirst.await((int) (oldest - min) + expected.size(), 60);
        Check.equal(min, fromFirst.messages().stream().mapToLong(MessageExt::getQueueOffset).min().getAsLong(), "first offset");
        Check.sameElements(expected, fromFirst.bodies().stream().filter(expected::contains).toList(), "from the first");
        Check.that(later.containsAll(fromLast.bodies()), "from the last: %s", fromLast.bodies());
    }

    /** Sends 1.6 MB in large messages to queue 0, so that the first file of 1 MiB is full and there is room in the second. */
    private static int fillFirstFile(Scenario s, DefaultMQProducer producer) throws Exception {
        Random random = new Random(1);
        int count = 16;
        for (int i = 0; i < count; i++) {
            byte[] body = new byte[100_000];
            random.nextBytes(body);
            SendResult result = producer.send(new Message(s.topic(), body), (queues, m, arg) -> Scenario.queue(queues, 0), null);
            Check.equal((long) i, result.getQueueOffset(), "queue offset");
        }
        return count;
    }

    private static Inbox start(Scenario s, ConsumeFromWhere where, String timestamp) throws Exception {
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = s.pushConsumer(s.group(where.name()));
        consumer.setConsumeFromWhere(where);
        consumer.setConsumeTimestamp(timestamp);
        consumer.subscribe(s.topic(), "*");
        consumer.registerMessageListener(Scenario.receiveInto(inbox));
        consumer.start();
        return inbox;
    }
}
