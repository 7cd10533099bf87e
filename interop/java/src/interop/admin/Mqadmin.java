package interop.admin;

import interop.Check;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs commands of the real mqadmin in this process. One at a time, since a command prints to the process's output. */
final class Mqadmin extends MQAdminStartup {
    private final String namesrv;

    Mqadmin(String namesrv) {
        this.namesrv = namesrv;
    }

    /** The words of a command line without `mqadmin` and without `-n`. */
    Output run(String command, String... options) {
        String[] words = Stream.of(Stream.of(command, "-n", namesrv), Arrays.stream(options)).flatMap(s -> s).toArray(String[]::new);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        synchronized (Mqadmin.class) {
            PrintStream oldOut = System.out;
            PrintStream oldErr = System.err;
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            // Commands are made for one run; main0 adds new ones.
            SUB_COMMANDS.clear();
            try {
                main0(words, null);
            } finally {
                System.setOut(oldOut);
                System.setErr(oldErr);
            }
        }
        return new Output(String.join(" ", words), out.toString(StandardCharsets.UTF_8), err.toString(StandardCharsets.UTF_8));
    }

    record Output(String command, String stdout, String stderr) {
        List<String> lines() {
            return stdout.lines().toList();
        }

        /** The cells of each line; columns are at least two blanks apart. */
        List<List<String>> rows() {
            return lines().stream().filter(line -> !line.isBlank()).map(line -> List.of(line.strip().split("\\s{2,}"))).toList();
        }

        /** The rows that start with these cells. */
        List<List<String>> rowsWith(String... cells) {
            List<String> start = List.of(cells);
            return rows().stream().filter(row -> row.size() >= start.size() && row.subList(0, start.size()).equals(start)).toList();
        }

        List<String> rowWith(String... cells) {
            List<List<String>> found = rowsWith(cells);
            check(found.size() == 1, found.size() + " rows start with " + List.of(cells));
            return found.get(0);
        }

        /** What stands after the colon of the line that starts with this name. */
        String value(String name) {
            List<String> values = lines().stream().filter(line -> line.matches("\\Q" + name + "\\E\\s*:.*"))
                .map(line -> line.substring(line.indexOf(':') + 1).strip()).toList();
            check(values.size() == 1, values.size() + " lines for " + name);
            return values.get(0);
        }

        Output prints(String... lines) {
            return prints(List.of(lines));
        }

        /** Exactly these lines, apart from empty ones at the end. */
        Output prints(List<String> lines) {
            check(stdout.stripTrailing().lines().map(String::stripTrailing).toList().equals(lines), "expected " + lines);
            return this;
        }

        Output contains(String... texts) {
            for (String text : texts) {
                check(stdout.contains(text), "expected to contain " + text);
            }
            return this;
        }

        /** The command failed, and says so in this way. */
        void fails(String reason) {
            check(stderr.contains(reason), "expected the error " + reason);
        }

        void check(boolean condition, String problem) {
            Check.that(condition, "%s", condition ? "" : problem + "\nmqadmin " + command + "\n"
                + Stream.of(stdout, stderr).flatMap(String::lines).limit(60).collect(Collectors.joining("\n")));
        }
    }
}
