import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;

/**
 * Study 003 in Java: a file to a socket, as the article's four programs have it. JDK 25.
 *
 * <p>As programs, over loopback only: {@code traditional-server}, {@code traditional-client}, {@code transferto-server},
 * {@code transferto-client}, with {@code port=N}, {@code file=PATH} and {@code buffer=BYTES}. With {@code way=...} it is
 * a worker: the client, with its server in a JVM of its own. One operation is one file over a new connection. It lasts
 * from the first read of the file, as in the article, until the server has read everything; of the article's clock only
 * the client's part is known.
 */
final class Transfers extends Worker {
    private static final List<String> KEYS =
            List.of("way", "buffer", "reader", "congestion", "warmup", "spoil", "bytes", "scratch");
    private static final int PIECE = 1 << 20;

    private final String way;
    private final int buffer;
    private final int reader;
    private final String congestion;
    private final long warmup;
    private final long bytes;
    private final boolean spoil;
    private final Path file;
    private final Path arrived;
    private Far server;

    private Transfers(Parameters with) {
        super(new Native());
        way = with.choice("way", List.of("traditional", "transferto", "splice"));
        buffer = small("buffer", with.number("buffer", 4096));
        reader = small("reader", with.number("reader", 4096));
        congestion = with.text("congestion", "");
        warmup = with.number("warmup", 250);
        bytes = with.number("bytes", 1 << 20);
        spoil = with.number("spoil", 0) != 0;
        Path scratch = Path.of(with.text("scratch", "."));
        long pid = ProcessHandle.current().pid();
        file = scratch.resolve("file-" + pid);
        arrived = scratch.resolve("arrived-" + pid);
    }

    static int small(String key, long number) {
        if (number < 1 || number > 1 << 30) {
            throw new Unfit(key + "=" + number + ": it is to be 1 to 2^30");
        }
        return (int) number;
    }

    /** A server in a JVM of its own, which ends with us. */
    private static final class Far implements AutoCloseable {
        private final Process process;
        private final BufferedReader answers;
        final int port;

        Far(String... words) throws IOException {
            var self = ProcessHandle.current().info();
            var command = new ArrayList<String>();
            command.add(self.command().orElseThrow());
            // As this one was started: its options, up to the jar.
            List<String> own = List.of(self.arguments().orElseThrow());
            int jar = own.indexOf("-jar");
            if (jar < 0) {
                throw new Unfit("a worker is run by java -jar, for its server is too");
            }
            command.addAll(own.subList(0, jar + 2));
            command.addAll(Arrays.asList(words));
            process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            answers = process.inputReader();
            port = Integer.parseInt(answer("port "));
        }

        /** What it says behind a word. */
        String answer(String word) throws IOException {
            String line = answers.readLine();
            if (line == null || !line.startsWith(word)) {
                throw new Unfit("the server said " + line + " where " + word + "was to come");
            }
            return line.substring(word.length());
        }

        @Override
        public void close() {
            process.destroy();
        }
    }

    private Far serverTo(String... more) throws IOException {
        var words = new ArrayList<String>();
        words.add(way.equals("traditional") ? "traditional-server" : "transferto-server");
        words.add("buffer=" + reader);
        words.add("tied=1");
        words.addAll(Arrays.asList(more));
        return new Far(words.toArray(String[]::new));
    }

    // ---- what the lab asks for ----

    @Override
    void warm() throws Exception {
        needs(bytes);
        makeFile(file, bytes);
        server = serverTo();
        warmUp(warmup);
    }

    /** Of bytes that are like no others, on storage and in the page cache. */
    static void makeFile(Path file, long bytes) throws IOException {
        try (var out = new FileOutputStream(file.toFile())) {
            var random = new SplittableRandom(bytes);
            byte[] piece = new byte[PIECE];
            for (long at = 0; at < bytes; at += PIECE) {
                random.nextBytes(piece);
                out.write(piece, 0, (int) Math.min(PIECE, bytes - at));
            }
            // Nothing is to be written back beside the first samples.
            out.getFD().sync();
        }
    }

    @Override
    void run(long times, Cost cost) throws Exception {
        for (long n = 0; n < times; n++) {
            once(server, cost);
        }
    }

    private void once(Far to, Cost cost) throws Exception {
        try (var client = Client.of(way, to.port, file, buffer)) {
            if (!congestion.isEmpty()) {
                Native.congestion(client.socket(), congestion);
            }
            Mark mark = begin();
            long sent = client.send();
            client.finish();
            var near = new Cost();
            end(mark, near);
            Served served = Served.parse(to.answer("served "));
            if (sent != bytes || served.bytes() != bytes) {
                throw new Unfit("of " + bytes + " bytes " + sent + " were sent and " + served.bytes() + " arrived");
            }
            cost.wallNs += Math.max(near.wallNs, served.endNs() - mark.wallNs);
            cost.used.add(near.used);
            cost.used.add(served.used());
            cost.far.add(served.used());
            cost.bytes += sent;
        }
    }

    /** The server's account of one connection; nanoTime is the machine's own clock, the same in every process. */
    record Served(long bytes, long endNs, Usage used) {
        static Served parse(String line) {
            String[] words = line.split(" ");
            var used = new Usage();
            used.userUs = Long.parseLong(words[2]);
            used.sysUs = Long.parseLong(words[3]);
            used.minorFaults = Long.parseLong(words[4]);
            used.majorFaults = Long.parseLong(words[5]);
            used.voluntary = Long.parseLong(words[6]);
            used.involuntary = Long.parseLong(words[7]);
            return new Served(Long.parseLong(words[0]), Long.parseLong(words[1]), used);
        }

        @Override
        public String toString() {
            return bytes + " " + endNs + " " + used.userUs + " " + used.sysUs + " " + used.minorFaults + " "
                    + used.majorFaults + " " + used.voluntary + " " + used.involuntary;
        }
    }

    /** Another server writes down what arrives. */
    @Override
    String check() throws Exception {
        try (Far keeping = serverTo("keep=" + arrived)) {
            once(keeping, new Cost());
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
        if (server != null) {
            server.close();
        }
        Files.deleteIfExists(file);
        Files.deleteIfExists(arrived);
    }

    // ---- programs ----

    public static void main(String[] words) throws Exception {
        String first = words.length > 0 ? words[0] : "";
        String[] rest = Arrays.copyOfRange(words, Math.min(1, words.length), words.length);
        if (first.endsWith("-server")) {
            var with = new Parameters(rest, List.of("port", "buffer", "keep", "tied"));
            var serving = new Server(first, small("buffer", with.number("buffer", 4096)), with.text("keep", ""));
            serving.serve((int) with.number("port", 0), with.number("tied", 0) != 0);
        } else if (first.endsWith("-client")) {
            client(first.substring(0, first.indexOf('-')), new Parameters(rest, List.of("port", "file", "buffer")));
        } else {
            main(words, KEYS, Transfers::new);
        }
    }

    /** Sends a file and says how long that took, as the article's clients do. */
    private static void client(String way, Parameters with) throws Exception {
        File file = new File(with.text("file", ""));
        int port = (int) with.number("port", 0);
        try (var client = Client.of(way, port, file.toPath(), small("buffer", with.number("buffer", 4096)))) {
            long start = System.currentTimeMillis();
            long sent = client.send();
            System.out.println(sent + " bytes sent in " + (System.currentTimeMillis() - start) + " ms");
        }
    }
}
