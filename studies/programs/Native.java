import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** What Java itself does not tell or set: the usage of the process, and the congestion control of a socket. */
final class Native implements Worker.Meter {
    private static final Linker LINKER = Linker.nativeLinker();
    private static final MethodHandle GETRUSAGE = function(
            "getrusage", FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT, ValueLayout.ADDRESS));
    private static final MethodHandle SETSOCKOPT = function(
            "setsockopt",
            FunctionDescriptor.of(
                    ValueLayout.JAVA_INT,
                    ValueLayout.JAVA_INT,
                    ValueLayout.JAVA_INT,
                    ValueLayout.JAVA_INT,
                    ValueLayout.ADDRESS,
                    ValueLayout.JAVA_INT));
    private static final int RUSAGE_SELF = 0;
    private static final int IPPROTO_TCP = 6;
    private static final int TCP_CONGESTION = 13;
    // struct rusage on 64-bit Linux: 18 words; the first four are two timevals.
    private static final int WORDS = 18;

    private final MemorySegment rusage = Arena.global().allocate(WORDS * 8, 8);

    private static MethodHandle function(String name, FunctionDescriptor descriptor) {
        return LINKER.downcallHandle(LINKER.defaultLookup().find(name).orElseThrow(), descriptor);
    }

    @Override
    public Worker.Usage now() {
        try {
            int got = (int) GETRUSAGE.invokeExact(RUSAGE_SELF, rusage);
            if (got != 0) {
                throw new IllegalStateException("getrusage answered " + got);
            }
        } catch (RuntimeException failure) {
            throw failure;
        } catch (Throwable defect) {
            throw new AssertionError("getrusage", defect);
        }
        var usage = new Worker.Usage();
        usage.userUs = word(0) * 1_000_000 + word(1);
        usage.sysUs = word(2) * 1_000_000 + word(3);
        usage.minorFaults = word(8);
        usage.majorFaults = word(9);
        usage.voluntary = word(16);
        usage.involuntary = word(17);
        return usage;
    }

    private long word(int number) {
        return rusage.getAtIndex(ValueLayout.JAVA_LONG, number);
    }

    /**
     * Open descriptors of a kind, {@code socket} or {@code pipe}, and the inode of each. Java shows no channel's
     * descriptor, so that a new one is found by its being new.
     */
    static Map<Integer, String> descriptors(String kind) throws IOException {
        var found = new HashMap<Integer, String>();
        try (var all = Files.newDirectoryStream(Path.of("/proc/self/fd"))) {
            for (Path one : all) {
                // The stream's own descriptor is gone by the time that it is looked at again.
                String link = Files.isSymbolicLink(one) ? Files.readSymbolicLink(one).toString() : "";
                if (link.startsWith(kind + ":[")) {
                    String inode = link.substring(kind.length() + 2, link.length() - 1);
                    found.put(Integer.parseInt(one.getFileName().toString()), inode);
                }
            }
        }
        return found;
    }

    /** Sets how a TCP socket sends. */
    static void congestion(int socket, String name) {
        byte[] bytes = name.getBytes(StandardCharsets.US_ASCII);
        try (Arena arena = Arena.ofConfined()) {
            var text = arena.allocateFrom(ValueLayout.JAVA_BYTE, bytes);
            int got = (int) SETSOCKOPT.invokeExact(socket, IPPROTO_TCP, TCP_CONGESTION, text, bytes.length);
            if (got != 0) {
                throw new Worker.Unfit("TCP_CONGESTION " + name + ": refused; see"
                        + " /proc/sys/net/ipv4/tcp_allowed_congestion_control");
            }
        } catch (RuntimeException failure) {
            throw failure;
        } catch (Throwable defect) {
            throw new AssertionError("setsockopt", defect);
        }
    }
}
