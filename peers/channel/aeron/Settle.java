import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.BitSet;

/**
 * Pins the sender (process A) and the receiver (process B) to one processor each, if requested, and has the kernel kill B
 * when A ends. Only the calling thread and threads that it starts later are pinned; the threads of the virtual machine are
 * not.
 */
final class Settle {
    private static final int PR_SET_PDEATHSIG = 1;
    private static final long SIGKILL = 9;
    /** Size of a cpu_set_t in bytes. */
    private static final long SET_BYTES = 128;

    private Settle() {}

    static void sender(boolean pinned) {
        if (pinned) {
            var allowed = allowed();
            if (allowed.cardinality() < 2) {
                throw new Worker.Unfit("pin=1 wants two processors, and one may be used");
            }
            keepTo(allowed.nextSetBit(0));
        }
    }

    static void receiver(boolean pinned) {
        var prctl = FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG);
        refuse("prctl", call(function("prctl", prctl, Linker.Option.firstVariadicArg(1)), PR_SET_PDEATHSIG, SIGKILL));
        if (pinned) {
            keepTo(allowed().length() - 1);
        }
    }

    private static BitSet allowed() {
        try (Arena arena = Arena.ofConfined()) {
            var set = arena.allocate(SET_BYTES, Long.BYTES);
            affinity("sched_getaffinity", set);
            return BitSet.valueOf(set.toArray(ValueLayout.JAVA_LONG));
        }
    }

    private static void keepTo(int processor) {
        try (Arena arena = Arena.ofConfined()) {
            var set = arena.allocate(SET_BYTES, Long.BYTES);
            set.setAtIndex(ValueLayout.JAVA_LONG, processor / Long.SIZE, 1L << processor % Long.SIZE);
            affinity("sched_setaffinity", set);
        }
    }

    private static void affinity(String name, MemorySegment set) {
        var descriptor = FunctionDescriptor.of(
                ValueLayout.JAVA_INT, ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG, ValueLayout.ADDRESS);
        refuse(name, call(function(name, descriptor), 0, SET_BYTES, set));
    }

    private static MethodHandle function(String name, FunctionDescriptor descriptor, Linker.Option... options) {
        var linker = Linker.nativeLinker();
        return linker.downcallHandle(linker.defaultLookup().find(name).orElseThrow(), descriptor, options);
    }

    private static int call(MethodHandle function, Object... words) {
        try {
            return (int) function.invokeWithArguments(words);
        } catch (Throwable defect) {
            throw new AssertionError(defect);
        }
    }

    private static void refuse(String name, int answer) {
        if (answer < 0) {
            throw new Worker.Unfit(name + " was refused");
        }
    }
}
