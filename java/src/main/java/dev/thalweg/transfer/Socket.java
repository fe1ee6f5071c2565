package dev.thalweg.transfer;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;

import dev.thalweg.internal.Libc;

/** A connected stream socket. */
public final class Socket extends Endpoint {
    private static final int AF_UNIX = 1;
    private static final int SOCK_STREAM = 1;
    private static final int SOCK_CLOEXEC = 02000000;
    private static final int SHUT_WR = 1;
    private static final int SHUT_RDWR = 2;
    private static final int BACKLOG = 128;
    private static final int SOL_SOCKET = 1;
    private static final int SO_REUSEADDR = 2;

    private Socket(int fd, String name) {
        super(fd, name);
    }

    /**
     * Connects over TCP.
     *
     * @param to the resolved address
     * @return the connection
     * @throws IOException if the connection fails
     */
    public static Socket connect(InetSocketAddress to) throws IOException {
        String name = "tcp:" + to;
        try (Arena arena = Arena.ofConfined()) {
            var address = resolved(to, arena);
            int fd = fresh(to, name);
            try {
                Libc.CONNECT.on(name, fd, address, (int) address.byteSize());
            } catch (IOException failure) {
                Libc.CLOSE.attempt(fd);
                throw failure;
            }
            return new Socket(fd, name);
        }
    }

    /**
     * Creates two connected sockets on this machine.
     *
     * @return both sockets
     * @throws IOException if too many files are open
     */
    public static Socket[] pair() throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            var ends = arena.allocate(ValueLayout.JAVA_INT, 2);
            Libc.SOCKETPAIR.on("a new pair", AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
            return new Socket[] {
                new Socket(ends.getAtIndex(ValueLayout.JAVA_INT, 0), "unix socket"),
                new Socket(ends.getAtIndex(ValueLayout.JAVA_INT, 1), "unix socket")
            };
        }
    }

    /** Creates a socket without a peer, to find out what is possible with such sockets. */
    static Socket unconnected() throws IOException {
        String name = "tcp, unconnected";
        return new Socket(fresh(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), name), name);
    }

    /**
     * Shuts down writing: the peer reads the end of file. Reading stays possible.
     *
     * @throws IOException if the connection is lost
     */
    public void finish() throws IOException {
        using(fd -> Libc.SHUTDOWN.on(toString(), fd, SHUT_WR));
    }

    @Override
    void wake(int fd) {
        Libc.SHUTDOWN.attempt(fd, SHUT_RDWR);
    }

    /** A TCP listener. */
    public static final class Listener implements AutoCloseable {
        private final Endpoint end;
        private final int port;

        private Listener(Endpoint end, int port) {
            this.end = end;
            this.port = port;
        }

        /**
         * Listens at an address.
         *
         * @param at the resolved address; port 0 chooses a free one
         * @return the listener
         * @throws IOException if the address is in use
         */
        public static Listener open(InetSocketAddress at) throws IOException {
            String name = "tcp:" + at;
            try (Arena arena = Arena.ofConfined()) {
                var address = resolved(at, arena);
                int fd = fresh(at, name);
                try {
                    var on = arena.allocateFrom(ValueLayout.JAVA_INT, 1);
                    Libc.SETSOCKOPT.on(name, fd, SOL_SOCKET, SO_REUSEADDR, on, (int) on.byteSize());
                    Libc.BIND.on(name, fd, address, (int) address.byteSize());
                    Libc.LISTEN.on(name, fd, BACKLOG);
                    var length = arena.allocateFrom(ValueLayout.JAVA_INT, (int) address.byteSize());
                    Libc.GETSOCKNAME.on(name, fd, address, length);
                    return new Listener(new Socket(fd, name), SocketAddresses.port(address));
                } catch (IOException failure) {
                    Libc.CLOSE.attempt(fd);
                    throw failure;
                }
            }
        }

        /**
         * Returns the port.
         *
         * @return the requested port, or the free one that was chosen
         */
        public int port() {
            return port;
        }

        /**
         * Waits for the next connection.
         *
         * @return the connection
         * @throws IOException if the listener is closed; {@link java.nio.channels.ClosedByInterruptException} after an
         *                     interrupt, which leaves the listener open
         */
        public Socket accept() throws IOException {
            return end.using(fd -> {
                long got = Waiting.done("accept4", end.toString(), fd, Waiting.POLLIN, () -> Libc.ACCEPT4.attempt(
                        fd, MemorySegment.NULL, MemorySegment.NULL, SOCK_CLOEXEC));
                return new Socket((int) got, "a connection to " + end);
            });
        }

        @Override
        public void close() {
            end.close();
        }
    }

    private static MemorySegment resolved(InetSocketAddress address, Arena arena) throws IOException {
        if (address.isUnresolved()) {
            throw new UnknownHostException(address.getHostString());
        }
        return SocketAddresses.of(address, arena);
    }

    private static int fresh(InetSocketAddress address, String name) throws IOException {
        int family = SocketAddresses.family(address.getAddress());
        return (int) Libc.SOCKET.on(name, family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
}
