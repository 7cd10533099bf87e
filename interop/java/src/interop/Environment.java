package interop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/** What `interop/run` tells its programs. */
public final class Environment {
    /** Name of this program, e.g. `java-5.3.3`. */
    public static final String PROGRAM = required("INTEROP_PROGRAM");

    /** Name servers of the cluster that the scenarios share. */
    public static final String NAMESRV = System.getenv("INTEROP_NAMESRV");

    /** Directory of the servers; each has one in it that is named after it. */
    public static final String SERVERS_DIR = System.getenv("INTEROP_SERVERS_DIR");

    private static final String SERVERS = System.getenv("INTEROP_SERVERS");

    private Environment() { }

    public static String address(String server) throws IOException {
        return Files.readString(Path.of(SERVERS_DIR, server, "address")).trim();
    }

    public static Path directory(String server) {
        return Path.of(SERVERS_DIR, server);
    }

    /** Runs `interop/servers ACTION DIR-OF-SERVER MORE…`. */
    public static void servers(String action, String server, String... more) throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(List.of(SERVERS, action, directory(server).toString()));
        command.addAll(List.of(more));
        Files.createDirectories(directory(server));
        // Not inherited or piped: a server that is started would keep the stream open.
        Process process = new ProcessBuilder(command).redirectErrorStream(true)
            .redirectOutput(directory(server).resolve(action + ".out").toFile()).start();
        if (process.waitFor() != 0) {
            throw new IOException(command + " ended with " + process.exitValue());
        }
    }

    /** Names of topics and groups may not hold dots. */
    static String name(String... parts) {
        return Stream.of(parts).reduce(PROGRAM, (a, b) -> a + "-" + b).replace('.', '_');
    }

    private static String required(String variable) {
        String value = System.getenv(variable);
        if (value == null) {
            throw new IllegalStateException(variable + " is not set; start this program with interop/run");
        }
        return value;
    }
}
