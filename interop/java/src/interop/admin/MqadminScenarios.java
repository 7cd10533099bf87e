package interop.admin;

import interop.Check;
import interop.Inbox;
import interop.Scenario;
import interop.Suite;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** The commands of the real mqadmin: what they print, and that they did what they say. */
public final class MqadminScenarios {
    /** The runtime table of a 5.3.3 broker; dashboards and exporters fail when one is missing. */
    private static final List<String> BROKER_STATUS_KEYS = List.of("""
        EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity ackThreadPoolQueueCapacity ackThreadPoolQueueHeadWaitTimeMills
        ackThreadPoolQueueSize bootTimestamp brokerActive brokerVersion brokerVersionDesc commitLogDirCapacity commitLogDiskRatio
        commitLogMaxOffset commitLogMinOffset consumeQueueDiskRatio dispatchBehindBytes dispatchMaxBuffer earliestMessageTimeStamp
        getFoundTps getMessageEntireTimeMax getMissTps getTotalTps getTransferredTps litePullThreadPoolQueueCapacity
        litePullThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueSize msgGetTotalTodayMorning msgGetTotalTodayNow
        msgGetTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow msgPutTotalYesterdayMorning pageCacheLockTimeMills
        pullThreadPoolQueueCapacity pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putLatency99 putLatency999
        putMessageAverageSize putMessageDistributeTime putMessageEntireTimeMax putMessageFailedTimes putMessageSizeTotal
        putMessageTimesTotal putTps queryThreadPoolQueueCapacity queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize
        remainHowManyDataToFlush remainTransientStoreBufferNumbs runtime sendThreadPoolQueueCapacity
        sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize startAcceptSendRequestTimeStamp timerCongestNum timerDequeueTps
        timerEnqueueTps timerOffsetBehind timerReadBehind""".split("\\s+"));

    private static Shop shop;

    private MqadminScenarios() { }

    @FunctionalInterface
    private interface Body {
        void run(Shop shop, Mqadmin mqadmin, Scenario scenario) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        // One after the other: a command's output is that of the process, and some change what others show.
        new Suite()
            .add("clusterList", inShop(MqadminScenarios::clusterList))
            .add("topicList", inShop(MqadminScenarios::topicList))
            .add("topicRoute", inShop(MqadminScenarios::topicRoute))
            .add("topicStatus", inShop(MqadminScenarios::topicStatus))
            .add("topicClusterList", inShop(MqadminScenarios::topicClusterList))
            .add("updateTopic", inShop(MqadminScenarios::updateTopic))
            .add("deleteTopic", inShop(MqadminScenarios::deleteTopic))
            .add("updateSubGroup", inShop(MqadminScenarios::updateSubGroup))
            .add("deleteSubGroup", inShop(MqadminScenarios::deleteSubGroup))
            .add("brokerStatus", inShop(MqadminScenarios::brokerStatus))
            .add("getBrokerConfig", inShop(MqadminScenarios::getBrokerConfig))
            .add("updateBrokerConfig", inShop(MqadminScenarios::updateBrokerConfig))
            .add("consumerProgress", inShop(MqadminScenarios::consumerProgress))
            .add("consumerStatus", inShop(MqadminScenarios::consumerStatus))
            .add("consumerConnection", inShop(MqadminScenarios::consumerConnection))
            .add("producerConnection", inShop(MqadminScenarios::producerConnection))
            .add("queryMsgById", inShop(MqadminScenarios::queryMsgById))
            .add("queryMsgByKey", inShop(MqadminScenarios::queryMsgByKey))
            .add("queryMsgByUniqueKey", inShop(MqadminScenarios::queryMsgByUniqueKey))
            .add("queryMsgByOffset", inShop(MqadminScenarios::queryMsgByOffset))
            .add("printMsg", inShop(MqadminScenarios::printMsg))
            .add("sendMessage", inShop(MqadminScenarios::sendMessage))
            .add("consumeMessage", inShop(MqadminScenarios::consumeMessage))
            .add("resetOffsetByTime", inShop(MqadminScenarios::resetOffsetByTime))
            .add("statsAll", inShop(MqadminScenarios::statsAll))
            .add("wipeWritePerm", inShop(MqadminScenarios::wipeWritePerm))
            .add("addWritePerm", inShop(MqadminScenarios::addWritePerm))
            .add("updateKvConfig", inShop(MqadminScenarios::updateKvConfig))
            .add("deleteKvConfig", inShop(MqadminScenarios::deleteKvConfig))
            .add("cleanUnusedTopic", inShop(MqadminScenarios::cleanUnusedTopic))
            .add("cleanExpiredCQ", inShop(MqadminScenarios::cleanExpiredCQ))
            .add("cloneGroupOffset", inShop(MqadminScenarios::cloneGroupOffset))
            .main(1, args);
    }

