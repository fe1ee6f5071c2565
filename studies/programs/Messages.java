import dev.thalweg.ring.Consumer;
import dev.thalweg.ring.Options;
import dev.thalweg.ring.Producer;
import dev.thalweg.ring.Wait;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.Writer;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/**
 * Study 001: messages between Java and C, as between a Java program and AFL. One operation is a message to the C program of {@code peer}
 * (messages.c), and its return. In every method, the message goes from an array of this process into memory of the other one, and back.
 */
final class Messages extends Worker {
    private static final List<String> KEYS = List.of("way", "wait", "peer", "warmup", "spoil", "bytes", "scratch");
    /** The size that a UDP datagram can have. */
    private static final int LARGEST_DATAGRAM = 65_507;

    /** Messages of one size to the peer and back. */
    private interface Line extends AutoCloseable {
        void exchange(byte[] message, byte[] answer) throws IOException;

        @Override
        void close() throws IOException;
    }

    private final String way;
    private final String wait;
    private final String program;
    private final long warmup;
    private final boolean spoil;
    private final Path path;
    private final byte[] message;
    private final byte[] answer;
    private final ByteBuffer number;
    private Process peer;
    private BufferedReader answers;
    private Writer orders;
    private Line line;
    private long sent;

    private Messages(Parameters with) {
        super(new Native());
        way = with.choice("way", List.of("udp", "unix", "mapped", "ring"));
        wait = with.choice("wait", List.of("hybrid", "block"));
        program = with.text("peer", "");
        warmup = with.number("warmup", 250);
        spoil = with.number("spoil", 0) != 0;
        int bytes = Transfers.small("bytes", with.number("bytes", 64));
        if (bytes < Long.BYTES) {
            throw new Unfit("a message of " + bytes + " bytes has no room for its number");
        }
        if (way.equals("udp") && bytes > LARGEST_DATAGRAM) {
            throw new Unfit("a datagram of UDP has at most " + LARGEST_DATAGRAM + " bytes");
        }
        message = new byte[bytes];
        answer = new byte[bytes];
        number = ByteBuffer.wrap(message);
        path = Path.of(with.text("scratch", ".")).resolve("line-" + ProcessHandle.current().pid());
    }

    // ---- what the lab asks for ----

    @Override
    void warm() throws Exception {
        if (way.equals("mapped")) {
            Mapped.makeFile(path, message.length);
        }
        peer = new ProcessBuilder(program, "way=" + way, "wait=" + wait, "bytes=" + message.length, "path=" + path)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        answers = peer.inputReader();
        orders = peer.outputWriter();
        int port = Integer.parseInt(told("ready "));
        line = switch (way) {
            case "udp" -> new Udp(port);
            case "unix" -> new Unix(path, message.length);
            case "mapped" -> new Mapped(path, message.length, peer);
            default -> new Ring(path, wait.equals("block") ? Wait.BLOCK : Wait.HYBRID);
        };
        // One order for many messages, so that the peer's loop is most of what is compiled.
        long until = System.nanoTime() + warmup * 1_000_000;
        while (System.nanoTime() < until) {
            run(1000, new Cost());
        }
    }

    @Override
    void run(long times, Cost cost) throws Exception {
        orders.write("run " + times + "\n");
        orders.flush();
        told("go");
        Mark mark = begin();
        for (long n = 0; n < times; n++) {
            number.putLong(0, ++sent);
            line.exchange(message, answer);
            if (answer[0] != message[0] || answer[Long.BYTES - 1] != message[Long.BYTES - 1]) {
                throw new Unfit("message " + sent + " came back as another one");
            }
        }
        end(mark, cost);
        String[] words = told("used ").split(" ");
        cost.far.userUs += Long.parseLong(words[0]);
        cost.far.sysUs += Long.parseLong(words[1]);
        cost.used.add(cost.far);
        cost.bytes += times * message.length;
    }

    @Override
    String check() throws Exception {
        new Random(sent).nextBytes(message);
        run(1, new Cost());
        if (spoil) {
            answer[message.length / 2]++;
        }
        int at = Arrays.mismatch(message, answer);
        return at < 0 ? null : "byte " + at + " of " + message.length + " came back changed";
    }

    @Override
    void close() throws Exception {
        if (line != null) {
            line.close();
        }
        if (peer != null) {
            peer.destroy();
        }
        Files.deleteIfExists(path);
    }

