package dev.thalweg.ring;

import java.io.IOException;

/** A failure of the communication between two processes. */
public abstract sealed class RingException extends IOException {
    private static final long serialVersionUID = 1;

    private RingException(String message) {
        super(message);
    }

    /** The peer ended without closing the channel. Everything that it had committed was delivered before. */
    public static final class PeerDied extends RingException {
        private static final long serialVersionUID = 1;
        /** Number of messages delivered completely. */
        private final long delivered;
        /** Number of bytes of an incomplete message. */
        private final long partial;

        PeerDied(long delivered, long partial) {
            super("the peer died: " + delivered + " messages delivered, " + partial
                    + " bytes of an incomplete message discarded; connect again for a new ring");
            this.delivered = delivered;
            this.partial = partial;
        }

        /**
         * Returns the number of messages delivered completely. At a consumer these are the messages that it received, at
         * a producer those that the consumer has released.
         *
         * @return messages
         */
        public long delivered() {
            return delivered;
        }

        /**
         * Returns the number of bytes of an incomplete message. On a ring it is 0: uncommitted bytes do not count.
         *
         * @return bytes
         */
        public long partial() {
            return partial;
        }
    }

    /** The peer closed the channel, and everything that it had sent was delivered. */
    public static final class Closed extends RingException {
        private static final long serialVersionUID = 1;
        /** Number of messages delivered. */
        private final long delivered;

        Closed(long delivered) {
            super("the peer closed the ring: " + delivered + " messages delivered");
            this.delivered = delivered;
        }

        /**
         * Returns the number of messages delivered. At a consumer these are the messages that it received, at a producer
         * those that the consumer has released.
         *
         * @return messages
         */
        public long delivered() {
            return delivered;
        }
    }

    /** The peer violated the format. The ring cannot be used any more. */
    public static final class Corrupt extends RingException {
        private static final long serialVersionUID = 1;

        Corrupt(String what) {
            super("invalid data from the peer: " + what + "; the ring cannot be used any more");
        }

        private Corrupt(Corrupt first) {
            super(first.getMessage());
            initCause(first);
        }

        /** Returns a copy of the error, to be thrown by a later call. */
        Corrupt again() {
            return new Corrupt(this);
        }
    }

    /** The operation is not allowed: for another user, a second consumer, or memory without the required seals. */
    public static final class NotPermitted extends RingException {
        private static final long serialVersionUID = 1;

        NotPermitted(String why) {
            super("not permitted: " + why);
        }
    }

    /** The timeout expired. Nothing is lost: the call can be repeated. */
    public static final class TimedOut extends RingException {
        private static final long serialVersionUID = 1;

        TimedOut() {
            super("timed out");
        }
    }

    /** The message is larger than the ring. */
    public static final class TooLarge extends RingException {
        private static final long serialVersionUID = 1;
        /** Requested number of bytes. */
        private final long length;
        /** The largest possible number of bytes. */
        private final long most;

        TooLarge(long length, long most) {
            super(length + " bytes are too large: at most " + most);
            this.length = length;
            this.most = most;
        }

        /**
         * Returns the requested number of bytes.
         *
         * @return bytes
         */
        public long length() {
            return length;
        }

        /**
         * Returns the largest possible number of bytes.
         *
         * @return bytes
         */
        public long most() {
            return most;
        }
    }
}
