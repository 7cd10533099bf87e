package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers that run undisturbed. */
final class PushScenarios {
    private PushScenarios() { }

    static void concurrent(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        List<String> bodies = SendScenarios.bodies("concurrent", 200);
        s.send(producer, bodies.subList(0, 100));
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = s.consume(s.group(), inbox);
        inbox.await(100, 60);
        s.send(producer, bodies.subList(100, 200));
        inbox.awaitExactly(bodies, 60);

        // What it has consumed is known to the broker. (Asked as a member of the group, so not before the consumer has left.)
        consumer.shutdown();
        DefaultMQPullConsumer asGroup = s.pullConsumer(s.group());
        Check.eventually(30, () -> {
            for (MessageQueue queue : asGroup.fetchSubscribeMessageQueues(s.topic())) {
                Check.equal(asGroup.maxOffset(queue), asGroup.fetchConsumeOffset(queue, true), "committed offset of " + queue);
            }
        });
    }

    /** Orders are kept through sending by hash, storing and consuming, also when a message has to be tried again. */
    static void orderly(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        int orders = 6;
        int steps = 20;
        for (int step = 0; step < steps; step++) {
            for (int order = 0; order < orders; order++) {
                Message message = new Message(s.topic(), "", "order-" + order, (order + ":" + step).getBytes());
                producer.send(message, (queues, m, id) -> queues.get((int) id % queues.size()), order);
            }
        }
        Map<String, List<Integer>> stepsOfOrder = new ConcurrentHashMap<>();
        Set<Integer> busyQueues = ConcurrentHashMap.newKeySet();
        List<String> violations = new ArrayList<>();
        boolean[] suspended = new boolean[1];

        DefaultMQPushConsumer consumer = s.pushConsumer(s.group());
        consumer.subscribe(s.topic(), "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            int queueId = context.getMessageQueue().getQueueId();
            if (!busyQueues.add(queueId)) {
                synchronized (violations) {
                    violations.add("two threads in queue " + queueId);
                }
            }
            try {
                for (MessageExt message : messages) {
                    String[] orderAndStep = Inbox.body(message).split(":");
                    synchronized (suspended) {
                        if (Inbox.body(message).equals("3:7") && !suspended[0]) {
                            suspended[0] = true;
                            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                        }
                    }
                    stepsOfOrder.computeIfAbsent(orderAndStep[0], o -> new ArrayList<>()).add(Integer.valueOf(orderAndStep[1]));
                }
                return ConsumeOrderlyStatus.SUCCESS;
            } finally {
                busyQueues.remove(queueId);
            }
        });
        consumer.start();
        Check.await(60, "all steps of all orders", () ->
            stepsOfOrder.values().stream().mapToInt(List::size).sum() >= orders * steps);
        Thread.sleep(Inbox.SETTLE_MILLIS);
        Check.that(suspended[0], "no message was suspended");
        Check.equal(List.of(), violations, "violations");
        List<Integer> inOrder = IntStream.range(0, steps).boxed().toList();
        Check.equal(orders, stepsOfOrder.size(), "orders");
        stepsOfOrder.forEach((order, got) -> Check.equal(inOrder, got, "steps of order " + order));
    }

    static void broadcasting(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        List<String> bodies = SendScenarios.bodies("broadcast", 40);
        s.send(producer, bodies.subList(0, 20));
        Inbox[] inboxes = {new Inbox(), new Inbox()};
        for (int i = 0; i < 2; i++) {
            Inbox inbox = inboxes[i];
            DefaultMQPushConsumer consumer = s.pushConsumer(s.group());
            consumer.setInstanceName(s.group() + i);
            // The enumeration's package differs between the versions of the client.
            consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
            consumer.subscribe(s.topic(), "*");
            consumer.registerMessageListener(Scenario.receiveInto(inbox));
            consumer.start();
        }
        for (Inbox inbox : inboxes) {
            inbox.await(20, 60);
        }
        s.send(producer, bodies.subList(20, 40));
        for (Inbox inbox : inboxes) {
            inbox.awaitExactly(bodies, 60);
        }
    }

    /** A waiting pull is answered when a message comes, not when its time is over (15 s) or at the next regular look (5 s). */
    static void longPolling(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        s.send(producer, 0, List.of("first"));
        Inbox inbox = new Inbox();
        s.consume(s.group(), inbox);
        inbox.await(1, 60);
        for (int i = 0; i < 5; i++) {
            Thread.sleep(1000);
            long sent = System.currentTimeMillis();
            s.send(producer, 0, List.of("message " + i));
            inbox.await(i + 2, 60);
            Check.between(0, 2000, System.currentTimeMillis() - sent, "milliseconds from send to consumption");
        }
    }

    static void tagFilter(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        // Aa and BB have the same hash code, which is all that a consume queue knows of a tag.
        String[] tags = {"red", "green", "blue", "Aa", "BB", ""};
        for (int i = 0; i < 60; i++) {
            String tag = tags[i % tags.length];
            producer.send(new Message(s.topic(), tag, ("body " + tag + " " + i / tags.length).getBytes()));
        }
        Map<String, List<String>> expected = Map.of("red", List.of("red"), "red || blue", List.of("red", "blue"),
            "Aa", List.of("Aa"), "nobody", List.of(), "*", List.of(tags));
        Map<String, Inbox> inboxes = new TreeMap<>();
        for (String expression : expected.keySet()) {
            Inbox inbox = new Inbox();
            inboxes.put(expression, inbox);
            DefaultMQPushConsumer consumer = s.pushConsumer(s.group("" + inboxes.size()));
            consumer.subscribe(s.topic(), expression);
            consumer.registerMessageListener(Scenario.receiveInto(inbox));
            consumer.start();
        }
        for (Map.Entry<String, Inbox> subscription : inboxes.entrySet()) {
            List<String> bodies = expected.get(subscription.getKey()).stream()
                .flatMap(tag -> IntStream.range(0, 10).mapToObj(i -> "body " + tag + " " + i)).toList();
            subscription.getValue().awaitExactly(bodies, 60);
        }
    }
}
