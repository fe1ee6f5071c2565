package dev.thalweg.transfer;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.WritableByteChannel;
import java.util.Objects;

/**
 * Moves bytes from the JDK's file channels to any other channel, by {@link FileChannel#transferTo} or through a buffer.
 * Uses the method that this machine's profile ranks first for such channels.
 *
 * <pre>{@code
 *     long moved = FileChannels.transfer(file, 0, file.size(), socketChannel);
 * }</pre>
 *
 * <p>The native library reads the profile. Without a profile, or if the profile has no measurement for such channels,
 * {@code transferTo} copies to files, and bytes for all other channels go through a buffer. {@link #choose} returns the
 * choice and its reason.
 *
 * <p>The guarantees are those of {@code transferTo}: if bytes of the file change before the receiver has read them,
 * either version may arrive. {@link Transfer} gives guarantees, and uses its own descriptors.
 */
public final class FileChannels {
    /** Methods of moving bytes from a file channel to another channel. */
    public enum Way {
        /** {@link FileChannel#transferTo}: a mechanism of the kernel, or the JDK's fallback. */
        TRANSFER_TO,
        /** Reads into memory and writes from there. */
        BUFFER
    }

    /**
     * A method and its reason.
     *
     * @param way    the method
     * @param buffer size of the buffer in bytes; {@code TRANSFER_TO} needs it if the kernel cannot move the bytes
     * @param why    the measurement, or a note that none exists
     */
    public record Choice(Way way, int buffer, String why) {
        /** Checks the values. */
        public Choice {
            Objects.requireNonNull(way, "way");
            Objects.requireNonNull(why, "why");
            if (buffer < 1) {
                throw new IllegalArgumentException("buffer: " + buffer + " must be at least 1 byte");
            }
        }
    }

    private FileChannels() {}

    /**
     * Returns how {@link #transfer} would move bytes to a channel. Assumes that both channels are on the file system of
     * temporary files, because a channel hides its file system.
     *
     * @param sink  the destination
     * @param count number of bytes, at least 0
     * @return the choice and its reason
     * @throws IOException if the sink is closed
     */
    public static Choice choose(WritableByteChannel sink, long count) throws IOException {
        checked("count", count);
        return ChannelPlanner.choose(Objects.requireNonNull(sink, "sink"), count);
    }

    /**
     * Moves bytes by the method that {@link #choose} selects.
     *
     * @param source   a file, open for reading; its position does not change
     * @param position offset of the first byte, at least 0
     * @param count    number of bytes, at least 0; {@link Long#MAX_VALUE} for all
     * @param sink     the destination; a file receives them at its position, or at its end in append mode. Must not be
     *                 the source file
     * @return number of bytes that the sink accepted: fewer than {@code count} if the file ended, or if a non-blocking
     *         sink is full. In that case {@code position} plus the result is less than the file's size: wait until the
     *         sink is writable, and continue there
     * @throws TransferException if a channel fails or is closed, or the thread is interrupted. The cause is the
     *                           channel's exception; {@link TransferException#moved()} bytes have reached the sink
     * @throws IOException       if a channel was closed before
     */
    public static long transfer(FileChannel source, long position, long count, WritableByteChannel sink)
            throws IOException {
        checked("position", position);
        checked("count", count);
        long there = Math.min(count, Math.max(0, source.size() - position));
        return transfer(source, position, count, sink, choose(sink, there));
    }

    /**
     * Moves bytes by a method of the caller's choice.
     *
     * @param source   the source, as for {@link #transfer(FileChannel, long, long, WritableByteChannel)}
     * @param position offset of the first byte
     * @param count    number of bytes
     * @param sink     the destination
     * @param choice   the method
     * @return number of bytes that the sink accepted
     * @throws TransferException if the transfer fails
     */
    public static long transfer(
            FileChannel source, long position, long count, WritableByteChannel sink, Choice choice)
            throws TransferException {
        checked("position", position);
        checked("count", count);
        Objects.requireNonNull(source, "source");
        Objects.requireNonNull(sink, "sink");
        try (Arena arena = Arena.ofConfined()) {
            return new Run(source, position, count, sink, choice, arena).run();
        }
    }

    private static void checked(String what, long number) {
        if (number < 0) {
            throw new IllegalArgumentException(what + ": " + number + " must be at least 0");
        }
    }

    /** One transfer. */
    private static final class Run {
        private final FileChannel source;
        private final long position;
        private final long count;
        private final WritableByteChannel sink;
        private final Choice choice;
        private final Arena arena;
        private ByteBuffer buffer;
        private long moved;

        Run(FileChannel source, long position, long count, WritableByteChannel sink, Choice choice, Arena arena) {
            this.source = source;
            this.position = position;
            // Keeps the end of the range within a long, because the kernel rejects larger offsets.
            this.count = Math.min(count, Long.MAX_VALUE - position);
            this.sink = sink;
            this.choice = choice;
            this.arena = arena;
        }

        long run() throws TransferException {
            boolean byTransferTo = choice.way() == Way.TRANSFER_TO;
            try {
                // If transferTo moves nothing, only a read can confirm the end, because files in /proc have a size of
                // 0.
                while (moved < count && (byTransferTo && handOn() || copy())) {
                    // Repeats until the source has no data or the sink no room.
                }
                return moved;
            } catch (IOException failure) {
                throw new TransferException(
                        "from a file channel, after " + moved + " bytes: " + failure, moved, failure);
            }
        }

        /** Moves bytes by transferTo. Returns false if nothing was moved. */
        private boolean handOn() throws IOException {
            long size = source.size();
            try {
                // At most 0x7ffff000 bytes per call, and fewer to a pipe.
                long got = source.transferTo(position + moved, count - moved, sink);
                moved += got;
                return got > 0;
            } catch (IOException failure) {
                // If the file was truncated, the kernel fails with EFAULT for pages that the JDK has mapped. The JDK
                // throws only if it moved nothing, so this continues by reads, which find the new end.
                if (source.isOpen() && sink.isOpen() && source.size() < size) {
                    return false;
                }
                throw failure;
            }
        }

        /**
         * Moves bytes through a buffer. Returns false if the file has ended, or if the sink did not accept all bytes.
         * Bytes that were not accepted are read again later.
         */
        private boolean copy() throws IOException {
            if (buffer == null) {
                buffer = arena.allocate(Math.min(choice.buffer(), count - moved), Long.BYTES).asByteBuffer();
            }
            buffer.clear().limit((int) Math.min(buffer.capacity(), count - moved));
            if (source.read(buffer, position + moved) <= 0) {
                return false;
            }
            buffer.flip();
            while (buffer.hasRemaining()) {
                int wrote = sink.write(buffer);
                if (wrote == 0) {
                    return false;
                }
                moved += wrote;
            }
            return true;
        }
    }
}
