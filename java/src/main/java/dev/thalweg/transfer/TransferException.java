package dev.thalweg.transfer;

import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;

/** A transfer ended before its source did. What had arrived by then is a true prefix of the source. */
public final class TransferException extends IOException {
    private static final long serialVersionUID = 1;

    /** Bytes that reached the sink. */
    private final long moved;
    /** What the kernel answered, or 0. */
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

    /** An interrupt, as the JDK's channels report it, but with both ends open. */
    static TransferException interrupted(long moved) {
        return new TransferException("interrupted after " + moved + " bytes", moved, new ClosedByInterruptException());
    }

    /**
     * How far it came.
     *
     * @return number of bytes that reached the sink
     */
    public long moved() {
        return moved;
    }

    /**
     * What the kernel answered.
     *
     * @return an errno, as in {@code <errno.h>}; 0 if no system call failed
     */
    public int errno() {
        return errno;
    }
}
