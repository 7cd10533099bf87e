package interop;

import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

/** The scenarios of one program. Runs them, several at the same time, and prints a line for each as it ends. */
public final class Suite {
    @FunctionalInterface
    public interface Body {
        void run(Scenario scenario) throws Exception;
    }

    private static final PrintStream OUT = System.out;

    private final Map<String, Body> bodies = new LinkedHashMap<>();
    private final AtomicInteger failures = new AtomicInteger();

    public Suite add(String name, Body body) {
        bodies.put(name, body);
        return this;
    }

    /** `--list` prints the names; otherwise runs the scenarios named in args, or all, and exits with 1 if any failed. */
    public void main(int threads, String... args) throws Exception {
        if (args.length > 0 && args[0].equals("--list")) {
            bodies.keySet().forEach(name -> OUT.println(Environment.PROGRAM + "/" + name));
            return;
        }
        List<String> only = List.of(args);
        ExecutorService executor = Executors.newFixedThreadPool(threads);
        List<Future<?>> running = new ArrayList<>();
        bodies.forEach((name, body) -> {
            if (only.isEmpty() || only.contains(name)) {
                running.add(executor.submit(() -> run(name, body)));
            }
        });
        for (Future<?> scenario : running) {
            scenario.get();
        }
        // Clients leave non-daemon threads behind.
        Runtime.getRuntime().halt(failures.get() == 0 ? 0 : 1);
    }

    private void run(String name, Body body) {
        long start = System.nanoTime();
        Throwable failure = null;
        try (Scenario scenario = new Scenario(name)) {
            body.run(scenario);
        } catch (Throwable e) {
            failure = e;
        }
        String line = String.format("%s  %s/%s  %.1f s", failure == null ? "PASS" : "FAIL", Environment.PROGRAM, name,
            (System.nanoTime() - start) / 1e9);
        synchronized (OUT) {
            OUT.println(line);
            if (failure != null) {
                failures.incrementAndGet();
                StringWriter trace = new StringWriter();
                failure.printStackTrace(new PrintWriter(trace));
                trace.toString().lines().forEach(l -> OUT.println("      " + l));
            }
            OUT.flush();
        }
    }
}
