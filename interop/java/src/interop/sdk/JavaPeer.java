package interop.sdk;

import interop.Inbox;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Comparator;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The official Java client as one side of a scenario. It is told and prints the same as `interop/rust/peer.rs`. */
final class JavaPeer {
    private static final long WORK_MILLIS = 3;

    private JavaPeer() { }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        if (args[0].equals("transact")) {
            transact(args, input);
        } else {
            consume(args, input);
        }
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static long nowMicros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    private static void configure(ClientConfig config, String namesrv) {
        config.setNamesrvAddr(namesrv);
        config.setMqClientApiTimeout(20_000);
        config.setPollNameServerInterval(1000);
        config.setHeartbeatBrokerInterval(1000);
        config.setPersistConsumerOffsetInterval(1000);
    }

    private static void listen(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            String properties = message.getProperties().entrySet().stream()
                .map(property -> property.getKey() + "=" + property.getValue()).collect(Collectors.joining(" "));
            String place = message.getQueueId() + " " + message.getQueueOffset() + " ";
            tell("begin " + place + nowMicros() + " " + Inbox.body(message) + " " + properties);
            try {
                Thread.sleep(WORK_MILLIS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            tell("end " + place + nowMicros());
        }
    }

    private static void consume(String[] args, BufferedReader input) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[3]);
        configure(consumer, args[1]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // Lets running listeners finish, as the other one does.
        consumer.setAwaitTerminationMillisWhenShutdown(20_000);
        consumer.subscribe(args[2], "*");
        if (args[0].equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                listen(messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                listen(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        Thread looking = new Thread(() -> tellQueues(consumer, args[2]), "queues");
        looking.setDaemon(true);
        looking.start();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.equals("leave")) {
                consumer.shutdown();
                tell("left");
            }
        }
    }

    private static void tellQueues(DefaultMQPushConsumer consumer, String topic) {
        String known = "";
        while (true) {
            TreeSet<MessageQueue> queues = new TreeSet<>(Comparator.comparing(MessageQueue::getQueueId));
            queues.addAll(consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
            String ids = queues.stream().filter(queue -> queue.getTopic().equals(topic)).map(queue -> "" + queue.getQueueId())
                .collect(Collectors.joining(" "));
            if (!ids.equals(known)) {
                tell("queues " + ids);
                known = ids;
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private static void transact(String[] args, BufferedReader input) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(args[3]);
        configure(producer, args[1]);
        producer.setSendMsgTimeout(20_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                tell("checked " + Inbox.body(message));
                boolean dropped = Inbox.body(message).equals("dropped");
                return dropped ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            LocalTransactionState state = switch (words[1]) {
                case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
                case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
            Message message = new Message(args[2], null, words[0], words[0].getBytes());
            SendResult result = producer.sendMessageInTransaction(message, state);
            tell("sent " + line + " " + result.getMsgId());
        }
    }
}
