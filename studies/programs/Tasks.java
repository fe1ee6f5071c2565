import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;

/**
 * What the process has used, from /proc: for releases without foreign functions. The thread that asks is read to the
 * nanosecond; the others, which compile and collect, as of their last switch. Switches are those of the thread that asks.
 */
final class Tasks implements Worker.Meter {
    private static final long US_PER_TICK = 10_000;
    private static final Path TASKS = Path.of("/proc/self/task");

    private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();

    @Override
    public Worker.Usage now() {
        try {
            var usage = new Worker.Usage();
            // What stands behind the name, which may hold blanks: state, ppid, ... (proc_pid_stat(5)).
            String stat = Files.readString(Path.of("/proc/self/stat"));
            String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
            usage.minorFaults = Long.parseLong(fields[7]);
            usage.majorFaults = Long.parseLong(fields[9]);
            usage.sysUs = Long.parseLong(fields[12]) * US_PER_TICK;
            switches(usage);
            usage.userUs = (threads.getCurrentThreadCpuTime() + others()) / 1000 - usage.sysUs;
            return usage;
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
    }

    private static void switches(Worker.Usage usage) throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/thread-self/status"))) {
            if (line.startsWith("voluntary_ctxt_switches:")) {
                usage.voluntary = last(line);
            } else if (line.startsWith("nonvoluntary_ctxt_switches:")) {
                usage.involuntary = last(line);
            }
        }
    }

    private static long last(String line) {
        return Long.parseLong(line.substring(line.lastIndexOf('\t') + 1));
    }

    /** Nanoseconds of all threads but the one that asks. */
    private static long others() throws IOException {
        String own = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
        long sum = 0;
        try (var tasks = Files.newDirectoryStream(TASKS)) {
            for (Path task : tasks) {
                if (!task.getFileName().toString().equals(own)) {
                    sum += runTime(task);
                }
            }
        }
        return sum;
    }

    private static long runTime(Path task) throws IOException {
        try {
            String text = Files.readString(task.resolve("schedstat"));
            return Long.parseLong(text.substring(0, text.indexOf(' ')));
        } catch (NoSuchFileException gone) {
            return 0;
        }
    }
}
