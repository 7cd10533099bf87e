package interop.admin;

import interop.Check;
import interop.Environment;
import interop.Inbox;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The life in a cluster that the commands look at: topic `orders` with 12 messages, 3 in each of 4 queues; producer `order-svc`
 * online; group `billing` online with everything consumed; group `late` offline with one message consumed of each queue.
 */
final class Shop {
    static final String ORDERS = "orders";
    static final String CLUSTER = "DefaultCluster";
    static final String BROKER = "broker-a";

    final String namesrv = Environment.NAMESRV;
    final String brokerAddress = Environment.address("broker");
    final Mqadmin mqadmin = new Mqadmin(namesrv);
    final DefaultMQAdminExt admin = new DefaultMQAdminExt();
    final DefaultMQProducer producer = new DefaultMQProducer("order-svc");
    final DefaultMQPushConsumer billing = consumer("billing");
    final Inbox billed = new Inbox();
    /** Results of sending message 0 to 11; message i is in queue i % 4. */
    final List<SendResult> sent = new ArrayList<>();

    Shop() throws Exception {
        admin.setNamesrvAddr(namesrv);
        admin.start();
        // The broker may listen already but not be known to the name server.
        Check.await(60, "the broker has registered", () -> admin.examineBrokerClusterInfo().getBrokerAddrTable().containsKey(BROKER));
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("order-svc-1");
        producer.start();
        for (int i = 0; i < 12; i++) {
            int queueId = i % 4;
            Message message = new Message(ORDERS, i % 2 == 0 ? "paid" : "cancelled", "key-" + i, ("order " + i).getBytes());
            sent.add(producer.send(message, (queues, m, arg) -> queues.get(queueId), null));
        }
        start(billing, billed);
        billed.await(12, 60);
        Inbox lateInbox = new Inbox();
        DefaultMQPushConsumer late = consumer("late");
        start(late, lateInbox);
        lateInbox.await(12, 60);
        late.shutdown();
        for (int queueId = 0; queueId < 4; queueId++) {
            admin.updateConsumeOffset(brokerAddress, "late", queue(queueId), 1);
        }
        Check.eventually(60, () -> {
            Check.equal(Map.of(0, 3L, 1, 3L, 2, 3L, 3, 3L), committed("billing"), "offsets of billing");
            Check.equal(5, admin.examineConsumeStats("billing").getOffsetTable().size(), "queues of billing with its retry queue");
        });
    }

    /** The offsets in topic `orders` that a group has committed, by queue id. */
    Map<Integer, Long> committed(String group) throws Exception {
        Map<Integer, Long> offsets = new TreeMap<>();
        admin.examineConsumeStats(group).getOffsetTable().forEach((queue, offset) -> {
            if (queue.getTopic().equals(ORDERS)) {
                offsets.put(queue.getQueueId(), offset.getConsumerOffset());
            }
        });
        return offsets;
    }

    MessageQueue queue(int queueId) {
        return new MessageQueue(ORDERS, BROKER, queueId);
    }

    DefaultMQPushConsumer consumer(String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group + "-1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // The same reasons as in Scenario.
        consumer.setPollNameServerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        return consumer;
    }

    void start(DefaultMQPushConsumer consumer, Inbox inbox) throws Exception {
        consumer.subscribe(ORDERS, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::add);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }
}
