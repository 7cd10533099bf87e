package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A push consumer in a process of its own, so that it can be killed. It prints the body of each message. */
final class ConsumerProcess implements AutoCloseable {
    private final Process process;
    private final List<String> bodies = new ArrayList<>();

    private ConsumerProcess(Process process) {
        this.process = process;
        Thread reader = new Thread(this::read, "consumer-process-output");
        reader.setDaemon(true);
        reader.start();
    }

    static ConsumerProcess start(String namesrv, String topic, String group) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(ProcessHandle.current().info().command().orElse("java"));
        command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), ConsumerProcess.class.getName(), namesrv, topic, group));
        return new ConsumerProcess(new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start());
    }

    List<String> bodies() {
        synchronized (bodies) {
            return List.copyOf(bodies);
        }
    }

    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }

    private void read() {
        new BufferedReader(new InputStreamReader(process.getInputStream())).lines().forEach(line -> {
            synchronized (bodies) {
                bodies.add(line);
            }
        });
    }

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                System.out.println(Inbox.body(message));
            }
            System.out.flush();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        // Its end of the pipe is closed when the parent ends.
        while (System.in.read() >= 0) { }
        Runtime.getRuntime().halt(0);
    }
}
