package interop.sdk;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** A push consumer of either language in a process of its own, and what it has said of itself. */
final class Member implements AutoCloseable {
    /**
     * A call of the listener with one message. `member` held the queue for the `tenure`-th time. Times are in µs; `end` is that of the
     * member's death if it was killed, and the largest number while the listener runs.
     */
    record Call(Member member, int tenure, int queue, long offset, String body, long begin, long end) { }

    final String name;
    private final Peer peer;
    private final List<Call> calls = new ArrayList<>();
    private final Set<Integer> queues = new TreeSet<>();
    /** How often each queue was lost. */
    private final List<Integer> lost = new ArrayList<>();
    private boolean left;

    Member(String name, Peer.Language language, String role, String topic, String group) throws Exception {
        this.name = name;
        peer = Peer.start(language, role, topic, group, this::read);
    }

    synchronized Set<Integer> queues() {
        return Set.copyOf(queues);
    }

    synchronized List<Call> calls() {
        return List.copyOf(calls);
    }

    synchronized boolean hasLeft() {
        return left;
    }

    void leave() {
        peer.tell("leave");
    }

    void kill() throws Exception {
        peer.kill();
        long now = System.currentTimeMillis() * 1000;
        synchronized (this) {
            calls.replaceAll(call -> call.end == Long.MAX_VALUE ? ended(call, now) : call);
        }
    }

    @Override
    public void close() {
        peer.close();
    }

    @Override
    public String toString() {
        return name;
    }

    private synchronized void read(String line) {
        String[] words = line.split(" ");
        switch (words[0]) {
            case "queues" -> {
                Set<Integer> now = new TreeSet<>();
                for (int i = 1; i < words.length; i++) {
                    now.add(Integer.valueOf(words[i]));
                }
                queues.stream().filter(queue -> !now.contains(queue)).forEach(lost::add);
                queues.clear();
                queues.addAll(now);
            }
            case "begin" -> {
                int queue = Integer.parseInt(words[1]);
                int tenure = (int) lost.stream().filter(other -> other == queue).count();
                calls.add(new Call(this, tenure, queue, Long.parseLong(words[2]), words[4], Long.parseLong(words[3]), Long.MAX_VALUE));
            }
            case "end" -> calls.replaceAll(call -> call.queue == Integer.parseInt(words[1]) && call.offset == Long.parseLong(words[2])
                && call.end == Long.MAX_VALUE ? ended(call, Long.parseLong(words[3])) : call);
            case "left" -> left = true;
            default -> System.err.println(name + ": " + line);
        }
    }

    private static Call ended(Call call, long end) {
        return new Call(call.member, call.tenure, call.queue, call.offset, call.body, call.begin, end);
    }
}
