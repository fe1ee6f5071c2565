package dev.thalweg.transfer;

import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import java.nio.channels.WritableByteChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import dev.thalweg.internal.Native;
import dev.thalweg.transfer.FileChannels.Choice;
import dev.thalweg.transfer.FileChannels.Way;

/**
 * Chooses between transferTo and a buffer. A channel hides its descriptor, so the library plans for temporary endpoints
 * of the same kinds. The plan compares the mechanism that transferTo uses with {@code read-write}.
 */
final class ChannelPlanner {
    private static final String BY_BUFFER = "read-write";
    /** In the library's JSON, each verdict contains its mechanism, then its tuning, then the verdict. */
    static final Pattern VERDICT = Pattern.compile(
            "\"mechanism\":\"([a-z-]+)\".*?\"tuning\":\\{([^}]*)\\}.*?\"verdict\":\"([a-z]+)\"", Pattern.DOTALL);
    private static final Pattern BUFFER = Pattern.compile("\"buffer\":(\\d+)");
    private static final Set<String> MEASURED = Set.of("chosen", "tie", "slower");

    /** The inputs of a plan. The size is a power of two, as in the measurements. */
    private record Job(Sink sink, int magnitude) {}

    private static final Map<Job, Choice> CHOSEN = new ConcurrentHashMap<>();

    /** Kinds of sinks, with the mechanism that transferTo of JDK 25 uses. */
    enum Sink {
        /** copy_file_range, or sendfile if the kernel rejects that. */
        FILE("copy-file-range"),
        /** A pipe that was opened as a file: sendfile. */
        FIFO("sendfile"),
        /** A pipe of the JDK: the file is mapped and written, 8 MiB at a time. */
        PIPE("mmap-write"),
        TCP("sendfile"),
        UNIX("sendfile"),
        /** Any other channel: the JDK reads 8 KiB at a time for it. */
        OTHER(null);

        private final String mechanism;

        Sink(String mechanism) {
            this.mechanism = mechanism;
        }

        static Sink of(WritableByteChannel channel) throws IOException {
            return switch (channel) {
                case FileChannel file -> isSeekable(file) ? FILE : FIFO;
                case java.nio.channels.Pipe.SinkChannel _ -> PIPE;
                case SocketChannel socket -> socket.getRemoteAddress() instanceof UnixDomainSocketAddress ? UNIX : TCP;
                default -> OTHER;
            };
        }

        private static boolean isSeekable(FileChannel file) throws IOException {
            try {
                file.position();
                return true;
            } catch (ClosedChannelException closed) {
                throw closed;
            } catch (IOException streams) {
                return false;
            }
        }
    }

    private ChannelPlanner() {}

    static Choice choose(WritableByteChannel channel, long count) throws IOException {
        Sink sink = Sink.of(channel);
        if (sink == Sink.OTHER) {
            return buffered("transferTo uses only a small buffer for a channel that is not from the JDK");
        }
        int magnitude = Long.SIZE - Long.numberOfLeadingZeros(count);
        return CHOSEN.computeIfAbsent(new Job(sink, magnitude), job -> planned(sink, count));
    }

    private static Choice planned(Sink sink, long count) {
        Native library = Native.orNull();
        if (library == null) {
            return unmeasured(sink, "the native library is not available");
        }
        try {
            return judged(sink, planOf(new Planned(library), sink, count));
        } catch (IOException | RuntimeException failure) {
            return unmeasured(sink, String.valueOf(failure.getMessage()));
        }
    }

    /** Returns the method with the better verdict in a plan. */
    static Choice judged(Sink sink, String plan) {
        boolean transferToFirst = false;
        int known = 0;
        int buffer = Plain.BUFFER;
        Matcher verdict = VERDICT.matcher(plan);
        while (verdict.find()) {
            String mechanism = verdict.group(1);
            boolean byBuffer = mechanism.equals(BY_BUFFER);
            if (!MEASURED.contains(verdict.group(3)) || !byBuffer && !mechanism.equals(sink.mechanism)) {
                continue;
            }
            // The plan lists the best verdict first. Verdicts without a measurement were skipped above.
            transferToFirst |= known++ == 0 && !byBuffer;
            Matcher knob = BUFFER.matcher(verdict.group(2));
            if (byBuffer && knob.find()) {
                buffer = Math.clamp(Long.parseLong(knob.group(1)), 1, Integer.MAX_VALUE);
            }
        }
        if (known < 2) {
            return unmeasured(sink, "the profile of this machine does not have both methods");
        }
        String why = "by the profile: " + sink.mechanism
                + (transferToFirst ? " ranks before " : " does not rank before ") + BY_BUFFER;
        return new Choice(transferToFirst ? Way.TRANSFER_TO : Way.BUFFER, buffer, why);
    }

    /** Returns the choice without measurements: transferTo for files, otherwise a buffer. */
    private static Choice unmeasured(Sink sink, String reason) {
        String why = "not measured: " + reason;
        return sink == Sink.FILE ? new Choice(Way.TRANSFER_TO, Plain.BUFFER, why) : buffered(why);
    }

    private static Choice buffered(String why) {
        return new Choice(Way.BUFFER, Plain.BUFFER, why);
    }

    /** Returns the plan of a transfer from a temporary file to a temporary end of this kind. */
    private static String planOf(Planned planner, Sink sink, long count) throws IOException {
        Path from = Files.createTempFile("thalweg-from", null);
        Path to = Files.createTempFile("thalweg-to", null);
        // Requires no guarantees, because transferTo gives none either.
        var options = new Transfer.Options(count, Set.of(), Prefer.WALL, null, moved -> true);
        try (var source = Endpoint.reading(from);
                var like = like(sink, to)) {
            return source.using(in -> like.using(out -> planner.plan(in, out, options)));
        } finally {
            Files.delete(from);
            Files.delete(to);
        }
    }

    private static Endpoint like(Sink sink, Path file) throws IOException {
        return switch (sink) {
            case FILE, OTHER -> Endpoint.writing(file);
            case FIFO, PIPE -> {
                var pipe = Pipe.open();
                pipe.source().close();
                yield pipe.sink();
            }
            case TCP -> Socket.unconnected();
            case UNIX -> {
                var pair = Socket.pair();
                pair[1].close();
                yield pair[0];
            }
        };
    }
}
