package interop.sdk;

import interop.Environment;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * A client of either language in a process of its own, so that it can be killed: `interop/rust/peer.rs`, which says what it prints,
 * or `JavaPeer`.
 */
final class Peer implements AutoCloseable {
    enum Language { RUST, JAVA }

    private final Process process;
    private final PrintStream input;

    private Peer(Process process, Consumer<String> reader) {
        this.process = process;
        input = new PrintStream(process.getOutputStream(), true);
        Thread thread = new Thread(() -> read(reader), "peer-output");
        thread.setDaemon(true);
        thread.start();
    }

    /** Each line that it prints goes to `reader`. */
    static Peer start(Language language, String role, String topic, String group, Consumer<String> reader) throws IOException {
        List<String> command = new ArrayList<>();
        if (language == Language.RUST) {
            command.add(System.getenv("INTEROP_RUST_PEER"));
        } else {
            command.add(ProcessHandle.current().info().command().orElse("java"));
            command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
            command.addAll(List.of("-cp", System.getProperty("java.class.path"), JavaPeer.class.getName()));
        }
        command.addAll(List.of(role, Environment.NAMESRV, topic, group));
        return new Peer(new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start(), reader);
    }

    /** A line for its input. */
    void tell(String line) {
        input.println(line);
    }

    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }

    private void read(Consumer<String> reader) {
        new BufferedReader(new InputStreamReader(process.getInputStream())).lines().forEach(reader);
    }
}
