package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The common part of both ends of a ring: the memory of each side, the link, and waiting for the peer. The steps follow
 * {@code docs/reference/formats.md}, "Sleeping and waking". The Rust implementation has the same steps, and loom tests
 * them in all interleavings.
 */
final class End implements Runnable {
    /** Reason why the peer is gone. */
    enum Gone {
        DIED,
        CLOSED
    }

    /** Checks for a change by the peer. Returns the result, or {@link #NOTHING}. */
    interface Look {
        long at() throws RingException.Corrupt;
    }

    /** Result of a look: the peer changed nothing. */
    static final long NOTHING = -1;
    /** Result of a look: the peer changed nothing and is gone. */
    static final long GONE = -2;

    /** Low bits of the word {@code waiting}: how the owner sleeps; 0 while it is awake. */
    private static final int HOW = 3;
    private static final int ON_FUTEX = 1;
    private static final int ON_LINK = 2;
    /** The other bits count the sleeps. */
    private static final int ONE_SLEEP = 4;

    /**
     * Time to wait for the end of the peer's last thread after the kernel has marked the peer's death. Until then,
     * another thread of the peer could still commit (docs/decisions/005).
     */
    private static final Duration LAST_BREATH = Duration.ofMillis(5);

    /**
     * Interval after which a waiting side also asks the kernel if the peer lives. For an honest peer, the kernel marks
     * a word at its death. This check finds the death of a peer that wrote false words. It also finds a death if the
     * kernel could not read the peer's robust list (out of memory).
     */
    private static final Duration DOUBT = Duration.ofSeconds(1);
    /** Number of looks after which a spinning side asks the kernel. */
    private static final int LOOKS_BEFORE_DOUBT = 1 << 16;

    final Memory own;
    final Memory peer;
    final Link link;

    /** The configured wait method. {@code nextWait} is the method of the next wait. */
    private final Wait wait;

    private Wait nextWait;
    private final Habit habit = new Habit();
    /** Number of waits that the first look did not end. */
    private long waits;
    /** True if this process and the peer share a single processor. */
    private final boolean alone;
    private final Futex futex;
    /** A private futex word. {@link #close()} changes it to end the sleep of a thread of this process. */
    private final MemorySegment stop;
    private int endedSleep;
    private int looks;
    private Gone gone;
    /** True while a thread is inside a call of this end. */
    private final AtomicBoolean used = new AtomicBoolean();

    /** True after {@link #close()} was called. No call that begins later changes the ring. */
    private volatile boolean closing;
    /** True after the peer was informed. */
    private boolean saidGoodbye;
    private boolean closed;

    End(Memory own, Memory peer, Link link, Wait wait) {
        this.own = own;
        this.peer = peer;
        this.link = link;
        this.wait = wait;
        this.nextWait = wait;
        this.alone = Processors.isAloneWith(link.pid());
        this.stop = link.arena.allocate(JAVA_INT);
        this.futex = new Futex(
                link.arena, peer.bytes.asSlice(Page.WAKE, 4), peer.bytes.asSlice(Page.ALIVE, 4), stop);
    }

    long capacity() {
        return own.geometry.capacity();
    }

    /** Throws if this end is closed. */
    void check() {
        if (closing) {
            throw new IllegalStateException("this end of the ring is closed");
        }
    }

    /**
     * Begins a call of this end; {@link #leave} ends it. Throws if another thread is inside, because two threads would
     * use one position of the ring.
     */
    void enter() {
        if (!tryEnter()) {
            throw new IllegalStateException(
                    "this end of the ring is in use by another thread; give each thread its own end, or use a lock");
        }
    }

    boolean tryEnter() {
        return used.compareAndSet(false, true);
    }

    void leave() {
        used.setRelease(false);
    }

    boolean isClosing() {
        return closing;
    }

    /** Returns the peer's cursor, with acquire semantics for everything written before it was moved there. */
    long seen() {
        return (long) Page.LONG.getAcquire(peer.bytes, Page.CURSOR);
    }