    private static Suite.Body inShop(Body body) {
        return scenario -> {
            if (shop == null) {
                shop = new Shop();
            }
            body.run(shop, shop.mqadmin, scenario);
        };
    }

    // Clusters and topics

    private static void clusterList(Shop shop, Mqadmin mqadmin, Scenario s) {
        Mqadmin.Output output = mqadmin.run("clusterList");
        List<String> row = output.rowWith(Shop.CLUSTER, Shop.BROKER, "0", shop.brokerAddress);
        output.check(row.get(4).matches("V\\d+_\\d+_\\d+.*"), "version " + row.get(4));
        output.check(row.get(row.size() - 1).equals("true"), "the broker is active");

        Mqadmin.Output more = mqadmin.run("clusterList", "-m");
        List<String> totals = more.rowWith(Shop.CLUSTER, Shop.BROKER);
        more.check(totals.size() == 6, "columns of " + totals);
    }

    private static void topicList(Shop shop, Mqadmin mqadmin, Scenario s) {
        List<String> topics = mqadmin.run("topicList").lines();
        for (String topic : List.of(Shop.ORDERS, "%RETRY%billing", "%RETRY%late", "TBW102", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX",
            "BenchmarkTest", "OFFSET_MOVED_EVENT", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", Shop.CLUSTER, Shop.BROKER,
            Shop.CLUSTER + "_REPLY_TOPIC")) {
            Check.equal(1L, topics.stream().filter(topic::equals).count(), "times that " + topic + " is in " + topics);
        }
        Mqadmin.Output withGroups = mqadmin.run("topicList", "-c");
        withGroups.check(withGroups.rowsWith(Shop.CLUSTER, Shop.ORDERS).stream().anyMatch(row -> row.contains("billing")), "group billing");
    }

    private static void topicRoute(Shop shop, Mqadmin mqadmin, Scenario s) {
        Check.equal(route(shop, 4, 6), mqadmin.run("topicRoute", "-t", Shop.ORDERS).stdout().replaceAll("\\s", ""), "route");
        mqadmin.run("topicRoute", "-t", "nobody-knows")
            .fails("CODE: 17  DESC: No topic route info in name server for the topic: nobody-knows");
    }

    private static String route(Shop shop, int queues, int perm) {
        return ("{'brokerDatas':[{'brokerAddrs':{0:'%s'},'brokerName':'broker-a','cluster':'DefaultCluster','enableActingMaster':false}],"
            + "'filterServerTable':{},'queueDatas':[{'brokerName':'broker-a','perm':%d,'readQueueNums':%d,'topicSysFlag':0,"
            + "'writeQueueNums':%d}]}").formatted(shop.brokerAddress, perm, queues, queues).replace('\'', '"');
    }

