package dev.thalweg.ring;

/** Looking again and again, and when to stop doing it: one period of waiting. */
final class Spinner {
    /** What to do after a look that found nothing. */
    enum Turn {
        /** Look at the data again. */
        LOOK,
        /** Look at the peer's health and the deadline as well. */
        LOOK_AROUND,
        /** Enough: sleep. */
        SLEEP
    }

    /** How often the clock and the peer's health are looked at: they cost more than the data word. */
    private static final int STRIDE = 64;

    private final Deadline until;
    private final boolean alone;
    private int turns;

    /** Alone: the peer runs only when we do not. */
    Spinner(Wait wait, boolean alone) {
        this.alone = alone;
        until = switch (wait) {
            case Wait.Spin _ -> Deadline.NEVER;
            case Wait.Hybrid some when !alone && some.spin().isPositive() -> Deadline.in(some.spin());
            case Wait.Hybrid _ -> Deadline.NOW;
            case Wait.Block _ -> Deadline.NOW;
        };
    }

    /** Passes a moment and says what next. */
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
