package interop.sdk;

import interop.Check;
import interop.Scenario;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** A group whose members come, leave and die while messages are sent to all queues of its topic, all the time. */
final class MixedGroup implements AutoCloseable {
    static final int QUEUES = 8;

    /** Messages after each change that are looked at: each must come once, and to the member that has the queue. */
    private static final int WINDOW = 10 * QUEUES;

    /** A lock of a member that was killed lives for 60 s. */
    private static final int PATIENCE_SECONDS = 180;

    private final Scenario scenario;
    private final String role;
    private final List<Member> all = new ArrayList<>();
    private final Set<Member> present = new HashSet<>();
    private final Thread sender;
    /** Messages that were sent or are being sent: bodies are `0`, `1`, …; `n` goes to queue `n % QUEUES`. */
    private final AtomicInteger sent = new AtomicInteger();
    private volatile boolean stopping;
    private volatile Exception sendFailure;

    MixedGroup(Scenario scenario, String role) throws Exception {
        this.scenario = scenario;
        this.role = role;
        DefaultMQProducer producer = scenario.producer();
        producer.createTopic("TBW102", scenario.topic(), QUEUES, new HashMap<>());
        Check.await(60, "route of " + scenario.topic(), () -> {
            try {
                return producer.fetchPublishMessageQueues(scenario.topic()).size() == QUEUES;
            } catch (Exception notYet) {
                return false;
            }
        });
        sender = new Thread(() -> send(producer), "sender");
        sender.start();
    }

    private void send(DefaultMQProducer producer) {
        try {
            while (!stopping) {
                int number = sent.getAndIncrement();
                scenario.send(producer, number % QUEUES, List.of("" + number));
                Thread.sleep(5);
            }
        } catch (Exception e) {
            sendFailure = e;
        }
    }

    Member join(String name, Peer.Language language) throws Exception {
        Member member = new Member(name, language, role, scenario.topic(), scenario.group());
        all.add(member);
        present.add(member);
        return member;
    }

    void leave(Member member) throws Exception {
        present.remove(member);
        member.leave();
        Check.await(60, member + " has left", member::hasLeft);
    }

    void kill(Member... members) throws Exception {
        for (Member member : members) {
            present.remove(member);
            member.kill();
        }
    }

    /** Waits until the present members share the queues; what is sent from then on comes once, to the one that has the queue. */
    void settle() throws Exception {
        try {
            Check.await(PATIENCE_SECONDS, present + " share the queues", this::isShared);
        } catch (AssertionError e) {
            throw new AssertionError(e.getMessage() + ", which have " + shares(), e);
        }
        int first = sent.get();
        List<Integer> window = IntStream.range(first, first + WINDOW).boxed().toList();
        Check.await(60, "all of " + WINDOW + " messages that were sent to " + present, () -> received().containsAll(window));
        for (Member.Call call : calls()) {
            int number = Integer.parseInt(call.body());
            if (number >= first) {
                Check.that(call.member().queues().contains(call.queue()), "%s got %s, but has queues %s", call.member(), call,
                    call.member().queues());
            }
        }
        List<Integer> got = calls().stream().map(call -> Integer.parseInt(call.body())).filter(window::contains).sorted().toList();
        Check.equal(window, got, "what came to " + present + " after they had shared the queues: " + shares());
    }

    private boolean isShared() {
        List<Integer> queues = present.stream().flatMap(member -> member.queues().stream()).sorted().toList();
        int least = QUEUES / present.size();
        int most = (QUEUES + present.size() - 1) / present.size();
        return queues.equals(IntStream.range(0, QUEUES).boxed().toList())
            && present.stream().allMatch(member -> member.queues().size() >= least && member.queues().size() <= most);
    }

    private Map<Member, Set<Integer>> shares() {
        return present.stream().collect(Collectors.toMap(member -> member, Member::queues));
    }

    /** Ends the sending, and waits for the rest: every message has come to somebody. */
    void finish() throws Exception {
        stopping = true;
        sender.join();
        Check.that(sendFailure == null, "sending failed: %s", sendFailure);
        Check.await(60, "every message has come to somebody", () -> received().size() == sent.get());
        System.out.printf("      %s: %d messages in %d calls%n", scenario.topic(), sent.get(), calls().size());
    }

    /** Never are two members at one queue, and each queue's messages come in their order; only a new holder may repeat some. */
    void checkOrder() {
        for (int queue = 0; queue < QUEUES; queue++) {
            Member.Call last = null;
            long next = 0;
            for (Member.Call call : callsOf(queue)) {
                if (last != null) {
                    Check.that(call.begin() >= last.end(), "two at once in queue %d: %s and %s", queue, last, call);
                    boolean same = call.member() == last.member() && call.tenure() == last.tenure();
                    Check.that(!same || call.offset() == last.offset() + 1, "out of order: %s after %s", call, last);
                }
                Check.that(call.offset() <= next, "left out before %s: %d", call, next);
                next = Math.max(next, call.offset() + 1);
                last = call;
            }
        }
    }

    private List<Member.Call> callsOf(int queue) {
        return calls().stream().filter(call -> call.queue() == queue).sorted(Comparator.comparing(Member.Call::begin)).toList();
    }

    private List<Member.Call> calls() {
        return all.stream().flatMap(member -> member.calls().stream()).toList();
    }

    private Set<Integer> received() {
        return calls().stream().map(call -> Integer.parseInt(call.body())).collect(Collectors.toCollection(TreeSet::new));
    }

    @Override
    public void close() throws Exception {
        stopping = true;
        sender.join();
        all.forEach(Member::close);
    }
}