    private static void topicStatus(Shop shop, Mqadmin mqadmin, Scenario s) {
        Mqadmin.Output output = mqadmin.run("topicStatus", "-t", Shop.ORDERS);
        for (int queueId = 0; queueId < 4; queueId++) {
            List<String> row = output.rowWith(Shop.BROKER, "" + queueId);
            output.check(row.subList(2, 4).equals(List.of("0", "3")), "minimum and maximum of queue " + queueId);
            output.check(row.get(4).matches("\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d,\\d{3}"), "last update of queue " + queueId);
        }
        output.check(output.rowsWith(Shop.BROKER).size() == 4, "four queues");
    }

    private static void topicClusterList(Shop shop, Mqadmin mqadmin, Scenario s) {
        mqadmin.run("topicClusterList", "-t", Shop.ORDERS).prints(Shop.CLUSTER);
    }

    private static void updateTopic(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        for (int queues : List.of(4, 6)) {
            mqadmin.run("updateTopic", "-c", Shop.CLUSTER, "-t", s.topic(), "-r", "" + queues, "-w", "" + queues).prints(
                "create topic to " + shop.brokerAddress + " success.",
                ("TopicConfig [topicName=%s, readQueueNums=%d, writeQueueNums=%d, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, "
                    + "order=false, attributes={}]").formatted(s.topic(), queues, queues));
            Check.equal(route(shop, queues, 6), mqadmin.run("topicRoute", "-t", s.topic()).stdout().replaceAll("\\s", ""), "route");
        }
        mqadmin.run("updateTopic", "-b", shop.brokerAddress, "-t", s.topic(), "-r", "6", "-w", "6", "-p", "4")
            .contains("create topic to " + shop.brokerAddress + " success.", "perm=R--");
        Check.equal(route(shop, 6, 4), mqadmin.run("topicRoute", "-t", s.topic()).stdout().replaceAll("\\s", ""), "read-only route");

        mqadmin.run("updateTopic", "-c", Shop.CLUSTER, "-t", s.topic() + "-order", "-r", "4", "-w", "4", "-o", "true")
            .contains("set cluster orderConf. isOrder=true, orderConf=[broker-a:4]", "order=true");
        mqadmin.run("updateTopic", "-b", shop.brokerAddress, "-t", "bad name!").fails("illegal characters");
    }

    private static void deleteTopic(Shop shop, Mqadmin mqadmin, Scenario s) {
        mqadmin.run("updateTopic", "-c", Shop.CLUSTER, "-t", s.topic()).contains("success");
        mqadmin.run("deleteTopic", "-t", s.topic(), "-c", Shop.CLUSTER).prints(
            "delete topic [" + s.topic() + "] from cluster [DefaultCluster] success.",
            "delete topic [" + s.topic() + "] from NameServer success.");
        mqadmin.run("topicRoute", "-t", s.topic()).fails("CODE: 17");
        Check.that(!mqadmin.run("topicList").lines().contains(s.topic()), "still in topicList");
    }

    // Subscription groups

    private static void updateSubGroup(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        mqadmin.run("updateSubGroup", "-c", Shop.CLUSTER, "-g", s.group(), "-q", "2", "-r", "5", "-d", "true").prints(
            "create subscription group to " + shop.brokerAddress + " success.",
            "SubscriptionGroupConfig{groupName=" + s.group() + ", consumeEnable=true, consumeFromMinEnable=false, "
                + "consumeBroadcastEnable=true, consumeMessageOrderly=false, retryQueueNums=2, retryMaxTimes=5, "
                + "groupRetryPolicy=GroupRetryPolicy{type=CUSTOMIZED, exponentialRetryPolicy=null, customizedRetryPolicy=null}, "
                + "brokerId=0, whichBrokerWhenConsumeSlowly=1, notifyConsumerIdsChangedEnable=true, groupSysFlag=0, "
                + "consumeTimeoutMinute=15, subscriptionDataSet=null, attributes={}}");
        SubscriptionGroupConfig config = shop.admin.examineSubscriptionGroupConfig(shop.brokerAddress, s.group());
        Check.equal(5, config.getRetryMaxTimes(), "retryMaxTimes");
        Check.equal(2, config.getRetryQueueNums(), "retryQueueNums");
        Check.equal(false, config.isConsumeFromMinEnable(), "consumeFromMinEnable");
        Check.equal(true, config.isConsumeBroadcastEnable(), "consumeBroadcastEnable");
    }