    /** Returns the rest of the peer's next line, which begins with this word. */
    private String told(String word) throws IOException {
        String said = answers.readLine();
        if (said == null || !said.startsWith(word)) {
            throw new Unfit(said == null ? "the peer ended" : said.replaceFirst("^unfit ", ""));
        }
        return said.substring(word.length());
    }

    // ---- methods ----

    /** As in most programs: a socket, and a packet for each direction. */
    private static final class Udp implements Line {
        private final DatagramSocket socket = new DatagramSocket(0, InetAddress.getLoopbackAddress());
        private final DatagramPacket packet = new DatagramPacket(new byte[0], 0);

        Udp(int port) throws IOException {
            // Without a timeout, because a socket with one calls poll before each datagram. The lab limits the time.
            socket.connect(InetAddress.getLoopbackAddress(), port);
            exchange(new byte[1], new byte[1]);
        }

        @Override
        public void exchange(byte[] message, byte[] answer) throws IOException {
            packet.setData(message);
            socket.send(packet);
            packet.setData(answer);
            socket.receive(packet);
            if (packet.getLength() != answer.length) {
                throw new Unfit("a datagram of " + packet.getLength() + " bytes came, not of " + answer.length);
            }
        }

        @Override
        public void close() {
            socket.close();
        }
    }

    /** A stream socket: Java has no others of this family. */
    private static final class Unix implements Line {
        private final SocketChannel socket = SocketChannel.open(StandardProtocolFamily.UNIX);
        private final ByteBuffer buffer;

        Unix(Path path, int bytes) throws IOException {
            socket.connect(UnixDomainSocketAddress.of(path));
            buffer = ByteBuffer.allocateDirect(bytes);
        }

        @Override
        public void exchange(byte[] message, byte[] answer) throws IOException {
            buffer.clear().put(message).flip();
            while (buffer.hasRemaining()) {
                socket.write(buffer);
            }
            buffer.clear();
            while (buffer.hasRemaining()) {
                if (socket.read(buffer) < 0) {
                    throw new Unfit("the peer closed its socket");
                }
            }
            buffer.flip().get(answer);
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }

    /** A mapped file, as the article proposes for AFL: two sequence numbers, then a message in each direction. Both sides poll. */
    private static final class Mapped implements Line {
        private static final VarHandle WORDS = MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());
        // As in messages.c.
        private static final int APART = 128;
        private static final int DATA = 4096;
        private static final int LOOKS = 10_000;

        private final MappedByteBuffer shared;
        private final Process peer;
        private long sequence;

        Mapped(Path path, int bytes, Process peer) throws IOException {
            this.peer = peer;
            try (var file = FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                shared = file.map(FileChannel.MapMode.READ_WRITE, 0, DATA + 2L * bytes);
            }
        }

        static void makeFile(Path path, int bytes) throws IOException {
            Files.write(path, new byte[DATA + 2 * bytes], StandardOpenOption.CREATE_NEW);
        }

        @Override
        public void exchange(byte[] message, byte[] answer) {
            sequence++;
            shared.put(DATA, message);
            WORDS.setRelease((ByteBuffer) shared, 0, sequence);
            for (long looks = 1; (long) WORDS.getAcquire((ByteBuffer) shared, APART) != sequence; looks++) {
                if (looks % LOOKS == 0) {
                    if (!peer.isAlive()) {
                        throw new Unfit("the peer ended");
                    }
                    Thread.yield();
                }
            }
            shared.get(DATA + answer.length, answer);
        }

        @Override
        public void close() {}
    }

    /** Two rings of dev.thalweg. They poll for a moment before they sleep, or sleep at once. */
    private static final class Ring implements Line {
        private final Producer to;
        private final Consumer from;

        Ring(Path path, Wait wait) throws IOException {
            Options options = Options.USUAL.withWait(wait);
            to = Producer.connect(path, options);
            from = Consumer.connect(path, options);
        }

        @Override
        public void exchange(byte[] message, byte[] answer) throws IOException {
            to.send(message);
            try (var sample = from.receive()) {
                MemorySegment.copy(sample.segment(), ValueLayout.JAVA_BYTE, 0, answer, 0, sample.length());
            }
        }

        @Override
        public void close() {
            to.close();
            from.close();
        }
    }

    public static void main(String[] words) throws Exception {
        main(words, KEYS, Messages::new);
    }
}
