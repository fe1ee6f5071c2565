package dev.thalweg;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

import dev.thalweg.internal.Libc;

/** Memory in which an access to a missing page raises SIGBUS, as if the kernel had no memory for the page. */
final class RefusedPages implements AutoCloseable {
    private static final long USERFAULTFD = System.getProperty("os.arch").equals("amd64") ? 323 : 282;
    private static final long O_CLOEXEC = 02000000;
    private static final long UFFDIO_API = 0xc018aa3fL;
    private static final long UFFDIO_REGISTER = 0xc020aa00L;
    private static final long UFFD_API = 0xaa;
    /** UFFD_FEATURE_MISSING_SHMEM and UFFD_FEATURE_SIGBUS. */
    private static final long FEATURES = 1 << 5 | 1 << 7;
    private static final long MODE_MISSING = 1;

    private final int fd;

    private RefusedPages(int fd) {
        this.fd = fd;
    }

    /** Refuses the missing pages of shared memory. Skips the test if the kernel does not support that. */
    static RefusedPages of(MemorySegment memory) throws IOException {
        long fd = Libc.SYSCALL.attempt(USERFAULTFD, O_CLOEXEC, 0L);
        if (fd < 0) {
            Skips.skip("RefusedPages", "userfaultfd: errno " + -fd);
        }
        var refused = new RefusedPages((int) fd);
        if (!refused.control(UFFDIO_API, UFFD_API, FEATURES, 0)
                || !refused.control(UFFDIO_REGISTER, memory.address(), memory.byteSize(), MODE_MISSING, 0)) {
            refused.close();
            Skips.skip("RefusedPages", "userfaultfd does not support SIGBUS for shared memory");
        }
        return refused;
    }

    private boolean control(long request, long... structure) {
        var linker = Linker.nativeLinker();
        var type = FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_LONG, ADDRESS);
        MethodHandle ioctl = linker.downcallHandle(
                linker.defaultLookup().find("ioctl").orElseThrow(), type, Linker.Option.firstVariadicArg(2));
        try (var scratch = Arena.ofConfined()) {
            return (int) ioctl.invokeExact(fd, request, scratch.allocateFrom(JAVA_LONG, structure)) == 0;
        } catch (Throwable defect) {
            throw new AssertionError("ioctl", defect);
        }
    }

    /** Provides the pages again. */
    @Override
    public void close() {
        Libc.CLOSE.attempt(fd);
    }
}
