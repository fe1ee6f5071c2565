import java.io.DataInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

/**
 * Study 003, the receiving side: takes one connection after the other, reads each to its end into one buffer, and
 * prints {@code served BYTES END_NS USER_US SYS_US FAULTS MAJOR_FAULTS SWITCHES PREEMPTIONS}.
 */
final class Server {
    private final String kind;
    private final int buffer;
    private final String keep;
    private final Native meter = new Native();

    /** {@code keep} is a file for what arrives; empty where it is only read. */
    Server(String kind, int buffer, String keep) {
        this.kind = kind;
        this.buffer = buffer;
        this.keep = keep;
    }

    void serve(int port, boolean tied) throws IOException {
        if (tied) {
            endWithInput();
        }
        meter.now();
        switch (kind) {
            case "traditional-server" -> traditional(port);
            case "transferto-server" -> transferTo(port);
            default -> throw new Worker.Unfit(kind + ": there is no such server");
        }
    }

    /** Whoever started us holds the other end of our input: it ends with them. */
    private static void endWithInput() {
        var watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // Nothing is said there.
                }
            } catch (IOException gone) {
                // As good as its end.
            }
            Runtime.getRuntime().halt(0);
        });
        watch.setDaemon(true);
        watch.start();
    }

    /** TraditionalServer. */
    private void traditional(int port) throws IOException {
        try (var listener = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
            say("port " + listener.getLocalPort());
            byte[] b = new byte[buffer];
            while (true) {
                try (Socket socket = listener.accept(); OutputStream kept = kept()) {
                    var from = meter.now();
                    var input = new DataInputStream(socket.getInputStream());
                    long total = 0;
                    int read;
                    while ((read = input.read(b, 0, b.length)) >= 0) {
                        total += read;
                        if (kept != null) {
                            kept.write(b, 0, read);
                        }
                    }
                    served(total, from);
                }
            }
        }
    }

    /** TransferToServer, whose buffer is on the heap. */
    private void transferTo(int port) throws IOException {
        try (var listener = ServerSocketChannel.open()) {
            listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
            say("port " + listener.socket().getLocalPort());
            ByteBuffer dst = ByteBuffer.allocate(buffer);
            while (true) {
                try (SocketChannel channel = listener.accept(); OutputStream kept = kept()) {
                    channel.configureBlocking(true);
                    var from = meter.now();
                    long total = 0;
                    int read;
                    while ((read = channel.read(dst)) >= 0) {
                        total += read;
                        if (kept != null) {
                            kept.write(dst.array(), 0, read);
                        }
                        dst.rewind();
                    }
                    served(total, from);
                }
            }
        }
    }

    private OutputStream kept() throws IOException {
        return keep.isEmpty() ? null : new FileOutputStream(keep);
    }

    private void served(long total, Worker.Usage from) {
        long now = System.nanoTime();
        var used = new Worker.Usage();
        used.addSince(from, meter.now());
        say("served " + new Transfers.Served(total, now, used));
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
