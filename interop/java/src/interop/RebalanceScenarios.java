package interop;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Two consumers of a group share the queues; when one ends the other takes over its queues. */
final class RebalanceScenarios {
    private RebalanceScenarios() { }

    /** The other one is a process of its own, which is killed. */
    static void kill(Scenario s) throws Exception {
        Rounds rounds = new Rounds(s);
        rounds.send();
        Inbox survivor = new Inbox();
        s.consume(s.group(), survivor);
        ConsumerProcess victim = s.closing(ConsumerProcess.start(s.namesrv(), s.topic(), s.group()));
        rounds.untilShared(survivor::bodies, victim::bodies);
        victim.kill();
        rounds.untilTakenOver(survivor::bodies);
        // At least once: what the victim had received without saying so to the broker comes again.
        rounds.checkNothingLost(survivor.bodies(), victim.bodies());
    }

    static void shutdown(Scenario s) throws Exception {
        Rounds rounds = new Rounds(s);
        rounds.send();
        Inbox survivor = new Inbox();
        Inbox leaver = new Inbox();
        s.consume(s.group(), survivor);
        DefaultMQPushConsumer leaving = s.consume(s.group(), leaver);
        rounds.untilShared(survivor::bodies, leaver::bodies);
        leaving.shutdown();
        rounds.untilTakenOver(survivor::bodies);
        rounds.checkNothingLost(survivor.bodies(), leaver.bodies());
    }

    /** Orderly consumers hold locks on their queues; one that ends gives them back, and each queue's order is kept. */
    static void orderly(Scenario s) throws Exception {
        Rounds rounds = new Rounds(s);
        rounds.send();
        Inbox survivor = new Inbox();
        Inbox leaver = new Inbox();
        consumeOrderly(s, survivor);
        DefaultMQPushConsumer leaving = consumeOrderly(s, leaver);
        rounds.untilShared(survivor::bodies, leaver::bodies);
        leaving.shutdown();
        rounds.untilTakenOver(survivor::bodies);
        rounds.checkNothingLost(survivor.bodies(), leaver.bodies());
        for (int queueId = 0; queueId < Scenario.QUEUES; queueId++) {
            String queue = "queue " + queueId;
            List<String> got = survivor.bodies().stream().filter(body -> body.endsWith(queue)).toList();
            Check.equal(got.stream().sorted().distinct().toList(), got, "order of " + queue + " at the survivor");
        }
    }

    private static DefaultMQPushConsumer consumeOrderly(Scenario s, Inbox inbox) throws Exception {
        DefaultMQPushConsumer consumer = s.pushConsumer(s.group());
        consumer.subscribe(s.topic(), "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(inbox::add);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** Sends rounds of one message to each queue and looks at who receives which. */
    private static final class Rounds {
        private interface Received {
            List<String> bodies();
        }

        private final Scenario scenario;
        private final DefaultMQProducer producer;
        private final List<String> sent = new ArrayList<>();
        private int round;

        Rounds(Scenario scenario) throws Exception {
            this.scenario = scenario;
            producer = scenario.producer();
        }

        /** Returns the bodies of the round. */
        List<String> send() throws Exception {
            List<String> bodies = new ArrayList<>();
            for (int queueId = 0; queueId < Scenario.QUEUES; queueId++) {
                String body = String.format("round %03d queue %d", round, queueId);
                scenario.send(producer, queueId, List.of(body));
                bodies.add(body);
            }
            sent.addAll(bodies);
            round++;
            return bodies;
        }

        /** Until each has two of the four queues for a while; then no message may be received twice any more. */
        void untilShared(Received a, Received b) throws Exception {
            Check.await(90, "two consumers share four queues", () -> isShared(a, b) && isShared(a, b) && isShared(a, b));
            List<String> settled = new ArrayList<>();
            for (int i = 0; i < 5; i++) {
                settled.addAll(sendAndAwait(a, b));
            }
            List<String> received = new ArrayList<>(a.bodies());
            received.addAll(b.bodies());
            received.retainAll(settled);
            Check.sameElements(settled, received, "received by both together");
            for (Received each : List.of(a, b)) {
                Set<String> queues = each.bodies().stream().filter(settled::contains).map(body -> body.replaceAll(".*queue", "queue"))
                    .collect(Collectors.toSet());
                Check.equal(2, queues.size(), "number of queues in " + queues);
            }
        }

        private boolean isShared(Received a, Received b) throws Exception {
            List<String> bodies = sendAndAwait(a, b);
            // The one that has lost a queue may still have a pull under way for it.
            Thread.sleep(300);
            return count(bodies, a) == 2 && count(bodies, b) == 2;
        }

        void untilTakenOver(Received survivor) throws Exception {
            Check.await(90, "the survivor has all queues", () -> {
                List<String> bodies = send();
                Thread.sleep(500);
                return count(bodies, survivor) == Scenario.QUEUES;
            });
        }

        void checkNothingLost(List<String> a, List<String> b) throws Exception {
            Set<String> received = new HashSet<>(a);
            received.addAll(b);
            Check.equal(new HashSet<>(sent), received, "messages received by at least one");
        }

        private List<String> sendAndAwait(Received a, Received b) throws Exception {
            List<String> bodies = send();
            Check.await(60, "round " + bodies, () -> count(bodies, a) + count(bodies, b) >= bodies.size());
            return bodies;
        }

        private static long count(List<String> bodies, Received received) {
            return received.bodies().stream().filter(bodies::contains).distinct().count();
        }
    }
}
