import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** What crates/client/benches/load.rs does, with the same words, by the Java client. */
public class ClientLoad {
  private static final AtomicLong done = new AtomicLong();
  private static final CountDownLatch warmedUp = new CountDownLatch(1);
  private static final CountDownLatch finished = new CountDownLatch(1);
  private static long warm;
  private static long total;

  public static void main(String[] words) throws Exception {
    warm = Long.parseLong(words[3]);
    total = warm + Long.parseLong(words[4]);
    Thread measuring = new Thread(ClientLoad::measure);
    measuring.start();
    if (words[0].equals("producer")) {
      produce(words[1], words[2], Integer.parseInt(words[5]));
    } else {
      consume(words[1], words[2], words[5]);
    }
    measuring.join();
    System.exit(0);
  }

  private static void produce(String nameServers, String topic, int depth) throws Exception {
    DefaultMQProducer producer = new DefaultMQProducer("bench-java");
    producer.setNamesrvAddr(nameServers);
    producer.start();
    byte[] body = new byte[128];
    Arrays.fill(body, (byte) 'x');
    Semaphore places = new Semaphore(depth);
    SendCallback callback = new SendCallback() {
      @Override
      public void onSuccess(SendResult result) {
        places.release();
        add(1);
      }

      @Override
      public void onException(Throwable failure) {
        System.err.println("send failed: " + failure);
        System.exit(1);
      }
    };
    for (long sent = 0; sent < total; sent++) {
      places.acquire();
      producer.send(new Message(topic, body), callback);
    }
    finished.await();
    producer.shutdown();
  }

  private static void consume(String nameServers, String topic, String group) throws Exception {
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
    consumer.setNamesrvAddr(nameServers);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.subscribe(topic, "*");
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      add(messages.size());
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    finished.await();
    consumer.shutdown();
  }

  private static void add(long messages) {
    long after = done.addAndGet(messages);
    if (after >= warm && after - messages < warm) {
      warmedUp.countDown();
    }
    if (after >= total && after - messages < total) {
      finished.countDown();
    }
  }

  private static void measure() {
    try {
      warmedUp.await();
      long began = System.nanoTime();
      long cpuBefore = cpuNanos();
      long before = done.get();
      finished.await();
      double messages = done.get() - before;
      System.out.printf("messages_per_second %.0f%n", messages * 1e9 / (System.nanoTime() - began));
      System.out.printf("cpu_us_per_message %.3f%n", (cpuNanos() - cpuBefore) / 1e3 / messages);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  private static long cpuNanos() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }
}
