package dev.thalweg;

import java.io.IOException;

/** A system call failed: which one, on what, and what the kernel said. */
public final class SystemCallException extends IOException {
    private static final long serialVersionUID = 1;

    /** The system call, by its own name. */
    private final String call;
    /** What the kernel answered. */
    private final int errno;

    /**
     * A failure.
     *
     * @param call  name of the system call
     * @param what  subject of the call: a path, a name, a size
     * @param errno the errno
     * @param words the meaning of {@code errno}, and advice
     */
    public SystemCallException(String call, String what, int errno, String words) {
        super(call + " failed on " + what + ": " + words);
        this.call = call;
        this.errno = errno;
    }

    /**
     * The system call.
     *
     * @return the name
     */
    public String call() {
        return call;
    }

    /**
     * What the kernel answered.
     *
     * @return an errno, as in {@code <errno.h>}
     */
    public int errno() {
        return errno;
    }
}