    private static void deleteSubGroup(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        mqadmin.run("updateSubGroup", "-b", shop.brokerAddress, "-g", s.group()).contains("success");
        mqadmin.run("deleteSubGroup", "-c", Shop.CLUSTER, "-g", s.group(), "-r", "true").prints(
            "delete subscription group [" + s.group() + "] from broker [" + shop.brokerAddress + "] in cluster [DefaultCluster] success.");
        Set<String> groups = shop.admin.getAllSubscriptionGroup(shop.brokerAddress, 5000).getSubscriptionGroupTable().keySet();
        Check.that(!groups.contains(s.group()), "still there");
        Check.that(groups.contains("billing"), "billing is still there: %s", groups);
    }

    // Brokers

    private static void brokerStatus(Shop shop, Mqadmin mqadmin, Scenario s) {
        Mqadmin.Output output = mqadmin.run("brokerStatus", "-b", shop.brokerAddress);
        List<String> missing = BROKER_STATUS_KEYS.stream()
            .filter(key -> output.lines().stream().noneMatch(line -> line.matches(key + "\\s*:.*"))).toList();
        output.check(missing.isEmpty(), "keys are missing: " + missing);
        output.check(output.value("brokerActive").equals("true"), "active");
        output.check(output.value("brokerVersionDesc").startsWith("V"), "version");
        output.check(Long.parseLong(output.value("putMessageTimesTotal")) >= 12, "messages put");
        output.check(Long.parseLong(output.value("msgPutTotalTodayNow")) >= 12, "messages put today");
        output.check(Long.parseLong(output.value("msgGetTotalTodayNow")) >= 12, "messages got today");
        output.check(Long.parseLong(output.value("commitLogMaxOffset")) > 12 * 200, "end of the commit log");
        output.check(output.value("commitLogMinOffset").equals("0"), "beginning of the commit log");
        output.check(output.value("getTotalTps").split(" ").length == 3, "three rates");
        Check.between(System.currentTimeMillis() - 600_000, System.currentTimeMillis(),
            Long.parseLong(output.value("earliestMessageTimeStamp")), "time of the first message");
    }

    private static void getBrokerConfig(Shop shop, Mqadmin mqadmin, Scenario s) {
        Mqadmin.Output output = mqadmin.run("getBrokerConfig", "-b", shop.brokerAddress);
        output.check(output.lines().get(0).equals("============" + shop.brokerAddress + "============"), "heading");
        Map<String, String> config = config(output);
        Map.of("brokerName", Shop.BROKER, "brokerClusterName", Shop.CLUSTER, "brokerId", "0", "namesrvAddr", shop.namesrv,
            "listenPort", shop.brokerAddress.split(":")[1], "autoCreateTopicEnable", "true", "flushDiskType", "ASYNC_FLUSH",
            "brokerRole", "ASYNC_MASTER", "maxMessageSize", "4194304",
            "messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
        ).forEach((key, value) -> output.check(value.equals(config.get(key)), key + " should be " + value + " but is " + config.get(key)));
    }

    private static Map<String, String> config(Mqadmin.Output output) {
        return output.lines().stream().filter(line -> line.contains("  =  "))
            .collect(Collectors.toMap(line -> line.split("=")[0].strip(), line -> line.substring(line.indexOf('=') + 1).strip()));
    }

    private static void updateBrokerConfig(Shop shop, Mqadmin mqadmin, Scenario s) {
        for (String hours : List.of("48", "72")) {
            mqadmin.run("updateBrokerConfig", "-b", shop.brokerAddress, "-k", "fileReservedTime", "-v", hours)
                .prints("update broker config success, " + shop.brokerAddress);
            Mqadmin.Output after = mqadmin.run("getBrokerConfig", "-b", shop.brokerAddress);
            after.check(hours.equals(config(after).get("fileReservedTime")), "fileReservedTime should be " + hours);
        }
        mqadmin.run("updateBrokerConfig", "-b", shop.brokerAddress, "-k", "brokerConfigPath", "-v", "/tmp/elsewhere").fails("CODE: ");
    }

