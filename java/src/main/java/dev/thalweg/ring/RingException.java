package dev.thalweg.ring;

import java.io.IOException;

/** What can go wrong between two processes, and how far they had come. */
public abstract sealed class RingException extends IOException {
    private static final long serialVersionUID = 1;

    private RingException(String message) {
        super(message);
    }

    /** The other process ended without a goodbye. Everything it had committed was delivered first. */
    public static final class PeerDied extends RingException {
        private static final long serialVersionUID = 1;
        /** Messages that arrived whole. */
        private final long delivered;
        /** Bytes of one that never will be. */
        private final long partial;

        PeerDied(long delivered, long partial) {
            super("the peer died: " + delivered + " delivered, " + partial
                    + " bytes of an unfinished one left out; connect again for a new ring");
            this.delivered = delivered;
            this.partial = partial;
        }

        /**
         * What arrived whole: messages received, or messages sent that the consumer had released.
         *
         * @return messages
         */
        public long delivered() {
            return delivered;
        }

        /**
         * Bytes of a message that will never be whole. On a ring 0: what was not committed does not exist.
         *
         * @return bytes
         */
        public long partial() {
            return partial;
        }
    }

    /** The other side said goodbye, and everything it had sent was delivered. */
    public static final class Closed extends RingException {
        private static final long serialVersionUID = 1;
        /** Messages that arrived. */
        private final long delivered;

        Closed(long delivered) {
            super("the peer closed the ring: " + delivered + " delivered");
            this.delivered = delivered;
        }

        /**
         * What arrived: messages received, or messages sent that the consumer had released.
         *
         * @return messages
         */
        public long delivered() {
            return delivered;
        }
    }

    /** The peer wrote something that the format does not allow. The ring is not used any more. */
    public static final class Corrupt extends RingException {
        private static final long serialVersionUID = 1;

        Corrupt(String what) {
            super("corrupt: " + what + "; the ring is given up");
        }

        private Corrupt(Corrupt first) {
            super(first.getMessage());
            initCause(first);
        }

        /** The same, told again to a later caller. */
        Corrupt again() {
            return new Corrupt(this);
        }
    }

    /** Somebody may not do this: another user, a second consumer, memory without its seals. */
    public static final class NotPermitted extends RingException {
        private static final long serialVersionUID = 1;

        NotPermitted(String why) {
            super("not permitted: " + why);
        }
    }

    /** The time was up. Nothing is lost: the call can be made again. */
    public static final class TimedOut extends RingException {
        private static final long serialVersionUID = 1;

        TimedOut() {
            super("timed out");
        }
    }

    /** More than fits. */
    public static final class TooLarge extends RingException {
        private static final long serialVersionUID = 1;
        /** Bytes asked for. */
        private final long length;
        /** The most that would do. */
        private final long most;

        TooLarge(long length, long most) {
            super(length + " bytes are too large: at most " + most);
            this.length = length;
            this.most = most;
        }

        /**
         * What was asked for.
         *
         * @return bytes
         */
        public long length() {
            return length;
        }

        /**
         * The most that would do.
         *
         * @return bytes
         */
        public long most() {
            return most;
        }
    }
}
