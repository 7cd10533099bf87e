package interop;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** A broker is restarted, which no other scenario uses at the same time. */
final class RestartScenarios {
    private RestartScenarios() { }

    /** Progress and messages survive a restart of the broker, for consumers that stay and for ones that start anew. */
    static void restart(Scenario s, String namesrv, String broker) throws Exception {
        s.useNamesrv(Environment.address(namesrv));
        DefaultMQProducer producer = s.producer();
        List<String> before = SendScenarios.bodies("before", 20);
        List<String> after = SendScenarios.bodies("after", 20);
        s.send(producer, before);

        Inbox stays = new Inbox();
        s.consume(s.group("stays"), stays);
        Inbox firstLife = new Inbox();
        DefaultMQPushConsumer leaving = s.consume(s.group("returns"), firstLife);
        stays.awaitExactly(before, 60);
        firstLife.awaitExactly(before, 60);
        leaving.shutdown();

        Environment.servers("restart", broker);

        // The producer lives on; it needs a moment to see that the broker is back.
        Check.await(60, "a send succeeds after the restart", () -> trySend(s, producer, after.get(0)));
        s.send(producer, after.subList(1, 20));
        Inbox secondLife = new Inbox();
        s.consume(s.group("returns"), secondLife);
        secondLife.awaitExactly(after, 60);
        List<String> all = new ArrayList<>(before);
        all.addAll(after);
        stays.awaitExactly(all, 60);
        Check.equal(all.stream().sorted().toList(), s.storedBodies(s.topic(), 40), "stored");
    }

    private static boolean trySend(Scenario s, DefaultMQProducer producer, String body) {
        try {
            producer.send(s.message(body));
            return true;
        } catch (Exception brokerNotBackYet) {
            return false;
        }
    }
}