    /** Moves the cursor of this side, and wakes the peer if it sleeps. */
    void publish(long to) {
        // Pairs with seen(): the bytes are visible before the cursor.
        Page.LONG.setRelease(own.bytes, Page.CURSOR, to);
        // Pairs with the fence in lieDown: either the sleeper sees the new cursor, or this side sees that it sleeps.
        VarHandle.fullFence();
        int waiting = waiting();
        // One wake-up ends a sleep, so this skips further system calls for a sleep that it has already ended.
        if (!isAwake(waiting) && waiting != endedSleep) {
            endedSleep = waiting;
            rouse(waiting, false);
        }
    }

    /** Returns the peer's word {@code waiting}: how the peer sleeps, and how often it has slept. */
    int waiting() {
        return (int) Page.INT.getOpaque(peer.bytes, Page.WAITING);
    }

    static boolean isAwake(int waiting) {
        return (waiting & HOW) == 0;
    }

    /** Returns the number of sleeps that began between two reads of the word {@code waiting}. */
    static int sleepsBetween(int before, int waiting) {
        return Integer.divideUnsigned((waiting & ~HOW) - (before & ~HOW), ONE_SLEEP);
    }

    private void rouse(int waiting, boolean last) {
        int wake = (int) Page.INT.getOpaque(own.bytes, Page.WAKE);
        Page.INT.setRelease(own.bytes, Page.WAKE, wake + 1);
        switch (waiting & HOW) {
            case ON_FUTEX -> Futex.wake(own.bytes.asSlice(Page.WAKE, 4));
            case ON_LINK -> link.ring(last);
            default -> {}
        }
    }

    /**
     * Returns how the peer ended; null while it lives. With {@code thorough}, also asks the kernel about a peer whose
     * memory is not marked, which costs system calls.
     */
    Gone gone(boolean thorough) {
        if (gone == null) {
            int word = (int) Page.INT.getAcquire(peer.bytes, Page.ALIVE);
            if (peerSaidGoodbye()) {
                gone = Gone.CLOSED;
            } else if ((word & Futex.OWNER_DIED) != 0) {
                link.awaitEnd(Deadline.in(LAST_BREATH));
                gone = Gone.DIED;
            } else if (thorough && !link.peerIsAlive()) {
                // The peer marks its end as closed before it closes the link.
                gone = peerSaidGoodbye() ? Gone.CLOSED : Gone.DIED;
            }
        }
        return gone;
    }

    private boolean peerSaidGoodbye() {
        return (int) Page.INT.getAcquire(peer.bytes, Page.CLOSED) != 0;
    }

    /** Looks once without waiting. Available data takes precedence over the end of the channel. */
    long look(Look look) throws RingException.Corrupt {
        long found = look.at();
        if (found >= 0) {
            return found;
        }
        boolean marked = (int) Page.INT.getAcquire(peer.bytes, Page.ALIVE) != 0;
        if (gone(!marked) == null) {
            return NOTHING;
        }
        // The peer may have committed between the look and its end.
        found = look.at();
        return found >= 0 ? found : GONE;
    }

    /** Waits until a look finds something or the deadline passes; never returns {@link #NOTHING}. */
    long waitFor(Look look, Deadline deadline) throws IOException {
        long found = look(look);
        if (found != NOTHING) {
            return found;
        }
        if (VirtualPause.isNeeded()) {
            return parkFor(look, deadline);
        }
        waits++;
        var spinner = new Spinner(nextWait, alone);
        while (true) {
            switch (spinner.turn()) {
                case LOOK -> found = look.at();
                case LOOK_AROUND -> {
                    check();
                    if (++looks % LOOKS_BEFORE_DOUBT == 0) {
                        gone(true);
                    }
                    found = look(look);
                    if (found == NOTHING && deadline.isOver()) {
                        throw new RingException.TimedOut();
                    }
                }
                case SLEEP -> {
                    sleep(look, deadline);
                    check();
                    found = look(look);
                }
            }
            if (found != NOTHING) {
                return found;
            }
        }
    }

