package dev.thalweg.ring;

/** Controls polling during one wait. */
final class Spinner {
    /** The next step after a look that found nothing. */
    enum Turn {
        /** Look at the data again. */
        LOOK,
        /** Look at the data, the peer's state and the deadline. */
        LOOK_AROUND,
        /** Sleep. */
        SLEEP
    }

    /**
     * Number of looks between checks of the clock and the peer's state, which cost more than a look at the data word.
     */
    private static final int STRIDE = 64;

    private final Deadline until;
    private final boolean alone;
    private int turns;

    /**
     * If {@code alone}, both processes share one processor: a hybrid wait sleeps at once, and a spinning wait yields.
     */
    Spinner(Wait wait, boolean alone) {
        this.alone = alone;
        until = switch (wait) {
            case Wait.Spin _ -> Deadline.NEVER;
            case Wait.Hybrid some when !alone && some.spin().isPositive() -> Deadline.in(some.spin());
            case Wait.Hybrid _ -> Deadline.NOW;
            case Wait.Block _ -> Deadline.NOW;
        };
    }

    /** Pauses briefly and returns the next step. */
    Turn turn() {
        if (until == Deadline.NOW) {
            return Turn.SLEEP;
        }
        if (alone) {
            Thread.yield();
        } else {
            Thread.onSpinWait();
        }
        if (++turns % STRIDE != 0) {
            return Turn.LOOK;
        }
        return until.isOver() ? Turn.SLEEP : Turn.LOOK_AROUND;
    }
}
