package interop.sdk;

import static interop.sdk.Peer.Language.JAVA;
import static interop.sdk.Peer.Language.RUST;

import interop.Check;
import interop.Scenario;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** A producer of one language sends transactional messages, a consumer of the other one gets those that are committed. */
final class TransactionScenarios {
    private TransactionScenarios() { }

    static void fromRust(Scenario s) throws Exception {
        transact(s, RUST, JAVA);
    }

    static void fromJava(Scenario s) throws Exception {
        transact(s, JAVA, RUST);
    }

    private static void transact(Scenario s, Peer.Language producing, Peer.Language consuming) throws Exception {
        List<String> said = new ArrayList<>();
        List<String> got = new ArrayList<>();
        s.producer().createTopic("TBW102", s.topic(), 1, Map.of());
        Peer producer = s.closing(Peer.start(producing, "transact", s.topic(), s.group("producer"), line -> add(said, line)));
        for (String line : List.of("kept commit", "dropped rollback", "asked unknown")) {
            producer.tell(line);
            Check.await(60, "a receipt of " + line, () -> copy(said).stream().anyMatch(receipt -> receipt.startsWith("sent " + line)));
        }
        s.closing(Peer.start(consuming, "consume", s.topic(), s.group(), line -> add(got, line)));
        Check.await(180, "both messages that are committed", () -> messages(got).keySet().containsAll(Set.of("kept", "asked")));
        Check.equal(Set.of("kept", "asked"), messages(got).keySet(), "messages that came");
        Check.that(copy(said).contains("checked asked"), "no check of the one whose outcome was unknown: %s", copy(said));
        messages(got).forEach((body, properties) -> {
            String id = copy(said).stream().filter(line -> line.startsWith("sent " + body)).findFirst().orElseThrow().split(" ")[3];
            for (Map.Entry<String, String> expected : Map.of("TRAN_MSG", "true", "PGROUP", s.group("producer"), "UNIQ_KEY", id,
                "__transactionId__", id, "REAL_TOPIC", s.topic(), "REAL_QID", "0", "KEYS", body).entrySet()) {
                Check.equal(expected.getValue(), properties.get(expected.getKey()), expected.getKey() + " of " + body);
            }
        });
        Check.that(messages(got).get("asked").containsKey("TRANSACTION_CHECK_TIMES"), "the number of checks: %s", messages(got));
    }

    private static void add(List<String> lines, String line) {
        synchronized (lines) {
            lines.add(line);
        }
    }

    private static List<String> copy(List<String> lines) {
        synchronized (lines) {
            return List.copyOf(lines);
        }
    }

    /** Properties by body. */
    private static Map<String, Map<String, String>> messages(List<String> lines) {
        Map<String, Map<String, String>> messages = new TreeMap<>();
        for (String line : copy(lines)) {
            String[] words = line.split(" ");
            if (words[0].equals("begin")) {
                messages.put(words[4], List.of(words).subList(5, words.length).stream().map(word -> word.split("=", 2))
                    .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1])));
            }
        }
        return messages;
    }
}
