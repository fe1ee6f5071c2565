import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.channels.Pipe;
import java.nio.channels.WritableByteChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Set;
import java.util.concurrent.SynchronousQueue;

import dev.thalweg.internal.Libc;

/**
 * Study 003 in Java, beside the article: a file to a pipe, by FileChannel.transferTo or by splice. JDK 25.
 *
 * <p>transferTo has the pipe as the JDK's own {@code Pipe.SinkChannel}, or as a {@code FileChannel}, which a program's
 * standard output is: the JDK goes other ways to the two.
 *
 * <p>One operation is one file; it ends when a thread has taken everything out of the pipe, by splice to /dev/null or by
 * reading it.
 */
final class Pipes extends Worker {
    private static final int O_CLOEXEC = 02000000;
    private static final int O_WRONLY = 1;
    private static final int F_SETPIPE_SZ = 1031;
    private static final int BUFFER = 256 << 10;

    private final String way;
    private final boolean readerSplices;
    private final int pipe;
    private final long bytes;
    private final long warmup;
    private final boolean spoil;
    private final Path file;
    private final Path arrived;

    private FileChannel channel;
    private int from;
    private WritableByteChannel sink;
    private int sinkEnd;
    private int sourceEnd;
    private int nowhere;
    private MemorySegment buffer;

    /** What the reader is to take, and what it took. */
    private final SynchronousQueue<Long> orders = new SynchronousQueue<>();
    private final SynchronousQueue<Long> answers = new SynchronousQueue<>();
    /** Where the reader puts down what it takes: only for a check. */
    private volatile FileOutputStream kept;

    private Pipes(Parameters with) {
        super(new Native());
        way = with.choice("way", List.of("transferto", "transferto-file", "splice"));
        readerSplices = with.choice("reader", List.of("splice", "read")).equals("splice");
        pipe = Transfers.small("pipe", with.number("pipe", 1 << 20));
        bytes = with.number("bytes", 1 << 20);
        warmup = with.number("warmup", 150);
        spoil = with.number("spoil", 0) != 0;
        Path scratch = Path.of(with.text("scratch", "."));
        long pid = ProcessHandle.current().pid();
        file = scratch.resolve("file-" + pid);
        arrived = scratch.resolve("arrived-" + pid);
    }

    @Override
    void warm() throws Exception {
        needs(bytes);
        Transfers.makeFile(file, bytes);
        channel = FileChannel.open(file, StandardOpenOption.READ);
        Arena arena = Arena.global();
        buffer = arena.allocate(BUFFER, 4096).fill((byte) 1);
        from = (int) Libc.OPEN.on(file.toString(), arena.allocateFrom(file.toString()), O_CLOEXEC, 0);
        nowhere = (int) Libc.OPEN.on("/dev/null", arena.allocateFrom("/dev/null"), O_WRONLY | O_CLOEXEC, 0);
        Set<Integer> before = Native.descriptors("pipe").keySet();
        Pipe made = Pipe.open();
        var ends = Native.descriptors("pipe");
        ends.keySet().removeAll(before);
        // Either end, opened again by this name, is what it is opened as.
        String name = "/proc/self/fd/" + ends.keySet().iterator().next();
        sourceEnd = (int) Libc.OPEN.on("a pipe", arena.allocateFrom(name), O_CLOEXEC, 0);
        sinkEnd = (int) Libc.OPEN.on("a pipe", arena.allocateFrom(name), O_WRONLY | O_CLOEXEC, 0);
        Libc.FCNTL.on("a pipe of " + pipe + " bytes", sinkEnd, F_SETPIPE_SZ, pipe);
        sink = way.equals("transferto")
                ? made.sink()
                : FileChannel.open(Path.of("/proc/self/fd/" + sinkEnd), StandardOpenOption.WRITE);
        var reader = new Thread(this::read);
        reader.setDaemon(true);
        reader.start();
        warmUp(warmup);
    }

    @Override
    void run(long times, Cost cost) throws Exception {
        Mark mark = begin();
        for (long n = 0; n < times; n++) {
            once();
        }
        end(mark, cost);
        cost.bytes += times * bytes;
    }

    private void once() throws Exception {
        orders.put(bytes);
        for (long sent = 0; sent < bytes; ) {
            sent += way.equals("splice") ? spliced(sent) : channel.transferTo(sent, bytes - sent, sink);
        }
        long took = answers.take();
        if (took != bytes) {
            throw new Unfit("of " + bytes + " bytes " + took + " came out of the pipe");
        }
    }

    private long spliced(long at) throws IOException {
        if (at == 0) {
            Libc.LSEEK.on(file.toString(), from, 0L, 0);
        }
        long most = Math.min(pipe, bytes - at);
        return Libc.SPLICE.on("a file to a pipe", from, MemorySegment.NULL, sinkEnd, MemorySegment.NULL, most, 0);
    }

    /** The reader: takes as much as it is told, and says so. */
    private void read() {
        try {
            while (true) {
                long wanted = orders.take();
                long took = 0;
                while (took < wanted) {
                    took += take(wanted - took);
                }
                answers.put(took);
            }
        } catch (IOException | InterruptedException failure) {
            // Nobody empties the pipe any more, and whoever fills it would wait for ever.
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private long take(long most) throws IOException {
        FileOutputStream keeper = kept;
        if (keeper == null && readerSplices) {
            return Libc.SPLICE.on("a pipe to /dev/null", sourceEnd, MemorySegment.NULL, nowhere, MemorySegment.NULL,
                    Math.min(most, pipe), 0);
        }
        long got = Libc.READ.on("a pipe", sourceEnd, buffer, Math.min(most, BUFFER));
        if (keeper != null) {
            keeper.write(buffer.asSlice(0, got).toArray(ValueLayout.JAVA_BYTE));
        }
        return got;
    }

    @Override
    String check() throws Exception {
        try (var out = new FileOutputStream(arrived.toFile())) {
            kept = out;
            once();
            kept = null;
        }
        if (spoil) {
            Files.write(arrived, new byte[] {1, 2, 3});
        }
        long at = Files.mismatch(file, arrived);
        Files.delete(arrived);
        return at < 0 ? null : "a wrong byte arrived at " + at + " of " + bytes;
    }

    @Override
    void close() throws IOException {
        Files.deleteIfExists(file);
        Files.deleteIfExists(arrived);
    }

    public static void main(String[] words) throws Exception {
        var keys = List.of("way", "reader", "pipe", "warmup", "spoil", "bytes", "scratch");
        main(words, keys, Pipes::new);
    }
}
