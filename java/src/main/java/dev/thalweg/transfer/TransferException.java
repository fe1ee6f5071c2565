package dev.thalweg.transfer;

import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;

/** A transfer that ended before its source. The bytes that had arrived are a prefix of the source. */
public final class TransferException extends IOException {
    private static final long serialVersionUID = 1;

    /** Number of bytes that reached the sink. */
    private final long moved;
    /** The errno, or 0. */
    private final int errno;

    TransferException(String message, long moved, int errno, Throwable cause) {
        super(message, cause);
        this.moved = moved;
        this.errno = errno;
    }

    TransferException(String message, long moved, IOException cause) {
        super(message, cause);
        this.moved = moved;
        this.errno = 0;
    }

    /** Returns the exception for an interrupt. Unlike in the JDK's channels, both ends stay open. */
    static TransferException interrupted(long moved) {
        return new TransferException("interrupted after " + moved + " bytes", moved, new ClosedByInterruptException());
    }

    /**
     * Returns the progress.
     *
     * @return number of bytes that reached the sink
     */
    public long moved() {
        return moved;
    }

    /**
     * Returns the errno.
     *
     * @return an errno, as in {@code <errno.h>}; 0 if no system call failed
     */
    public int errno() {
        return errno;
    }
}
