import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;

import dev.thalweg.internal.Libc;

/** Study 003, the sending side: connected to a server on loopback, with the file open. */
abstract class Client implements AutoCloseable {
    private int socket = -1;

    /** Sends the whole file and says how long it was. */
    abstract long send() throws IOException;

    /** Says that this was all. */
    abstract void finish() throws IOException;

    @Override
    public abstract void close() throws IOException;

    /** The number of the socket's descriptor. */
    final int socket() {
        return socket;
    }

    static Client of(String way, int port, Path file, int buffer) throws IOException {
        var address = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
        Set<Integer> before = Native.descriptors("socket").keySet();
        Client client = switch (way) {
            case "traditional" -> new Traditional(address, file, buffer);
            case "transferto" -> new TransferTo(address, file);
            case "splice" -> new Splice(address, file);
            default -> throw new Worker.Unfit(way + ": there is no such client");
        };
        client.socket = newSocket(before);
        return client;
    }

    /** The TCP socket that is open now and was not before: a virtual machine opens others for itself. */
    private static int newSocket(Set<Integer> before) throws IOException {
        var now = Native.descriptors("socket");
        now.keySet().removeAll(before);
        for (String table : List.of("/proc/self/net/tcp", "/proc/self/net/tcp6")) {
            for (String line : Files.exists(Path.of(table)) ? Files.readAllLines(Path.of(table)) : List.<String>of()) {
                String[] fields = line.trim().split(" +");
                for (var socket : now.entrySet()) {
                    // The tenth field is the inode (proc_pid_net(5)).
                    if (fields.length > 9 && fields[9].equals(socket.getValue())) {
                        return socket.getKey();
                    }
                }
            }
        }
        throw new Worker.Unfit("the connection's descriptor is not among " + now);
    }

    /** TraditionalClient: File.read and Socket.send. What it read is what it sends; the article sent whole buffers. */
    private static final class Traditional extends Client {
        private final Socket socket;
        private final FileInputStream input;
        private final int buffer;

        Traditional(InetSocketAddress address, Path file, int buffer) throws IOException {
            this.socket = new Socket(address.getAddress(), address.getPort());
            this.input = new FileInputStream(file.toFile());
            this.buffer = buffer;
        }

        @Override
        long send() throws IOException {
            var output = new DataOutputStream(socket.getOutputStream());
            byte[] b = new byte[buffer];
            long total = 0;
            int read;
            while ((read = input.read(b)) >= 0) {
                total = total + read;
                output.write(b, 0, read);
            }
            return total;
        }

        @Override
        void finish() throws IOException {
            socket.shutdownOutput();
        }

        @Override
        public void close() throws IOException {
            input.close();
            socket.close();
        }
    }

    /** TransferToClient. */
    private static class TransferTo extends Client {
        final SocketChannel channel;
        final FileChannel file;

        TransferTo(InetSocketAddress address, Path file) throws IOException {
            this.channel = SocketChannel.open();
            this.channel.connect(address);
            this.channel.configureBlocking(true);
            this.file = new FileInputStream(file.toFile()).getChannel();
        }

        @Override
        long send() throws IOException {
            long size = file.size();
            long sent = 0;
            // One call, as in the article, below 2 GiB.
            while (sent < size) {
                sent += file.transferTo(sent, size - sent, channel);
            }
            return sent;
        }

        @Override
        void finish() throws IOException {
            channel.shutdownOutput();
        }

        @Override
        public void close() throws IOException {
            file.close();
            channel.close();
        }
    }

    /** The same connection, spliced through a pipe of 1 MiB by foreign functions. */
    private static final class Splice extends TransferTo {
        private static final int O_RDONLY_CLOEXEC = 02000000;
        private static final int F_SETPIPE_SZ = 1031;
        private static final int PIPE = 1 << 20;

        private final int from;
        private final int[] pipe = new int[2];
        private final String name;

        Splice(InetSocketAddress address, Path file) throws IOException {
            super(address, file);
            name = file.toString();
            try (Arena arena = Arena.ofConfined()) {
                from = (int) Libc.OPEN.on(name, arena.allocateFrom(name), O_RDONLY_CLOEXEC, 0);
                MemorySegment ends = arena.allocate(ValueLayout.JAVA_INT, 2);
                Libc.PIPE2.on("a pipe", ends, O_RDONLY_CLOEXEC);
                pipe[0] = ends.getAtIndex(ValueLayout.JAVA_INT, 0);
                pipe[1] = ends.getAtIndex(ValueLayout.JAVA_INT, 1);
            }
            Libc.FCNTL.on("a pipe of " + PIPE + " bytes", pipe[1], F_SETPIPE_SZ, PIPE);
        }

        @Override
        long send() throws IOException {
            long sent = 0;
            for (long got = into(); got > 0; got = into()) {
                for (long left = got; left > 0; ) {
                    left -= Libc.SPLICE.on("a pipe to a socket", pipe[0], MemorySegment.NULL, socket(),
                            MemorySegment.NULL, left, 0);
                }
                sent += got;
            }
            return sent;
        }

        private long into() throws IOException {
            return Libc.SPLICE.on(name, from, MemorySegment.NULL, pipe[1], MemorySegment.NULL, (long) PIPE, 0);
        }

        @Override
        public void close() throws IOException {
            super.close();
            Libc.CLOSE.attempt(from);
            Libc.CLOSE.attempt(pipe[0]);
            Libc.CLOSE.attempt(pipe[1]);
        }
    }
}
