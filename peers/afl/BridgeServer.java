import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;

/** The JVM side of bridge.c: runs each test case that arrives over TCP, and returns its coverage
 * map. */
final class BridgeServer {
    private static final byte[] MAP = new byte[65536];
    private static int previous;

    public static void main(String[] arguments) throws IOException {
        try (var listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            System.out.println(listener.getLocalPort());
            while (true) {
                try (var fuzzer = listener.accept()) {
                    fuzzer.setTcpNoDelay(true);
                    serve(fuzzer);
                } catch (java.io.EOFException | java.net.SocketException gone) {
                    // The fuzzer has ended, perhaps during an answer. The loop accepts the next fuzzer.
                }
            }
        }
    }

    private static void serve(java.net.Socket fuzzer) throws IOException {
        var in = new DataInputStream(fuzzer.getInputStream());
        var answer = new byte[1 + MAP.length];
        while (true) {
            byte[] bytes = new byte[Integer.reverseBytes(in.readInt())];
            in.readFully(bytes);
            java.util.Arrays.fill(MAP, (byte) 0);
            previous = 0;
            walk(bytes);
            System.arraycopy(MAP, 0, answer, 1, MAP.length);
            fuzzer.getOutputStream().write(answer);
        }
    }

    private static void hit(int place) {
        MAP[(place ^ previous) & 0xffff]++;
        previous = place >>> 1;
    }

    /** Must equal the walk in maze.c and Maze.java. */
    private static void walk(byte[] bytes) {
        hit(0x1b873593);
        int sum = 0;
        for (byte each : bytes) {
            int value = Byte.toUnsignedInt(each);
            sum = sum * 31 + value;
            hit(value < 64 ? 0x2545f491 : value < 128 ? 0x3c6ef372 : 0x52dce729);
            if (Integer.toUnsignedLong(sum) % 7 == 0) {
                hit(0x6ed9eba1);
            }
        }
        hit(bytes.length > 65536 ? 0x71374491 : 0x7b5bdb1f);
    }
}
