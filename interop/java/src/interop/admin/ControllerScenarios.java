package interop.admin;

import interop.Check;
import interop.Environment;
import interop.Inbox;
import interop.Scenario;
import interop.Suite;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;

/** Brokers under a group of three controllers: who is master, what happens when it dies, and the commands of mqadmin for it. */
public final class ControllerScenarios {
    private static final String REAL = "rocketmq-5.3.3";
    private static final String OURS = System.getenv("INTEROP_AGAINST");

    private ControllerScenarios() { }

    public static void main(String[] args) throws Exception {
        new Suite()
            .add("controllers", ControllerScenarios::controllers)
            .add("leading-controller-dies", ControllerScenarios::leadingControllerDies)
            .add("real-master-dies", s -> masterDies(s, REAL, REAL))
            .add("elect-and-clean", s -> electAndClean(s, REAL, REAL))
            .add("our-master-dies", s -> masterDies(s, OURS, OURS))
            .add("our-elect-and-clean", s -> electAndClean(s, OURS, OURS))
            .add("our-master-and-real-slave", s -> masterDies(s, OURS, REAL))
            .add("real-master-and-our-slave", s -> masterDies(s, REAL, OURS))
            .main(1, args);
    }

    /** getControllerMetaData, getControllerConfig, updateControllerConfig. */
    private static void controllers(Scenario s) throws Exception {
        Mqadmin mqadmin = new Mqadmin(s.namesrv());
        List<String> addresses = List.of(Environment.address("controller").split(";"));
        for (String address : addresses) {
            Check.await(60, "a leader that " + address + " knows",
                () -> mqadmin.run("getControllerMetaData", "-a", address).stdout().contains("#ControllerLeaderAddress\t127.0.0.1:"));
            Mqadmin.Output metadata = mqadmin.run("getControllerMetaData", "-a", address).contains("#ControllerGroup\tgroup1");
            for (int id = 0; id < addresses.size(); id++) {
                metadata.contains("#Peer:\tn" + id + ":" + addresses.get(id));
            }
        }
        String all = String.join(";", addresses);
        mqadmin.run("updateControllerConfig", "-a", all, "-k", "scanNotActiveBrokerInterval", "-v", "3000")
            .contains("update controller config success!");
        Mqadmin.Output config = mqadmin.run("getControllerConfig", "-a", all);
        Check.equal(addresses.size(), config.rowsWith("scanNotActiveBrokerInterval", "=", "3000").size(), "controllers with the new value");
        mqadmin.run("updateControllerConfig", "-a", all, "-k", "configStorePath", "-v", "/tmp/elsewhere").fails("CODE: 16");
    }

    private static void leadingControllerDies(Scenario s) throws Exception {
        try (BrokerSet set = new BrokerSet(s, "leader-dies", REAL)) {
            set.awaitSyncStateSet(1);
            int leader = set.leadingController();
            Environment.servers("kill", "controller-" + leader);
            Check.await(60, "another leader", () -> set.leadingController() != leader);
            set.awaitSyncStateSet(1);
            Environment.servers("start", "controller-" + leader);
        }
    }

    /** Whatever was acknowledged by all replicas survives the master, and the dead one comes back as a slave. */
    private static void masterDies(Scenario s, String... kinds) throws Exception {
        try (BrokerSet set = new BrokerSet(s, s.topic() + "-set", kinds)) {
            set.awaitSyncStateSet(kinds.length);
            set.createTopic(s);
            DefaultMQProducer producer = s.producer();
            List<String> bodies = new ArrayList<>(IntStream.range(0, 100).mapToObj(i -> "before " + i).toList());
            s.send(producer, bodies);

            int dead = set.master();
            Environment.servers("kill", set.server(dead));
            Check.await(60, "another master", () -> set.master() != dead);
            set.awaitRegistered();
            List<String> after = IntStream.range(0, 100).mapToObj(i -> "after " + i).toList();
            Check.await(60, "a message that the new master takes", () -> {
                try {
                    return producer.send(s.message("first after")).getSendStatus() == SendStatus.SEND_OK;
                } catch (Exception e) {
                    return false;
                }
            });
            s.send(producer, after);
            Environment.servers("start", set.server(dead));
            set.awaitSyncStateSet(kinds.length);
            Check.that(set.master() != dead, "the old master must not become master again by coming back");

            Inbox inbox = new Inbox();
            s.consume(s.group(), inbox);
            bodies.addAll(after);
            bodies.add("first after");
            // A send that was not answered may have been stored all the same.
            Check.await(60, "all messages", () -> inbox.bodies().containsAll(bodies));
        }
    }

