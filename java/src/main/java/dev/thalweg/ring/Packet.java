package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;

import dev.thalweg.internal.Libc;

/** Memory for one socket message and its descriptors: {@code struct msghdr} and everything it refers to. */
final class Packet {
    /** Maximum size of a received message in bytes. */
    static final int LONGEST = 64;
    static final int MOST_DESCRIPTORS = 8;

    private static final int MSG_CTRUNC = 0x8;
    private static final int MSG_TRUNC = 0x20;
    private static final int MSG_DONTWAIT = 0x40;
    private static final int MSG_NOSIGNAL = 0x4000;
    private static final int MSG_CMSG_CLOEXEC = 0x4000_0000;
    private static final int SOL_SOCKET = 1;
    private static final int SCM_RIGHTS = 1;
    private static final int SCM_CREDENTIALS = 2;

    // struct msghdr on 64-bit machines, then struct iovec, then the bytes, then the control messages.
    private static final long PIECES = 16;
    private static final long PIECE_COUNT = 24;
    private static final long CONTROL = 32;
    private static final long CONTROL_LENGTH = 40;
    private static final long FLAGS = 48;
    private static final long PIECE = 56;
    private static final long BYTES = 72;
    private static final long CONTROLS = BYTES + LONGEST;
    /** Size of struct cmsghdr: length including itself, level, type. */
    private static final int HEADING = 16;
    private static final long RIGHTS_ROOM = HEADING + 4 * MOST_DESCRIPTORS;
    /** Size of the control messages: the descriptors, then a struct ucred (process, user, group). */
    private static final long CONTROL_ROOM = RIGHTS_ROOM + HEADING + 16;
    private static final int UCRED = 12;

    private final MemorySegment room;
    private int length;

    /**
     * A received message.
     *
     * @param bytes       the message; empty if the other end is closed
     * @param descriptors the descriptors that came with it, close-on-exec
     * @param sender      the sending process, as verified by the kernel; 0 if unknown
     * @param truncated   true if bytes or descriptors did not fit and are lost
     */
    record Received(byte[] bytes, int[] descriptors, int sender, boolean truncated) {
        /** Closes the descriptors. */
        void drop() {
            for (int descriptor : descriptors) {
                Libc.CLOSE.attempt(descriptor);
            }
        }
    }

    Packet(Arena arena) {
        room = arena.allocate(CONTROLS + CONTROL_ROOM, 8);
        room.set(ADDRESS, PIECES, room.asSlice(PIECE));
        room.set(JAVA_LONG, PIECE_COUNT, 1);
        room.set(ADDRESS, PIECE, room.asSlice(BYTES));
    }

    /** Calls {@code sendmsg(2)} without waiting; returns the errno, or 0. */
    int send(int socket, byte[] message, int descriptor) {
        MemorySegment.copy(message, 0, room, JAVA_BYTE, BYTES, message.length);
        boolean alone = descriptor < 0;
        prepare(message.length, alone ? 0 : HEADING + 8);
        if (!alone) {
            room.set(JAVA_LONG, CONTROLS, HEADING + 4);
            room.set(JAVA_INT, CONTROLS + 8, SOL_SOCKET);
            room.set(JAVA_INT, CONTROLS + 12, SCM_RIGHTS);
            room.set(JAVA_INT, CONTROLS + HEADING, descriptor);
        }
        return (int) -Math.min(Libc.SENDMSG.attempt(socket, room, MSG_NOSIGNAL | MSG_DONTWAIT), 0);
    }

    /**
     * Calls {@code recvmsg(2)} without waiting. Returns the errno; after 0, {@link #received()} returns the message.
     */
    int receive(int socket) {
        prepare(LONGEST, CONTROL_ROOM);
        length = (int) Libc.RECVMSG.attempt(socket, room, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        return -Math.min(length, 0);
    }

    /** Returns the message of the last {@link #receive}. */
    Received received() {
        byte[] bytes = room.asSlice(BYTES, length).toArray(JAVA_BYTE);
        boolean truncated = (room.get(JAVA_INT, FLAGS) & (MSG_TRUNC | MSG_CTRUNC)) != 0;
        int[] found = new int[(int) (CONTROL_ROOM / 4)];
        int count = 0;
        int sender = 0;
        long end = CONTROLS + Math.min(room.get(JAVA_LONG, CONTROL_LENGTH), CONTROL_ROOM);
        long at = CONTROLS;
        while (at + HEADING <= end) {
            long size = room.get(JAVA_LONG, at);
            int kind = room.get(JAVA_INT, at + 8) == SOL_SOCKET ? room.get(JAVA_INT, at + 12) : -1;
            for (long next = at + HEADING; kind == SCM_RIGHTS && next + 4 <= Math.min(at + size, end); next += 4) {
                found[count++] = room.get(JAVA_INT, next);
            }
            if (kind == SCM_CREDENTIALS && at + HEADING + UCRED <= Math.min(at + size, end)) {
                sender = room.get(JAVA_INT, at + HEADING);
            }
            at += Math.max(size + 7 & -8, HEADING);
        }
        return new Received(bytes, Arrays.copyOf(found, count), sender, truncated);
    }

    private void prepare(long bytes, long control) {
        room.set(JAVA_LONG, PIECE + 8, bytes);
        room.set(ADDRESS, CONTROL, control == 0 ? MemorySegment.NULL : room.asSlice(CONTROLS));
        room.set(JAVA_LONG, CONTROL_LENGTH, control);
        room.set(JAVA_INT, FLAGS, 0);
    }
}