    /**
     * Like {@link #waitFor}, for a virtual thread, which never blocks in the kernel. So the peer need not wake it.
     */
    private long parkFor(Look look, Deadline deadline) throws IOException {
        var pause = new VirtualPause();
        Deadline doubt = Deadline.in(DOUBT);
        while (true) {
            if (deadline.isOver()) {
                throw new RingException.TimedOut();
            }
            pause.once(deadline);
            check();
            if (doubt.isOver()) {
                gone(true);
                doubt = Deadline.in(DOUBT);
            }
            long found = look(look);
            if (found != NOTHING) {
                return found;
            }
        }
    }

    /** Sleeps once. The caller must look again, because a signal or a deadline may also have ended the sleep. */
    private void sleep(Look look, Deadline deadline) throws IOException {
        if (deadline.isOver()) {
            throw new RingException.TimedOut();
        }
        int marked = (int) Page.INT.getAcquire(peer.bytes, Page.ALIVE);
        // If the kernel will not mark the peer's memory at its death, sleep on the link instead.
        int how = Futex.allowed && marked != 0 ? ON_FUTEX : ON_LINK;
        futex.expect(1, marked);
        futex.expect(2, (int) Page.INT.getAcquire(stop, 0L));
        lieDown(how);
        // A change since the last look prevents the sleep.
        boolean quiet = !closing && look.at() == NOTHING && gone(how == ON_LINK) == null;
        if (quiet && how == ON_FUTEX) {
            Deadline doubt = Deadline.in(DOUBT);
            long begin = System.nanoTime();
            futex.sleep(deadline.left() < doubt.left() ? deadline : doubt);
            nextWait = habit.afterSleep(wait, begin, System.nanoTime(), waits);
            if (doubt.isOver()) {
                gone(true);
            }
        } else if (quiet) {
            link.awaitNews(deadline);
        }
        int waiting = (int) Page.INT.getOpaque(own.bytes, Page.WAITING);
        Page.INT.setOpaque(own.bytes, Page.WAITING, waiting & ~HOW);
        if (how == ON_LINK) {
            link.drain();
        }
    }

    private void lieDown(int how) {
        // Reads WAKE before it announces the sleep, so that a later wake-up changes the word and prevents the sleep.
        futex.expect(0, (int) Page.INT.getAcquire(peer.bytes, Page.WAKE));
        int waiting = (int) Page.INT.getOpaque(own.bytes, Page.WAITING);
        Page.INT.setOpaque(own.bytes, Page.WAITING, (waiting & ~HOW) + ONE_SLEEP | how);
        // Pairs with the fence in publish.
        VarHandle.fullFence();
    }

    /** Calls {@link #close()}, for a cleaner. */
    @Override
    public void run() {
        close();
    }

    /**
     * Closes the channel, ends a wait of this side, and releases all resources. Any thread may call this. If another
     * thread is inside a call, first waits until it has left, so that the peer receives what that call publishes.
     */
    void close() {
        closing = true;
        // Every call sets `used` and then checks `closing`. So after `used` was false here once, no call publishes.
        boolean interrupted = false;
        while (endsCall()) {
            interrupted |= Link.pause(1);
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        sayGoodbye();
    }

    /**
     * Returns true if a thread is inside a call, and ends its wait. Other calls end by themselves. Does not keep the
     * monitor until the thread has left, because that thread may need it.
     */
    private synchronized boolean endsCall() {
        if (closed || !used.get()) {
            return false;
        }
        Page.INT.setRelease(stop, 0L, (int) Page.INT.getAcquire(stop, 0L) + 1);
        Futex.wake(stop);
        link.stopReceiving();
        return true;
    }

    private synchronized void sayGoodbye() {
        if (closed) {
            return;
        }
        if (!saidGoodbye) {
            saidGoodbye = true;
            // Pairs with peerSaidGoodbye(): everything published is visible before CLOSED.
            Page.INT.setRelease(own.bytes, Page.CLOSED, 1);
            VarHandle.fullFence();
            rouse(waiting(), true);
            own.retire();
            link.shutDown();
        }
        link.close();
        closed = true;
    }
}