    // Clients

    private static void consumerProgress(Shop shop, Mqadmin mqadmin, Scenario s) {
        Mqadmin.Output billing = mqadmin.run("consumerProgress", "-g", "billing");
        for (int queueId = 0; queueId < 4; queueId++) {
            List<String> row = billing.rowWith(Shop.ORDERS, Shop.BROKER, "" + queueId);
            billing.check(row.subList(3, 7).equals(List.of("3", "3", "0", "0")), "broker offset, consumer offset, diff, inflight");
            billing.check(row.get(7).matches("\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d"), "time of the last message consumed");
        }
        billing.rowWith("%RETRY%billing", Shop.BROKER, "0", "0", "0", "0", "0");
        billing.contains("Consume Diff Total: 0", "Consume Inflight Total: 0");

        Mqadmin.Output late = mqadmin.run("consumerProgress", "-g", "late");
        late.rowWith(Shop.ORDERS, Shop.BROKER, "3", "3", "1", "2");
        late.contains("Consume Diff Total: 8");

        Mqadmin.Output all = mqadmin.run("consumerProgress");
        List<String> row = all.rowWith("billing", "1");
        all.check(row.subList(3, 5).equals(List.of("PUSH", "CLUSTERING")) && row.get(6).equals("0"), "billing");
        all.check(all.rowWith("late", "0", "OFFLINE").get(4).equals("8"), "backlog of late");
    }

    private static void consumerStatus(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        Mqadmin.Output output = mqadmin.run("consumerStatus", "-g", "billing");
        String clientId = clientId(shop.billing);
        List<String> row = output.rowWith("1", clientId);
        output.check(row.get(2).equals("V5_3_3"), "version of the client");
        output.contains("Same subscription in the same group of consumer", "Rebalance OK");
        String report = Files.readString(Path.of(row.get(3)));
        Check.that(report.contains("#Consumer Offset#") && report.contains(Shop.ORDERS), "report in %s: %s", row.get(3), report);

        mqadmin.run("consumerStatus", "-g", "billing", "-i", clientId, "-s")
            .contains("#Consumer Subscription#", "#Consumer MQ Detail#", "#Consumer jstack#", "ConsumeMessageThread_billing");
    }

    private static void consumerConnection(Shop shop, Mqadmin mqadmin, Scenario s) {
        Mqadmin.Output output = mqadmin.run("consumerConnection", "-g", "billing");
        List<String> row = output.rowWith(clientId(shop.billing));
        output.check(row.get(1).startsWith("127.0.0.1:") && row.subList(2, 4).equals(List.of("JAVA", "V5_3_3")), "" + row);
        output.rowWith(Shop.ORDERS, "*");
        output.rowWith("%RETRY%billing", "*");
        output.contains("ConsumeType: CONSUME_PASSIVELY", "MessageModel: CLUSTERING", "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET");
        mqadmin.run("consumerConnection", "-g", "late").fails("CODE: 206  DESC: the consumer group[late] not online");
    }

    private static void producerConnection(Shop shop, Mqadmin mqadmin, Scenario s) {
        Mqadmin.Output output = mqadmin.run("producerConnection", "-g", "order-svc", "-t", Shop.ORDERS);
        List<String> row = output.rowWith("0001");
        String clientId = shop.producer.buildMQClientId();
        output.check(row.get(1).equals(clientId) && row.get(2).startsWith("127.0.0.1:") && row.get(3).equals("JAVA"), clientId);
        mqadmin.run("producerConnection", "-g", "nobody", "-t", Shop.ORDERS).fails("the producer group[nobody] not exist");
    }

