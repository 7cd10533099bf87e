package interop.admin;

import interop.Check;
import interop.Environment;
import interop.Inbox;
import interop.Scenario;
import interop.Suite;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A cluster whose servers are of different make, as during a migration: a broker of ours, one of RocketMQ 5.3.3 and one of 4.9.7,
 * all registered at a name server of ours and at a real one.
 */
public final class MixedScenarios {
    /** Directories of the brokers by broker name. */
    private static final Map<String, String> BROKERS = Map.of("broker-a", "broker", "java-5", "java-5-broker", "java-4", "java-4-broker");

    private MixedScenarios() { }

    public static void main(String[] args) throws Exception {
        new Suite()
            .add("same-routes", MixedScenarios::sameRoutes)
            .add("through-our-namesrv", s -> sendAndConsume(s, "namesrv"))
            .add("through-real-namesrv", s -> sendAndConsume(s, "java-namesrv"))
            .add("brokers-come-and-go", MixedScenarios::brokersComeAndGo)
            .main(1, args);
    }

    /** A topic and a cluster look the same at both name servers. */
    private static void sameRoutes(Scenario s) throws Exception {
        createTopic(s, "namesrv");
        Mqadmin ours = new Mqadmin(Environment.address("namesrv"));
        Mqadmin real = new Mqadmin(Environment.address("java-namesrv"));
        Check.equal(sortedRoute(s, "java-namesrv"), sortedRoute(s, "namesrv"), "route of " + s.topic());
        for (String broker : BROKERS.keySet()) {
            List<String> atReal = real.run("clusterList").rowWith(Shop.CLUSTER, broker, "0");
            List<String> atOurs = ours.run("clusterList").rowWith(Shop.CLUSTER, broker, "0");
            // Name, id, address and version; the rates that follow are of the moment.
            Check.equal(atReal.subList(0, 5), atOurs.subList(0, 5), "row of clusterList");
        }
        Set<String> topicsAtReal = new TreeSet<>(real.run("topicList").lines());
        Check.equal(topicsAtReal, new TreeSet<>(ours.run("topicList").lines()), "topicList");
    }

    private static String sortedRoute(Scenario s, String namesrv) throws Exception {
        TopicRouteData route = route(s, namesrv);
        route.getBrokerDatas().sort(null);
        route.getQueueDatas().sort(null);
        return route.toJson();
    }

    private static void sendAndConsume(Scenario s, String namesrv) throws Exception {
        createTopic(s, namesrv);
        s.useNamesrv(Environment.address(namesrv));
        DefaultMQProducer producer = s.producer();
        List<String> bodies = IntStream.range(0, 90).mapToObj(i -> "mixed " + i).toList();
        Map<String, Long> sent = s.send(producer, bodies).stream().map(SendResult::getMessageQueue)
            .collect(Collectors.groupingBy(queue -> queue.getBrokerName(), TreeMap::new, Collectors.counting()));
        Check.equal(BROKERS.keySet(), sent.keySet(), "brokers that messages were sent to");
        Inbox inbox = new Inbox();
        s.consume(s.group(), inbox);
        inbox.awaitExactly(bodies, 60);
        Map<String, Long> received = inbox.messages().stream()
            .collect(Collectors.groupingBy(MessageExt::getBrokerName, TreeMap::new, Collectors.counting()));
        Check.equal(sent, received, "messages by broker");
    }

    /** A broker that is gone disappears from both name servers at once, the others are used on, and it comes back. */
    private static void brokersComeAndGo(Scenario s) throws Exception {
        createTopic(s, "namesrv");
        DefaultMQProducer producer = s.producer();
        for (String broker : List.of("java-5", "broker-a")) {
            Environment.servers("kill", BROKERS.get(broker));
            Set<String> others = new TreeSet<>(BROKERS.keySet());
            others.remove(broker);
            for (String namesrv : List.of("namesrv", "java-namesrv")) {
                Check.await(20, broker + " is gone from " + namesrv, () -> brokers(s, namesrv).equals(others));
            }
            Set<String> sentTo = s.send(producer, IntStream.range(0, 30).mapToObj(i -> "without " + broker + " " + i).toList()).stream()
                .map(result -> result.getMessageQueue().getBrokerName()).collect(Collectors.toCollection(TreeSet::new));
            Check.equal(others, sentTo, "brokers that messages were sent to without " + broker);

            Environment.servers("start", BROKERS.get(broker));
            for (String namesrv : List.of("namesrv", "java-namesrv")) {
                Check.await(60, broker + " is back at " + namesrv, () -> brokers(s, namesrv).equals(BROKERS.keySet()));
            }
        }
    }

    private static Set<String> brokers(Scenario s, String namesrv) throws Exception {
        return route(s, namesrv).getQueueDatas().stream().map(data -> data.getBrokerName()).collect(Collectors.toCollection(TreeSet::new));
    }

    private static TopicRouteData route(Scenario s, String namesrv) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(Environment.address(namesrv));
        admin.start();
        try {
            return admin.examineTopicRouteInfo(s.topic());
        } finally {
            admin.shutdown();
        }
    }

    /** On all brokers, with mqadmin at one name server; both must know it then. */
    private static void createTopic(Scenario s, String namesrv) throws Exception {
        Mqadmin mqadmin = new Mqadmin(Environment.address(namesrv));
        Check.await(60, "all brokers have registered", () -> mqadmin.run("clusterList").rowsWith(Shop.CLUSTER).size() == BROKERS.size());
        Mqadmin.Output output = mqadmin.run("updateTopic", "-c", Shop.CLUSTER, "-t", s.topic(), "-r", "2", "-w", "2");
        for (String server : BROKERS.values()) {
            output.contains("create topic to " + Environment.address(server) + " success.");
        }
        for (String each : List.of("namesrv", "java-namesrv")) {
            Check.await(30, "route at " + each, () -> brokers(s, each).equals(BROKERS.keySet()));
        }
    }
}
