package org.example.fuzzed;

import dev.thalweg.afl.AflTarget;
import dev.thalweg.afl.Coverage;

/** A target that numbers its places itself, as {@code maze.c} does, and that has harmful inputs. */
public final class Maze {
    private Maze() {}

    /** Thrown for input that is invalid in an expected way. */
    public static final class Expected extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    /** Runs the fuzz target. */
    public static void main(String[] arguments) {
        AflTarget.run(arguments, Maze::enter, AflTarget.Options.USUAL.expecting(Expected.class));
    }

    private static void enter(byte[] bytes) throws InterruptedException {
        switch (bytes.length > 9 ? "" : new String(bytes, java.nio.charset.StandardCharsets.ISO_8859_1)) {
            case "throw" -> throw new IllegalStateException("thrown");
            case "expected" -> throw new Expected();
            case "deep" -> deeper(1);
            case "memory" -> {
                byte[][] all = new byte[1 << 20][];
                for (int at = 0; at < all.length; at++) {
                    all[at] = new byte[1 << 24];
                }
            }
            case "busy" -> {
                for (long turns = 0; turns >= 0; turns++) {
                    Thread.onSpinWait();
                }
            }
            case "exit0", "exit1", "exit130", "exit134" -> System.exit(Integer.parseInt(new String(bytes).substring(4)));
            case "halt0", "halt1", "halt130" -> Runtime.getRuntime().halt(Integer.parseInt(new String(bytes).substring(4)));
            case "thread" -> join(Thread.ofPlatform().start(() -> fail(new IllegalStateException("in a thread"))));
            case "virtual" -> join(Thread.ofVirtual().start(() -> fail(new IllegalStateException("in a thread"))));
            case "expects" -> join(Thread.ofPlatform().start(() -> fail(new Expected())));
            case "asleep" -> Thread.sleep(Long.MAX_VALUE);
            default -> walk(bytes);
        }
    }

    private static void fail(RuntimeException with) {
        throw with;
    }

    private static void join(Thread thread) throws InterruptedException {
        thread.join();
    }

    private static int deeper(int depth) {
        return deeper(depth + 1) + depth;
    }

    private static void walk(byte[] bytes) {
        Coverage.hit(0x1b873593);
        int sum = 0;
        for (byte each : bytes) {
            int value = Byte.toUnsignedInt(each);
            sum = sum * 31 + value;
            if (value < 64) {
                Coverage.hit(0x2545f491);
            } else if (value < 128) {
                Coverage.hit(0x3c6ef372);
            } else {
                Coverage.hit(0x52dce729);
            }
            // The JVM compiles the division of a long by a constant to a multiplication, as C compilers do. It compiles
            // Integer.remainderUnsigned to a division instruction.
            if (Integer.toUnsignedLong(sum) % 7 == 0) {
                Coverage.hit(0x6ed9eba1);
            }
        }
        Coverage.hit(bytes.length > 65536 ? 0x71374491 : 0x7b5bdb1f);
    }
}
