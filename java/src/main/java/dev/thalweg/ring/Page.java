package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.invoke.VarHandle;

/** Where the words that change lie in a page, and how they are reached. Each is written by the memory's owner alone. */
final class Page {
    /** Head or tail, in bytes since the beginning. */
    static final long CURSOR = 128;
    /** Counts the wake-ups given to the other side, which sleeps on it. */
    static final long WAKE = 256;
    /** Whether and how the owner sleeps. */
    static final long WAITING = 384;
    /** The kernel's mark of the owner's end. */
    static final long ALIVE = 512;
    /** Its place on the kernel's list. */
    static final long NODE = 520;
    /** 1 after the owner's goodbye. */
    static final long CLOSED = 528;
    /** Bytes of all of them. */
    static final int LENGTH = 640;

    static final VarHandle INT = JAVA_INT.varHandle();
    static final VarHandle LONG = JAVA_LONG.varHandle();

    private Page() {}
}
