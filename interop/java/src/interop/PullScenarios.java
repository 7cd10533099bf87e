package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers, and the offsets of queues. */
final class PullScenarios {
    private PullScenarios() { }

    static void assign(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        List<String> bodies = SendScenarios.bodies("message", 30);
        s.send(producer, 1, bodies);
        s.send(producer, 2, List.of("not assigned"));

        DefaultLitePullConsumer consumer = s.litePullConsumer(s.group());
        consumer.start();
        MessageQueue queue = Scenario.queue(consumer.fetchMessageQueues(s.topic()), 1);
        consumer.assign(List.of(queue));
        // Before the first seek no pull may be under way that brings messages: the client would take them for those it has sought.
        Check.equal(bodies, poll(consumer, 30), "after assign");
        consumer.seek(queue, 10);
        Check.equal(bodies.subList(10, 30), poll(consumer, 20), "after seek to 10");
        consumer.seekToBegin(queue);
        Check.equal(bodies, poll(consumer, 30), "after seek to the beginning");
        consumer.seekToEnd(queue);
        Check.equal(List.of(), consumer.poll(1000), "after seek to the end");
        consumer.seek(queue, 5);
        Check.equal(bodies.subList(5, 30), poll(consumer, 25), "after seek to 5");
        commit(consumer, Set.of(queue), 30);

        // What is committed survives the consumer: the next one goes on there.
        s.send(producer, 1, List.of("next"));
        consumer.shutdown();
        DefaultLitePullConsumer next = s.litePullConsumer(s.group());
        next.start();
        next.assign(List.of(queue));
        Check.equal(30L, next.committed(queue), "committed offset");
        Check.equal(List.of("next"), poll(next, 1), "after the committed offset");
        Check.equal(List.of(), next.poll(1000), "nothing else");
    }

    static void subscribe(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        List<String> bodies = SendScenarios.bodies("message", 60);
        s.send(producer, bodies.subList(0, 40));
        DefaultLitePullConsumer consumer = s.litePullConsumer(s.group());
        consumer.subscribe(s.topic(), "*");
        consumer.start();
        List<String> received = new ArrayList<>(poll(consumer, 40));
        Check.equal(Scenario.QUEUES, consumer.assignment().size(), "assigned queues");
        commit(consumer, new HashSet<>(consumer.assignment()), 40);
        s.send(producer, bodies.subList(40, 60));
        received.addAll(poll(consumer, 20));
        Check.equal(List.of(), consumer.poll(1000), "nothing else");
        Check.sameElements(bodies, received, "received");
    }

    private static void commit(DefaultLitePullConsumer consumer, Set<MessageQueue> queues, long sum) throws Exception {
        consumer.commit(queues, true);
        Check.eventually(30, () -> {
            long committed = 0;
            for (MessageQueue queue : queues) {
                committed += consumer.committed(queue);
            }
            Check.equal(sum, committed, "sum of the committed offsets");
        });
    }

    private static List<String> poll(DefaultLitePullConsumer consumer, int count) throws Exception {
        List<String> bodies = new ArrayList<>();
        Check.await(60, count + " messages", () -> {
            List<MessageExt> messages = consumer.poll(500);
            messages.forEach(message -> bodies.add(Inbox.body(message)));
            return bodies.size() >= count;
        });
        return bodies;
    }

    static void queueOffsets(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        s.send(producer, 0, SendScenarios.bodies("early", 5));
        Thread.sleep(50);
        long between = System.currentTimeMillis();
        Thread.sleep(50);
        s.send(producer, 0, SendScenarios.bodies("late", 5));
        s.stored(s.topic(), 10);

        DefaultMQPullConsumer consumer = s.pullConsumer(s.group());
        Collection<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(s.topic());
        Check.equal(Scenario.QUEUES, queues.size(), "queues");
        MessageQueue queue = Scenario.queue(queues, 0);
        Check.equal(0L, consumer.minOffset(queue), "minimum");
        Check.equal(10L, consumer.maxOffset(queue), "maximum");
        Check.equal(0L, consumer.searchOffset(queue, 0), "offset of a time before the first message");
        Check.equal(5L, consumer.searchOffset(queue, between), "offset of a time between two messages");
        Check.equal(10L, consumer.searchOffset(queue, System.currentTimeMillis() + 60_000), "offset of a time to come");
        Check.between(between - 60_000, between, consumer.earliestMsgStoreTime(queue), "time of the first message");
        MessageQueue empty = Scenario.queue(queues, 3);
        Check.equal(0L, consumer.maxOffset(empty), "maximum of an empty queue");
    }
}