    private static String clientId(DefaultMQPushConsumer consumer) {
        return consumer.buildMQClientId();
    }

    // Messages

    private static void queryMsgById(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        SendResult fifth = shop.sent.get(5);
        Mqadmin.Output output = mqadmin.run("queryMsgById", "-t", Shop.ORDERS, "-i", fifth.getOffsetMsgId(), "-f", "UTF-8");
        output.check(output.value("OffsetID").equals(fifth.getOffsetMsgId()), "offset id");
        checkFifthMessage(shop, output);
        output.check(output.value("Message Body").equals("order 5"), "body");
        String noSuchId = fifth.getOffsetMsgId().substring(0, 16) + "00000000FFFFFFFF";
        mqadmin.run("queryMsgById", "-t", Shop.ORDERS, "-i", noSuchId).fails("CODE: 208");
    }

    private static void queryMsgByUniqueKey(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        Check.eventually(30, () -> {
            checkFifthMessage(shop, mqadmin.run("queryMsgByUniqueKey", "-t", Shop.ORDERS, "-i", shop.sent.get(5).getMsgId()));
        });
    }

    private static void queryMsgByOffset(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        checkFifthMessage(shop, mqadmin.run("queryMsgByOffset", "-t", Shop.ORDERS, "-b", Shop.BROKER, "-i", "1", "-o", "1"));
    }

    /** Message 5 is the second in queue 1. */
    private static void checkFifthMessage(Shop shop, Mqadmin.Output output) throws Exception {
        Map.of("Topic", Shop.ORDERS, "Tags", "[cancelled]", "Keys", "[key-5]", "Queue ID", "1", "Queue Offset", "1",
            "Reconsume Times", "0", "Store Host", shop.brokerAddress, "System Flag", "0"
        ).forEach((name, value) -> output.check(output.value(name).equals(value), name + " should be " + value));
        output.contains("UNIQ_KEY=" + shop.sent.get(5).getMsgId(), "MSG_REGION=DefaultRegion", "CLUSTER=DefaultCluster", "WAIT=true",
            "TRACE_ON=true",
            "MessageTrack [consumerGroup=billing, trackType=CONSUMED, exceptionDesc=null]");
        Check.equal("order 5", Files.readString(Path.of(output.value("Message Body Path"))), "body in the file");
    }

    private static void queryMsgByKey(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        Check.eventually(30, () -> {
            Mqadmin.Output output = mqadmin.run("queryMsgByKey", "-t", Shop.ORDERS, "-k", "key-5");
            output.rowWith(shop.sent.get(5).getMsgId(), "1", "1");
            output.check(output.rows().size() == 2, "one message");
        });
        mqadmin.run("queryMsgByKey", "-t", Shop.ORDERS, "-k", "key-99").fails("CODE: 208");
    }

    private static void printMsg(Shop shop, Mqadmin mqadmin, Scenario s) {
        Mqadmin.Output output = mqadmin.run("printMsg", "-t", Shop.ORDERS);
        for (int queueId = 0; queueId < 4; queueId++) {
            output.contains("minOffset=0, maxOffset=3, MessageQueue [topic=orders, brokerName=broker-a, queueId=" + queueId + "]");
        }
        checkBodies(output, IntStream.range(0, 12).toArray());
        checkBodies(mqadmin.run("printMsg", "-t", Shop.ORDERS, "-s", "paid"), 0, 2, 4, 6, 8, 10);
    }

    private static void consumeMessage(Shop shop, Mqadmin mqadmin, Scenario s) {
        checkBodies(mqadmin.run("consumeMessage", "-t", Shop.ORDERS), IntStream.range(0, 12).toArray());
        checkBodies(mqadmin.run("consumeMessage", "-t", Shop.ORDERS, "-b", Shop.BROKER, "-i", "2"), 2, 6, 10);
        Mqadmin.Output one = mqadmin.run("consumeMessage", "-t", Shop.ORDERS, "-b", Shop.BROKER, "-i", "2", "-o", "1", "-c", "1");
        one.contains("Consume ok");
        checkBodies(one, 6);
    }

