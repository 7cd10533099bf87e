package interop;

import java.util.List;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages found by key, by unique id and by offset id. */
final class LookupScenarios {
    private LookupScenarios() { }

    static void lookup(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        // The index knows the second only, rounded down.
        long begin = System.currentTimeMillis() - 1000;
        SendResult first = producer.send(new Message(s.topic(), "tag", "invoice-1 customer-7", "first".getBytes()));
        producer.send(new Message(s.topic(), "tag", "invoice-2 customer-7", "second".getBytes()));
        producer.send(new Message(s.topic(), "tag", "invoice-3 customer-8", "third".getBytes()));
        long end = System.currentTimeMillis() + 60_000;

        // The index follows the log.
        Check.eventually(30, () -> {
            Check.equal(List.of("first", "second"), byKey(producer, s.topic(), "customer-7", begin, end), "customer-7");
        });
        Check.equal(List.of("third"), byKey(producer, s.topic(), "invoice-3", begin, end), "invoice-3");
        Check.equal(List.of(), byKey(producer, s.topic(), "invoice-4", begin, end), "a key that nobody used");
        Check.equal(List.of(), byKey(producer, s.topic(), "invoice-3", begin - 7_200_000, begin - 3_600_000), "another time");

        for (String id : List.of(first.getMsgId(), first.getOffsetMsgId())) {
            MessageExt message = producer.viewMessage(s.topic(), id);
            Check.equal("first", Inbox.body(message), "body of " + id);
            Check.equal("invoice-1 customer-7", message.getKeys(), "keys of " + id);
            Check.equal(first.getMsgId(), message.getMsgId(), "unique id of " + id);
            Check.equal(first.getQueueOffset(), message.getQueueOffset(), "queue offset of " + id);
            Check.equal(first.getMessageQueue().getQueueId(), message.getQueueId(), "queue of " + id);
        }
    }

    private static List<String> byKey(DefaultMQProducer producer, String topic, String key, long begin, long end) throws Exception {
        try {
            QueryResult result = producer.queryMessage(topic, key, 32, begin, end);
            return result.getMessageList().stream().map(Inbox::body).sorted().toList();
        } catch (MQClientException e) {
            Check.that(e.getMessage().contains("no message"), "lookup of %s: %s", key, e);
            return List.of();
        }
    }
}
