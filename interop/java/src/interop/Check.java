package interop;

import java.util.Collection;
import java.util.Objects;
import java.util.concurrent.Callable;

/** Assertions, and waiting for something with a deadline. */
public final class Check {
    @FunctionalInterface
    public interface Assertions {
        void check() throws Exception;
    }

    private Check() { }

    public static void that(boolean condition, String otherwise, Object... args) {
        if (!condition) {
            throw new AssertionError(args.length == 0 ? otherwise : String.format(otherwise, args));
        }
    }

    public static void equal(Object expected, Object actual, String what) {
        that(Objects.equals(expected, actual), "%s: expected <%s>, got <%s>", what, expected, actual);
    }

    /** The same elements as often, in any order. */
    public static <T extends Comparable<T>> void sameElements(Collection<T> expected, Collection<T> actual, String what) {
        equal(expected.stream().sorted().toList(), actual.stream().sorted().toList(), what);
    }

    public static void between(long low, long high, long actual, String what) {
        that(low <= actual && actual <= high, "%s: expected %d to %d, got %d", what, low, high, actual);
    }

    /** Waits until the condition holds. A failure names what was waited for. */
    public static void await(int seconds, String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + seconds * 1_000_000_000L;
        while (!condition.call()) {
            that(System.nanoTime() < deadline, "not within %d s: %s", seconds, what);
            Thread.sleep(20);
        }
    }

    /** Waits until assertions hold. After the deadline the last failure is thrown. */
    public static void eventually(int seconds, Assertions assertions) throws Exception {
        AssertionError[] last = new AssertionError[1];
        try {
            await(seconds, "assertions", () -> {
                try {
                    assertions.check();
                    return true;
                } catch (AssertionError e) {
                    last[0] = e;
                    return false;
                }
            });
        } catch (AssertionError e) {
            throw last[0];
        }
    }
}
