package dev.thalweg.ring;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;

import dev.thalweg.internal.Libc;

/**
 * Words that the kernel marks when this JVM ends, however it ends (docs/decisions/005).
 *
 * <p>The kernel keeps a <em>robust list</em> for each thread and marks the words on it when the thread ends. So the
 * words go on the list of a daemon thread of our own that does nothing but live: the JVM ends daemon threads only with
 * the process. It has a list head of its own in place of the one that the C library gave it; the thread locks no mutex
 * that would need that, and those of all other threads stay as they are.
 */
final class Alive {
    /** The kernel stops after 2048 entries (ROBUST_LIST_LIMIT); then another thread is needed. */
    private static final int MOST_WORDS = 1024;
    /** Of struct robust_list_head: address of the first entry, offset from an entry to its word, pending entry. */
    private static final int HEAD = 24;

    private static final List<Keeper> KEEPERS = new ArrayList<>();

    /** A thread, and the pages on its list in the order they were added: the reverse of the list's. */
    private record Keeper(MemorySegment head, int thread, List<MemorySegment> pages) {}

    private Keeper keeper;
    private MemorySegment page;

    /**
     * Puts the word of a page of our own on the list. Where the machine allows no such list the word stays 0, and the
     * peer watches the link instead. The page must stay mapped until {@link #end()}.
     */
    void begin(MemorySegment mapped) {
        synchronized (KEEPERS) {
            keeper = KEEPERS.isEmpty() ? null : KEEPERS.getLast();
            if (keeper == null || keeper.pages.size() >= MOST_WORDS) {
                keeper = start();
                if (keeper == null) {
                    return;
                }
                KEEPERS.add(keeper);
            }
            // Of no arena: taken off the list when that of the ring is closed already.
            page = MemorySegment.ofAddress(mapped.address()).reinterpret(Page.LENGTH);
            // The list must be whole at every moment, for a kill may come at any: the entry is finished first.
            Page.LONG.setOpaque(page, Page.NODE, (long) Page.LONG.getOpaque(keeper.head, 0L));
            Page.INT.setRelease(page, Page.ALIVE, keeper.thread | Futex.WAITERS);
            Page.LONG.setRelease(keeper.head, 0L, page.address() + Page.NODE);
            keeper.pages.add(page);
        }
    }

    /** Takes it off the list, if it is there. */
    void end() {
        synchronized (KEEPERS) {
            if (page == null) {
                return;
            }
            int at = keeper.pages.indexOf(page);
            long next = (long) Page.LONG.getOpaque(page, Page.NODE);
            if (at + 1 < keeper.pages.size()) {
                Page.LONG.setRelease(keeper.pages.get(at + 1), Page.NODE, next);
            } else {
                Page.LONG.setRelease(keeper.head, 0L, next);
            }
            Page.INT.setRelease(page, Page.ALIVE, 0);
            keeper.pages.remove(at);
            page = null;
        }
    }

    private static Keeper start() {
        MemorySegment head = Arena.global().allocate(HEAD, 8);
        // An empty list points to its own head.
        head.set(JAVA_LONG, 0, head.address());
        head.set(JAVA_LONG, 8, Page.ALIVE - Page.NODE);
        var told = new CompletableFuture<Integer>();
        var thread = new Thread(null, () -> live(head, told), "thalweg-alive", 0, false);
        thread.setDaemon(true);
        thread.setContextClassLoader(null);
        try {
            thread.start();
        } catch (OutOfMemoryError noThread) {
            return null;
        }
        int id = told.join();
        return id > 0 ? new Keeper(head, id, new ArrayList<>()) : null;
    }

    private static void live(MemorySegment head, CompletableFuture<Integer> told) {
        long refused = -1;
        try {
            refused = Libc.SYSCALL.attempt(Numbers.SET_ROBUST_LIST, head.address(), (long) HEAD);
        } finally {
            told.complete(refused == 0 ? (int) Libc.SYSCALL.attempt(Numbers.GETTID, 0L, 0L) : 0);
        }
        while (refused == 0) {
            LockSupport.park(KEEPERS);
            // Or it would not park again.
            Thread.interrupted();
        }
    }
}
