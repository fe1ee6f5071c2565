package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.invoke.VarHandle;

/** Offsets of the changing words in a page, and access to them. Only the owner of the memory writes the words. */
final class Page {
    /** Head or tail, in bytes since the beginning. */
    static final long CURSOR = 128;
    /** Number of wake-ups that the owner has sent to the peer. The peer sleeps on this word. */
    static final long WAKE = 256;
    /** Shows if and how the owner sleeps. */
    static final long WAITING = 384;
    /** The word that the kernel marks when the owner ends. */
    static final long ALIVE = 512;
    /** The node of {@link #ALIVE} on the owner's robust list. */
    static final long NODE = 520;
    /** 1 after the owner has closed its end. */
    static final long CLOSED = 528;
    /** Size of all words in bytes. */
    static final int LENGTH = 640;

    static final VarHandle INT = JAVA_INT.varHandle();
    static final VarHandle LONG = JAVA_LONG.varHandle();

    private Page() {}
}
