import dev.thalweg.SharedMemory;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Locale;

/**
 * Study 001: a target of a fuzzer in Java, whose coverage map is in shared memory of some kind. The fuzzer is forkserver.c, the program
 * of {@code peer}. One operation is one execution: the fuzzer clears the map, writes the input and orders an execution; this process reads
 * the input, counts {@code edges} branches in the map, and reports its status; the fuzzer compares the map. All executions run in this
 * virtual machine, as under dev.thalweg.afl, because a virtual machine cannot fork.
 */
final class Target extends Worker {
    private static final List<String> KEYS = List.of("kind", "edges", "peer", "warmup", "spoil", "bytes", "scratch");
    private static final ValueLayout.OfInt WORD = ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.nativeOrder());
    // As in forkserver.c.
    private static final int EXECUTE = 0;
    private static final int USED = 1;

    private final String kind;
    private final int edges;
    private final String program;
    private final long warmup;
    private final boolean spoil;
    private final int bytes;
    private final Path scratch;
    private final Path input;
    private final byte[] four = new byte[Integer.BYTES];
    private final byte[] report = new byte[2 * Integer.BYTES];
    private Process fuzzer;
    private DataInputStream orders;
    private OutputStream reports;
    private SharedMemory shared;
    private MemorySegment map;
    private int first;

    private Target(Parameters with) {
        super(new Native());
        kind = with.choice("kind", List.of("sysv", "posix", "file"));
        edges = Transfers.small("edges", with.number("edges", 2000));
        program = with.text("peer", "");
        warmup = with.number("warmup", 500);
        spoil = with.number("spoil", 0) != 0;
        bytes = Transfers.small("bytes", with.number("bytes", 65_536));
        scratch = Path.of(with.text("scratch", "."));
        input = scratch.resolve("input-" + ProcessHandle.current().pid());
        MemorySegment.ofArray(report).set(WORD, 0, (int) ProcessHandle.current().pid());
    }

    @Override
    void warm() throws Exception {
        fuzzer = new ProcessBuilder(program, "role=fuzzer", "kind=" + kind, "edges=" + edges, "bytes=" + bytes, "input=" + input,
                        "scratch=" + scratch)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        orders = new DataInputStream(fuzzer.getInputStream());
        reports = fuzzer.getOutputStream();
        String said = line(orders);
        if (!said.startsWith("map ")) {
            throw new Unfit(said.isEmpty() ? "the fuzzer ended" : said.replaceFirst("^unfit ", ""));
        }
        shared = SharedMemory.open(SharedMemory.Kind.valueOf(kind.toUpperCase(Locale.ROOT)), said.substring("map ".length()));
        map = shared.segment();
        long until = System.nanoTime() + warmup * 1_000_000;
        while (System.nanoTime() < until) {
            run(1000, new Cost());
        }
    }

    @Override
    void run(long times, Cost cost) throws Exception {
        Mark mark = begin();
        send((int) times);
        int order = word();
        for (; order == EXECUTE; order = word()) {
            execute();
        }
        if (order != USED) {
            throw new Unfit("the fuzzer ended early");
        }
        end(mark, cost);
        cost.far.userUs += word();
        cost.far.sysUs += word();
        cost.used.add(cost.far);
        cost.bytes += times * bytes;
    }

    @Override
    String check() throws Exception {
        run(1, new Cost());
        var expected = MemorySegment.ofArray(new byte[bytes]);
        countEdges(expected, first);
        if (spoil) {
            map.set(ValueLayout.JAVA_BYTE, bytes / 2, (byte) (map.get(ValueLayout.JAVA_BYTE, bytes / 2) + 1));
        }
        return map.mismatch(expected) < 0 ? null : "the map does not have the branches of the target";
    }

    @Override
    void close() throws Exception {
        if (fuzzer != null) {
            reports.close();
            fuzzer.waitFor();
        }
        if (shared != null) {
            shared.close();
        }
        Files.deleteIfExists(input);
    }

    private void execute() throws IOException {
        try (var file = FileChannel.open(input, StandardOpenOption.READ)) {
            if (file.read(ByteBuffer.wrap(four)) != four.length) {
                throw new Unfit(input + " ends early");
            }
        }
        first = MemorySegment.ofArray(four).get(WORD, 0);
        countEdges(map, first);
        reports.write(report);
        reports.flush();
    }

    /** As in forkserver.c: the index of a branch is its own number and half of the one before. */
    private void countEdges(MemorySegment into, int from) {
        int before = 0;
        for (int n = 0; n < edges; n++) {
            from = from * 1_664_525 + 1_013_904_223;
            int here = from >>> 8;
            int at = (here ^ before) & (bytes - 1);
            into.set(ValueLayout.JAVA_BYTE, at, (byte) (into.get(ValueLayout.JAVA_BYTE, at) + 1));
            before = here >>> 1;
        }
    }

    private void send(int number) throws IOException {
        MemorySegment.ofArray(four).set(WORD, 0, number);
        reports.write(four);
        reports.flush();
    }

    private int word() throws IOException {
        orders.readFully(four);
        return MemorySegment.ofArray(four).get(WORD, 0);
    }

    private static String line(InputStream from) throws IOException {
        var said = new StringBuilder();
        for (int next = from.read(); next >= 0 && next != '\n'; next = from.read()) {
            said.append((char) next);
        }
        return said.toString();
    }

    public static void main(String[] words) throws Exception {
        main(words, KEYS, Target::new);
    }
}