    private static void checkBodies(Mqadmin.Output output, int... messages) {
        List<String> bodies = output.lines().stream().filter(line -> line.startsWith("MSGID: "))
            .map(line -> line.substring(line.indexOf("BODY: ") + 6)).toList();
        List<String> expected = IntStream.of(messages).mapToObj(i -> "order " + i).sorted().toList();
        output.check(bodies.stream().sorted().toList().equals(expected), "expected " + expected + ", got " + bodies);
    }

    private static void sendMessage(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        mqadmin.run("updateTopic", "-c", Shop.CLUSTER, "-t", s.topic(), "-r", "4", "-w", "4").contains("success");
        Mqadmin.Output anyQueue = mqadmin.run("sendMessage", "-t", s.topic(), "-p", "hello", "-k", "K1", "-c", "TagA");
        anyQueue.check(anyQueue.rowWith(Shop.BROKER).get(2).equals("SEND_OK"), "sent");
        Mqadmin.Output queue3 = mqadmin.run("sendMessage", "-t", s.topic(), "-p", "hello again", "-b", Shop.BROKER, "-i", "3");
        String id = queue3.rowWith(Shop.BROKER, "3", "SEND_OK").get(3);
        Check.equal(List.of("hello", "hello again"), s.storedBodies(s.topic(), 2), "stored");
        Check.eventually(30, () -> {
            mqadmin.run("queryMsgByUniqueKey", "-t", s.topic(), "-i", id).contains("UNIQ_KEY=" + id);
        });
    }

    // Offsets

    private static void resetOffsetByTime(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        // A group that is offline goes on from there when it comes back.
        consumeAll(shop, s.group("offline"), new Inbox()).shutdown();
        Check.equal(Map.of(0, 3L, 1, 3L, 2, 3L, 3, 3L), shop.committed(s.group("offline")), "offsets before");
        checkReset(mqadmin.run("resetOffsetByTime", "-g", s.group("offline"), "-t", Shop.ORDERS, "-s", "0"), "0");
        Inbox again = new Inbox();
        consumeAll(shop, s.group("offline"), again).shutdown();

        // A group that is online goes on from there at once.
        Inbox online = new Inbox();
        DefaultMQPushConsumer consumer = consumeAll(shop, s.group("online"), online);
        checkReset(mqadmin.run("resetOffsetByTime", "-g", s.group("online"), "-t", Shop.ORDERS, "-s", "0"), "0");
        online.await(24, 90);
        Check.sameElements(List.copyOf(Set.copyOf(online.bodies())), again.bodies(), "bodies consumed again");
        checkReset(mqadmin.run("resetOffsetByTime", "-g", s.group("online"), "-t", Shop.ORDERS, "-s", "now"), "3");
        consumer.shutdown();
        mqadmin.run("resetOffsetByTime", "-g", "nobody", "-t", Shop.ORDERS, "-s", "0").fails("Group nobody does not exist");
    }

    private static void checkReset(Mqadmin.Output output, String offset) {
        for (int queueId = 0; queueId < 4; queueId++) {
            output.rowWith(Shop.BROKER, "" + queueId, offset);
        }
    }

    /** A consumer of this group that has received all of the 12 messages. */
    private static DefaultMQPushConsumer consumeAll(Shop shop, String group, Inbox inbox) throws Exception {
        DefaultMQPushConsumer consumer = shop.consumer(group);
        shop.start(consumer, inbox);
        inbox.await(12, 60);
        return consumer;
    }

    private static void cloneGroupOffset(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        // The retry topic of the group, which commands look for, comes with its first consumer.
        consumeAll(shop, s.group(), new Inbox()).shutdown();
        mqadmin.run("cloneGroupOffset", "-s", "late", "-d", s.group(), "-t", Shop.ORDERS)
            .prints("clone group offset success. srcGroup[late], destGroup=[" + s.group() + "], topic[orders]");
        Check.equal(Map.of(0, 1L, 1, 1L, 2, 1L, 3, 1L), shop.committed(s.group()), "offsets of the destination");
    }

