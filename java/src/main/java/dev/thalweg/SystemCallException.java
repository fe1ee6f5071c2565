package dev.thalweg;

import java.io.IOException;

/** A failed system call, its subject, and the kernel's reason. */
public final class SystemCallException extends IOException {
    private static final long serialVersionUID = 1;

    /** The name of the system call. */
    private final String call;
    /** The errno. */
    private final int errno;

    /**
     * Creates the exception.
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
     * Returns the system call.
     *
     * @return the name
     */
    public String call() {
        return call;
    }

    /**
     * Returns the errno.
     *
     * @return an errno, as in {@code <errno.h>}
     */
    public int errno() {
        return errno;
    }
}
