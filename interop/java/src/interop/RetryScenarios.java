package interop;

import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** What becomes of messages that could not be consumed. */
final class RetryScenarios {
    private static final int LEVEL_30_S = 4;

    private RetryScenarios() { }

    /** Without further ado a failed message comes again after 10 s, and the others are not held up. */
    static void retry(Scenario s) throws Exception {
        SendResult failing = sendOneThatFails(s);
        Inbox inbox = new Inbox();
        start(s, inbox, 0);
        inbox.awaitExactly(List.of("good 0000", "good 0001", "good 0002", "bad", "bad"), 90);
        checkRetried(s, failing, inbox, 9_900);

        MessageExt stored = onlyOne(s, "%RETRY%" + s.group());
        Check.equal("bad", Inbox.body(stored), "body in the retry topic");
        Check.equal(1, stored.getReconsumeTimes(), "reconsume times in the retry topic");
        Check.equal(s.topic(), stored.getProperty(MessageConst.PROPERTY_RETRY_TOPIC), "RETRY_TOPIC");
        Check.equal(failing.getOffsetMsgId(), stored.getProperty(MessageConst.PROPERTY_ORIGIN_MESSAGE_ID), "ORIGIN_MESSAGE_ID");
        Check.equal(failing.getMsgId(), stored.getMsgId(), "unique id");
    }

    /** The listener may ask for another delay: level 1 is 1 s. */
    static void delayLevel(Scenario s) throws Exception {
        SendResult failing = sendOneThatFails(s);
        Inbox inbox = new Inbox();
        start(s, inbox, 1);
        inbox.awaitExactly(List.of("good 0000", "good 0001", "good 0002", "bad", "bad"), 90);
        checkRetried(s, failing, inbox, 900);
    }

    /** After its last try a message is dead at once, whatever delay the listener asks for. */
    static void deadLetter(Scenario s) throws Exception {
        SendResult failing = sendOneThatFails(s);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = s.pushConsumer(s.group());
        consumer.setMaxReconsumeTimes(2);
        consumer.subscribe(s.topic(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::add);
            MessageExt message = messages.get(0);
            context.setDelayLevelWhenNextConsume(message.getReconsumeTimes() < 2 ? 1 : LEVEL_30_S);
            return Inbox.body(message).equals("bad")
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        MessageExt dead = deadLetter(s, failing.getMsgId(), failing.getOffsetMsgId());
        inbox.awaitExactly(List.of("good 0000", "good 0001", "good 0002", "bad", "bad", "bad"), 10);
        Check.equal(List.of(0, 1, 2), reconsumeTimes(inbox), "reconsume times");
        long lastTry = inbox.messages().get(5).getStoreTimestamp();
        Check.between(0, 20_000, dead.getStoreTimestamp() - lastTry, "milliseconds from the last try to the dead letter");
    }

    /** An orderly consumer tries again itself, and sends the message to the retry topic when it has had enough. */
    static void orderlyDeadLetter(Scenario s) throws Exception {
        SendResult failing = sendOneThatFails(s);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = s.pushConsumer(s.group());
        consumer.setMaxReconsumeTimes(1);
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.subscribe(s.topic(), "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(inbox::add);
            return Inbox.body(messages.get(0)).equals("bad")
                ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        // The client does not look for the offset id.
        MessageExt dead = deadLetter(s, failing.getMsgId(), failing.getMsgId());
        inbox.awaitExactly(List.of("good 0000", "bad", "bad", "good 0001", "good 0002"), 10);
        // It is dead at once, since a broker does not keep a group that holds locks of queues waiting for retries.
        Check.between(0, 20_000, dead.getStoreTimestamp() - dead.getBornTimestamp(), "milliseconds from the client to the dead letter");
    }

    /** All in one queue, the failing one second: the queue must go on without it. */
    private static SendResult sendOneThatFails(Scenario s) throws Exception {
        DefaultMQProducer producer = s.producer();
        List<String> good = SendScenarios.bodies("good", 3);
        s.send(producer, 0, good.subList(0, 1));
        SendResult failing = s.send(producer, 0, List.of("bad")).get(0);
        s.send(producer, 0, good.subList(1, 3));
        return failing;
    }

    /** A consumer that fails the first time for `bad`. */
    private static void start(Scenario s, Inbox inbox, int delayLevel) throws Exception {
        DefaultMQPushConsumer consumer = s.pushConsumer(s.group());
        consumer.subscribe(s.topic(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::add);
            context.setDelayLevelWhenNextConsume(delayLevel);
            MessageExt message = messages.get(0);
            return Inbox.body(message).equals("bad") && message.getReconsumeTimes() == 0
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static void checkRetried(Scenario s, SendResult failing, Inbox inbox, long delayMillis) {
        List<MessageExt> tries = inbox.messages().stream().filter(m -> Inbox.body(m).equals("bad")).toList();
        Check.equal(List.of(0, 1), reconsumeTimes(inbox), "reconsume times");
        MessageExt again = tries.get(1);
        Check.equal(s.topic(), again.getTopic(), "topic shown to the listener");
        Check.equal(failing.getMsgId(), again.getMsgId(), "unique id");
        // The retried copy is stored when its delay is over.
        Check.between(delayMillis, delayMillis + 40_000, again.getStoreTimestamp() - tries.get(0).getStoreTimestamp(), "delay");
        Check.equal(4, inbox.bodies().lastIndexOf("bad"), "place of the retried one among the five received");
    }

    private static MessageExt deadLetter(Scenario s, String uniqueId, String originId) throws Exception {
        MessageExt dead = onlyOne(s, "%DLQ%" + s.group());
        Check.equal("bad", Inbox.body(dead), "body of the dead letter");
        Check.equal(s.topic(), dead.getProperty(MessageConst.PROPERTY_RETRY_TOPIC), "RETRY_TOPIC");
        Check.equal(originId, dead.getProperty(MessageConst.PROPERTY_ORIGIN_MESSAGE_ID), "ORIGIN_MESSAGE_ID");
        Check.equal(uniqueId, dead.getMsgId(), "unique id");
        return dead;
    }

    private static MessageExt onlyOne(Scenario s, String topic) throws Exception {
        return s.stored(topic, 1).values().stream().flatMap(List::stream).findFirst().orElseThrow();
    }

    private static List<Integer> reconsumeTimes(Inbox inbox) {
        return inbox.messages().stream().filter(m -> Inbox.body(m).equals("bad")).map(MessageExt::getReconsumeTimes).toList();
    }
}