    private static void statsAll(Shop shop, Mqadmin mqadmin, Scenario s) {
        Mqadmin.Output output = mqadmin.run("statsAll", "-t", Shop.ORDERS);
        output.check(output.rowWith(Shop.ORDERS, "billing").get(2).equals("0"), "backlog of billing");
        output.check(output.rowWith(Shop.ORDERS, "late").get(2).equals("8"), "backlog of late");
        mqadmin.run("statsAll").rowWith(Shop.ORDERS, "billing");
    }

    // Name server

    private static void wipeWritePerm(Shop shop, Mqadmin mqadmin, Scenario s) {
        wipe(shop, mqadmin);
        Check.equal(route(shop, 4, 4), mqadmin.run("topicRoute", "-t", Shop.ORDERS).stdout().replaceAll("\\s", ""), "route without write");
        add(shop, mqadmin);
    }

    private static void addWritePerm(Shop shop, Mqadmin mqadmin, Scenario s) {
        wipe(shop, mqadmin);
        add(shop, mqadmin);
        Check.equal(route(shop, 4, 6), mqadmin.run("topicRoute", "-t", Shop.ORDERS).stdout().replaceAll("\\s", ""), "route with write");
    }

    private static void wipe(Shop shop, Mqadmin mqadmin) {
        checkPermChange(mqadmin.run("wipeWritePerm", "-b", Shop.BROKER), "wipe", shop.namesrv);
    }

    private static void add(Shop shop, Mqadmin mqadmin) {
        checkPermChange(mqadmin.run("addWritePerm", "-b", Shop.BROKER), "add", shop.namesrv);
    }

    private static void checkPermChange(Mqadmin.Output output, String verb, String namesrv) {
        String beginning = verb + " write perm of broker[broker-a] in name server[" + namesrv + "] OK, ";
        output.check(output.stdout().strip().matches("\\Q" + beginning + "\\E[1-9]\\d*"), "some topics");
    }

    private static void updateKvConfig(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        for (String value : List.of("first value", "second value")) {
            mqadmin.run("updateKvConfig", "-s", "NS1", "-k", "key", "-v", value).prints("create or update kv config to namespace success.");
            Check.equal(value, shop.admin.getKVConfig("NS1", "key"), "value");
        }
    }

    private static void deleteKvConfig(Shop shop, Mqadmin mqadmin, Scenario s) throws Exception {
        mqadmin.run("updateKvConfig", "-s", "NS2", "-k", "key", "-v", "value").contains("success");
        mqadmin.run("deleteKvConfig", "-s", "NS2", "-k", "key").prints("delete kv config from namespace success.");
        try {
            throw new AssertionError("still there: " + shop.admin.getKVConfig("NS2", "key"));
        } catch (MQClientException e) {
            Check.equal(22, e.getResponseCode(), "code of " + e.getErrorMessage());
        }
    }

    // Maintenance: nothing that is in use may be gone afterwards.

    private static void cleanUnusedTopic(Shop shop, Mqadmin mqadmin, Scenario s) {
        mqadmin.run("cleanUnusedTopic", "-b", shop.brokerAddress).prints("success");
        mqadmin.run("cleanUnusedTopic", "-c", Shop.CLUSTER).prints("success");
        topicStatus(shop, mqadmin, s);
    }

    private static void cleanExpiredCQ(Shop shop, Mqadmin mqadmin, Scenario s) {
        mqadmin.run("cleanExpiredCQ", "-b", shop.brokerAddress).prints("success");
        mqadmin.run("cleanExpiredCQ", "-c", Shop.CLUSTER).prints("success");
        topicStatus(shop, mqadmin, s);
    }
}
