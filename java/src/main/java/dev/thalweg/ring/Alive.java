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
 * Words that the kernel marks when this JVM ends, whatever the reason (docs/decisions/005).
 *
 * <p>The kernel keeps a <em>robust list</em> for each thread and marks the words on it when the thread ends. The words
 * are on the list of a daemon thread that does nothing else: the JVM ends daemon threads only with the process. The
 * thread replaces the list head of the C library with its own. That is safe because this thread locks no robust mutex.
 * Other threads keep their list heads.
 */
final class Alive {
    /** Maximum number of words per thread. The kernel stops after 2048 entries of a list (ROBUST_LIST_LIMIT). */
    private static final int MOST_WORDS = 1024;
    /**
     * Size of struct robust_list_head: address of the first entry, offset from an entry to its word, pending entry.
     */
    private static final int HEAD = 24;

    private static final List<Keeper> KEEPERS = new ArrayList<>();

    /** A daemon thread, its list head, and its pages, oldest first. The kernel's list begins with the newest one. */
    private record Keeper(MemorySegment head, int thread, List<MemorySegment> pages) {}

    private Keeper keeper;
    private MemorySegment page;

    /**
     * Puts the word of a page of this process on the list. If the system does not support robust lists, the word stays
     * 0, and the peer watches the link instead. The page must stay mapped until {@link #end()}.
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
            // This segment belongs to no arena, because {@link #end()} uses it after the arena of the ring was closed.
            page = MemorySegment.ofAddress(mapped.address()).reinterpret(Page.LENGTH);
            // Completes the entry before its insertion, because the list must be valid whenever the process is killed.
            Page.LONG.setOpaque(page, Page.NODE, (long) Page.LONG.getOpaque(keeper.head, 0L));
            Page.INT.setRelease(page, Page.ALIVE, keeper.thread | Futex.WAITERS);
            Page.LONG.setRelease(keeper.head, 0L, page.address() + Page.NODE);
            keeper.pages.add(page);
        }
    }

    /** Removes the word from the list if the list contains it. */
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
            // Clears the interrupt status, because a thread with that status does not park.
            Thread.interrupted();
        }
    }
}
