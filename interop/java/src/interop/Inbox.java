package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that consumers have received, in the order of reception. Thread-safe. */
public final class Inbox {
    /** How long to look for what should not arrive after all that should has. */
    static final long SETTLE_MILLIS = 1000;

    private final List<MessageExt> messages = new ArrayList<>();

    public static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    public static String offsetId(MessageExt message) {
        return ((MessageClientExt) message).getOffsetMsgId();
    }

    public synchronized void add(MessageExt message) {
        messages.add(message);
    }

    public synchronized List<MessageExt> messages() {
        return List.copyOf(messages);
    }

    public List<String> bodies() {
        return messages().stream().map(Inbox::body).toList();
    }

    public int size() {
        return messages().size();
    }

    public void await(int count, int seconds) throws Exception {
        Check.await(seconds, count + " messages", () -> size() >= count);
    }

    /** Waits for as many messages as there are bodies, and then a while for any more: exactly these bodies must have come. */
    public void awaitExactly(Collection<String> expected, int seconds) throws Exception {
        try {
            await(expected.size(), seconds);
        } catch (AssertionError e) {
            Check.sameElements(expected, bodies(), "received within " + seconds + " s");
        }
        Thread.sleep(SETTLE_MILLIS);
        Check.sameElements(expected, bodies(), "received");
    }
}