    /** getSyncStateSet, electMaster, cleanBrokerMetadata, getBrokerEpoch. */
    private static void electAndClean(Scenario s, String... kinds) throws Exception {
        Mqadmin mqadmin = new Mqadmin(s.namesrv());
        try (BrokerSet set = new BrokerSet(s, s.topic() + "-set", kinds)) {
            set.awaitSyncStateSet(kinds.length);
            int old = set.master();
            int wanted = 3 - old;
            String controller = set.controller();
            String[] broker = {"-a", controller, "-b", String.valueOf(wanted), "-bn", set.name, "-c", Shop.CLUSTER};
            mqadmin.run("electMaster", broker).contains("#BrokerMasterAddr\t" + Environment.address(set.server(wanted)));
            Check.equal(wanted, set.master(), "master after electMaster");
            set.awaitSyncStateSet(kinds.length);
            set.awaitRegistered();
            Check.await(60, "both brokers tell their epochs", () ->
                mqadmin.run("getBrokerEpoch", "-b", set.name).lines().stream().filter(line -> line.startsWith("#brokerId")).count() == 2);

            String[] other = {"-a", controller, "-b", String.valueOf(old), "-bn", set.name, "-c", Shop.CLUSTER};
            mqadmin.run("cleanBrokerMetadata", other).fails("is still alive, clean up failure");
            Environment.servers("kill", set.server(old));
            Check.await(60, "the dead one leaves the SyncStateSet", () -> set.inSync().size() == 1);
            Check.await(60, "the controller to notice its death", () ->
                mqadmin.run("cleanBrokerMetadata", other).stdout().contains("clear broker"));
            Check.that(!set.syncStateSet().stdout().contains("brokerId=" + old + ","), "the cleaned one is still shown");
        }
    }

    /** Brokers of one name, with the ids 1, 2, … that the controllers gave them one after the other. */
    private static final class BrokerSet implements AutoCloseable {
        private final Mqadmin mqadmin;
        private final String name;
        private final String[] kinds;

        BrokerSet(Scenario s, String name, String... kinds) throws Exception {
            this.mqadmin = new Mqadmin(s.namesrv());
            this.name = name;
            this.kinds = kinds;
            for (int id = 1; id <= kinds.length; id++) {
                Environment.servers("create", server(id), kinds[id - 1], "brokerName=" + name, "namesrvAddr=" + s.namesrv(),
                    "enableControllerMode=true", "controllerAddr=" + Environment.address("controller"), "brokerRole=SLAVE",
                    "allAckInSyncStateSet=true", "registerNameServerPeriod=10000");
                Environment.servers("start", server(id));
                int registered = id;
                Check.await(60, "broker " + id + " to get its id", () -> syncStateSet().stdout().contains("brokerId=" + registered + ","));
            }
        }

        String server(int id) {
            return name + "-broker-" + id;
        }

        String controller() throws Exception {
            return Environment.address("controller-" + leadingController());
        }

        int leadingController() throws Exception {
            for (int id = 0; id < 3; id++) {
                String address = Environment.address("controller-" + id);
                for (String line : mqadmin.run("getControllerMetaData", "-a", address).lines()) {
                    if (line.strip().matches("#ControllerLeaderId\tn\\d+")) {
                        return Integer.parseInt(line.substring(line.indexOf("\tn") + 2).strip());
                    }
                }
            }
            return -1;
        }

        Mqadmin.Output syncStateSet() throws Exception {
            return mqadmin.run("getSyncStateSet", "-a", controllerOrAny(), "-b", name);
        }

        private String controllerOrAny() throws Exception {
            int leader = leadingController();
            return Environment.address("controller-" + Math.max(leader, 0));
        }

        List<String> inSync() throws Exception {
            return syncStateSet().lines().stream().filter(line -> line.startsWith("InSyncReplica")).toList();
        }

        int master() throws Exception {
            return syncStateSet().lines().stream().filter(line -> line.startsWith("#MasterBrokerId\t"))
                .map(line -> line.substring(line.indexOf('\t') + 1).strip()).filter(id -> id.matches("\\d+"))
                .map(Integer::parseInt).findFirst().orElse(-1);
        }

        void awaitSyncStateSet(int size) throws Exception {
            Check.await(120, size + " replicas in sync", () -> inSync().size() == size);
        }

        /** Until the name server has the master as such. */
        void awaitRegistered() throws Exception {
            Check.await(60, "the master at the name server", () -> {
                String address = address(master());
                return mqadmin.run("clusterList").rowsWith(Shop.CLUSTER, name, "0").stream().anyMatch(row -> row.contains(address));
            });
        }

        private String address(int id) throws Exception {
            return id < 0 ? "" : Environment.address(server(id));
        }

        void createTopic(Scenario s) throws Exception {
            awaitRegistered();
            mqadmin.run("updateTopic", "-b", Environment.address(server(master())), "-t", s.topic(), "-r", "4", "-w", "4").contains("success");
        }

        @Override
        public void close() throws Exception {
            for (int id = 1; id <= kinds.length; id++) {
                if (Environment.directory(server(id)).resolve("pid").toFile().exists()) {
                    Environment.servers("kill", server(id));
                }
            }
        }
    }
}
