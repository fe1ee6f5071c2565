package dev.thalweg.transfer;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteOrder;

/** {@code struct sockaddr_in} and {@code struct sockaddr_in6} of Linux. */
final class SocketAddresses {
    private static final int AF_INET = 2;
    private static final int AF_INET6 = 10;
    private static final long LENGTH_4 = 16;
    private static final long LENGTH_6 = 28;
    private static final long PORT = 2;
    private static final long ADDRESS_4 = 4;
    private static final long ADDRESS_6 = 8;
    private static final long SCOPE_6 = 24;
    private static final ValueLayout.OfShort NETWORK_ORDER =
            ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.BIG_ENDIAN);

    private SocketAddresses() {}

    static int family(InetAddress address) {
        return address instanceof Inet6Address ? AF_INET6 : AF_INET;
    }

    static MemorySegment of(InetSocketAddress address, Arena arena) {
        var host = address.getAddress();
        boolean six = host instanceof Inet6Address;
        var bytes = arena.allocate(six ? LENGTH_6 : LENGTH_4, Integer.BYTES);
        bytes.set(ValueLayout.JAVA_SHORT, 0, (short) family(host));
        bytes.set(NETWORK_ORDER, PORT, (short) address.getPort());
        byte[] number = host.getAddress();
        MemorySegment.copy(number, 0, bytes, ValueLayout.JAVA_BYTE, six ? ADDRESS_6 : ADDRESS_4, number.length);
        if (host instanceof Inet6Address scoped) {
            bytes.set(ValueLayout.JAVA_INT, SCOPE_6, scoped.getScopeId());
        }
        return bytes;
    }

    static int port(MemorySegment address) {
        return Short.toUnsignedInt(address.get(NETWORK_ORDER, PORT));
    }
}
