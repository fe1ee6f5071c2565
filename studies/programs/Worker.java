import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The worker protocol, version 1 (docs/reference/formats.md), for Java programs that studies measure; worker.h is the same for C.
 *
 * <p>A program times itself, between {@link #begin} and {@link #end}. Allocating, checking and warming up lie outside.
 */
abstract class Worker {
    /** What some operations took. Add up as many parts as there are. */
    static final class Cost {
        long wallNs;
        final Usage used = new Usage();
        /** The part of it that another process had. */
        final Usage far = new Usage();
        long bytes;
    }

    /** What a process has used. */
    static final class Usage {
        long userUs;
        long sysUs;
        long minorFaults;
        long majorFaults;
        long voluntary;
        long involuntary;

        void add(Usage other) {
            userUs += other.userUs;
            sysUs += other.sysUs;
            minorFaults += other.minorFaults;
            majorFaults += other.majorFaults;
            voluntary += other.voluntary;
            involuntary += other.involuntary;
        }

        /** Adds what lies between two readings; a clock that went backwards adds nothing. */
        void addSince(Usage from, Usage to) {
            userUs += Math.max(0, to.userUs - from.userUs);
            sysUs += Math.max(0, to.sysUs - from.sysUs);
            minorFaults += Math.max(0, to.minorFaults - from.minorFaults);
            majorFaults += Math.max(0, to.majorFaults - from.majorFaults);
            voluntary += Math.max(0, to.voluntary - from.voluntary);
            involuntary += Math.max(0, to.involuntary - from.involuntary);
        }
    }

    /** How a program learns what its process has used so far. */
    interface Meter {
        Usage now();
    }

    /** A moment: the clock, and what was used until then. */
    static final class Mark {
        private final Usage usage;
        final long wallNs;

        private Mark(Usage usage, long wallNs) {
            this.usage = usage;
            this.wallNs = wallNs;
        }
    }

    /** Why the work cannot be done here. The lab shows it. */
    static final class Unfit extends RuntimeException {
        private static final long serialVersionUID = 1;

        Unfit(String reason) {
            super(reason);
        }
    }

    private final Meter meter;

    Worker(Meter meter) {
        this.meter = meter;
    }

    /** Allocates and touches everything, and runs until it is compiled. */
    abstract void warm() throws Exception;

    /** Does the operation so many times. */
    abstract void run(long times, Cost cost) throws Exception;

    /** Does it once more and looks at the bytes: null, or what is wrong. */
    abstract String check() throws Exception;

    /** Whether it touches fresh memory on purpose: page faults are part of the work. */
    boolean touchesFresh() {
        return false;
    }

    /** Gives back what would outlive the process. */
    void close() throws Exception {}

    // ---- time ----

    final Mark begin() {
        Usage usage = meter.now();
        return new Mark(usage, System.nanoTime());
    }

    /** Adds what was used since a moment. */
    final void end(Mark from, Cost cost) {
        long now = System.nanoTime();
        cost.used.addSince(from.usage, meter.now());
        cost.wallNs += now - from.wallNs;
    }

    /** Does it again and again for so many milliseconds; not at all for 0. */
    final void warmUp(long milliseconds) throws Exception {
        long until = System.nanoTime() + milliseconds * 1_000_000;
        while (System.nanoTime() < until) {
            run(1, new Cost());
        }
    }

    // ---- the conversation ----

    /** Obeys until {@code quit} or the end of input. */
    final void obey() throws Exception {
        var orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            for (String line = orders.readLine(); line != null && !line.equals("quit"); line = orders.readLine()) {
                System.out.println(answer(line));
                System.out.flush();
            }
        } finally {
            close();
        }
    }

    private String answer(String line) throws Exception {
        switch (line) {
            case "hello":
                return touchesFresh() ? "thalweg-worker 1 faults" : "thalweg-worker 1";
            case "warm":
                warm();
                // The clock's own classes are loaded now, too.
                end(begin(), new Cost());
                return "ok";
            case "check":
                String wrong = check();
                return wrong == null ? "ok" : "wrong " + wrong;
            case "alias":
                return "none";
            case "memory":
                return "0";
            default:
                if (line.startsWith("run ")) {
                    return taken(Long.parseLong(line.substring("run ".length())));
                }
                return "unfit no such command: " + line;
        }
    }

    private String taken(long times) throws Exception {
        var cost = new Cost();
        run(times, cost);
        return "{\"wall_ns\":" + cost.wallNs + ",\"user_us\":" + cost.used.userUs + ",\"sys_us\":" + cost.used.sysUs
                + ",\"minor_faults\":" + cost.used.minorFaults + ",\"major_faults\":" + cost.used.majorFaults
                + ",\"voluntary\":" + cost.used.voluntary + ",\"involuntary\":" + cost.used.involuntary
                + ",\"bytes\":" + cost.bytes + ",\"far_user_us\":" + cost.far.userUs
                + ",\"far_sys_us\":" + cost.far.sysUs + "}";
    }

    /** A program's main: makes the worker, obeys, and tells why it cannot. */
    static void main(String[] words, List<String> keys, Maker maker) throws Exception {
        try {
            maker.make(new Parameters(words, keys)).obey();
        } catch (Unfit unfit) {
            System.out.println("unfit " + unfit.getMessage());
            System.out.flush();
            System.exit(1);
        }
    }

    /** Makes the worker of a program. */
    interface Maker {
        Worker make(Parameters parameters) throws Exception;
    }

    /** Words of the form key=value. */
    static final class Parameters {
        private final Map<String, String> values = new TreeMap<>();

        Parameters(String[] words, List<String> keys) {
            for (String word : words) {
                int equals = word.indexOf('=');
                if (equals < 1) {
                    throw new Unfit(word + ": not of the form key=value");
                }
                String key = word.substring(0, equals);
                if (!keys.contains(key)) {
                    throw new Unfit(key + ": no such parameter; known: " + String.join(" ", keys));
                }
                values.putIfAbsent(key, word.substring(equals + 1));
            }
        }

        String text(String key, String otherwise) {
            return values.getOrDefault(key, otherwise);
        }

        long number(String key, long otherwise) {
            String text = values.get(key);
            if (text == null) {
                return otherwise;
            }
            try {
                return Long.parseUnsignedLong(text);
            } catch (NumberFormatException notOne) {
                throw new Unfit(key + "=" + text + ": not a number");
            }
        }

        /** One of these words; the first where it is not given. */
        String choice(String key, List<String> words) {
            String text = text(key, words.get(0));
            if (!words.contains(text)) {
                throw new Unfit(key + "=" + text + ": not known here");
            }
            return text;
        }
    }

    /** Ends, with the reason, where so many bytes are not to be had without driving others out. */
    static void needs(long bytes) {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/meminfo"))) {
                if (line.startsWith("MemAvailable:")) {
                    long kib = Long.parseLong(line.replaceAll("[^0-9]", ""));
                    if (kib < bytes >> 10) {
                        throw new Unfit("it needs " + (bytes >> 20) + " MiB of memory, and " + (kib >> 10)
                                + " MiB are available");
                    }
                }
            }
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
    }
}
