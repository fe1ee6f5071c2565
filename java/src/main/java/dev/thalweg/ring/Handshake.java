package dev.thalweg.ring;

import java.io.IOException;
import java.security.SecureRandom;
import java.util.function.Supplier;

import dev.thalweg.internal.Libc;

/**
 * The handshake that sets up shared memory. The messages are Offer (with the producer's file), Ask, Accept (with the
 * consumer's file) and Ready. Each side checks the received file before it agrees. A refusal carries a reason and ends
 * the handshake. Each wait for a message has its own deadline, so that a slow start of one virtual machine does not use
 * up the time of the other.
 */
final class Handshake {
    private static final SecureRandom RANDOM = new SecureRandom();

    private Handshake() {}

    /** Performs the producer's part of the handshake. Closes the link on failure. */
    static End offer(Link link, Options options, Supplier<Deadline> deadline) throws IOException {
        return orClose(link, () -> {
            Geometry geometry = Geometry.of(options, RANDOM.nextLong());
            Memory.Made made = Memory.make(Role.PRODUCER, geometry, link.arena);
            Memory own = hand(link, Hello.Kind.OFFER, made);
            hear(link, Hello.Kind.ASK, deadline.get()).drop();
            Heard accept = hear(link, Hello.Kind.ACCEPT, deadline.get());
            Memory peer = orRefuse(link, geometry.epoch(), () -> {
                Memory theirs = Memory.ofPeer(accept.only(), Role.CONSUMER, link.arena);
                if (!theirs.geometry.agreesWith(geometry) || accept.hello.epoch() != geometry.epoch()) {
                    throw new RingException.Corrupt("offered " + geometry + ", but the peer accepted " + theirs.geometry);
                }
                return theirs;
            });
            say(link, new Hello(Hello.Kind.READY, geometry.epoch()), -1);
            return new End(own, peer, link, options.waiting());
        });
    }

    /** Performs the consumer's part of the handshake. Closes the link on failure. */
    static End accept(Link link, Options options, Supplier<Deadline> deadline) throws IOException {
        return orClose(link, () -> {
            greet(link, new Hello(Hello.Kind.ASK, 0), -1);
            Heard offer = hear(link, Hello.Kind.OFFER, deadline.get());
            long epoch = offer.hello.epoch();
            Memory peer = orRefuse(link, epoch, () -> {
                Memory theirs = Memory.ofPeer(offer.only(), Role.PRODUCER, link.arena);
                if (theirs.geometry.epoch() != epoch) {
                    throw new RingException.Corrupt("the handshake message and the memory belong to different channels");
                }
                return theirs;
            });
            Memory.Made made = Memory.make(Role.CONSUMER, peer.geometry.ours(), link.arena);
            Memory own = hand(link, Hello.Kind.ACCEPT, made);
            Heard ready = hear(link, Hello.Kind.READY, deadline.get());
            ready.drop();
            if (ready.hello.epoch() != epoch) {
                throw new RingException.Corrupt("the last handshake message belongs to another channel");
            }
            return new End(own, peer, link, options.waiting());
        });
    }

    /** Refuses a handshake with a reason. Ignores errors, because a peer that is gone does not need the message. */
    static void refuse(Link link, int reason, long epoch) {
        try {
            say(link, new Hello(Hello.Kind.REFUSE, epoch, reason), -1);
        } catch (IOException gone) {
            // The peer is gone.
        }
    }

    /** A handshake message with the descriptors that it carried. */
    private record Heard(Hello hello, int[] descriptors) {
        int only() throws RingException.Corrupt {
            if (descriptors.length == 1) {
                return descriptors[0];
            }
            drop();
            throw new RingException.Corrupt("received " + descriptors.length + " descriptors instead of one");
        }

        void drop() {
            for (int descriptor : descriptors) {
                Libc.CLOSE.attempt(descriptor);
            }
        }
    }

    /** A step that may fail. */
    private interface Step<T> {
        T take() throws IOException;
    }

    private static <T> T orClose(Link link, Step<T> step) throws IOException {
        try {
            return step.take();
        } catch (IOException | RuntimeException | Error failure) {
            link.close();
            throw failure;
        }
    }

    /** Sends the peer a refusal if a step fails. */
    private static <T> T orRefuse(Link link, long epoch, Step<T> step) throws IOException {
        try {
            return step.take();
        } catch (IOException failure) {
            refuse(link, failure instanceof RingException.NotPermitted ? Hello.MEMORY : Hello.OTHER, epoch);
            throw failure;
        }
    }

    private static Memory hand(Link link, Hello.Kind kind, Memory.Made made) throws IOException {
        try {
            Hello hello = new Hello(kind, made.memory().geometry.epoch());
            if (kind == Hello.Kind.OFFER) {
                greet(link, hello, made.descriptor());
            } else {
                say(link, hello, made.descriptor());
            }
            return made.memory();
        } finally {
            Libc.CLOSE.attempt(made.descriptor());
        }
    }

    /** Sends a message. The queue of a link holds a whole handshake, so this does not wait. */
    private static void say(Link link, Hello hello, int descriptor) throws IOException {
        link.send(hello.toBytes(), descriptor, Deadline.NOW);
    }

    /**
     * Sends the first message. Does not fail if the link is closed: the next read may return the peer's reason.
     */
    private static void greet(Link link, Hello hello, int descriptor) throws IOException {
        try {
            say(link, hello, descriptor);
        } catch (RingException.Closed hungUp) {
            // The link is closed, but the next read may return a message that the peer sent before.
        }
    }

    /** Receives a message that must be of a given type. */
    private static Heard hear(Link link, Hello.Kind due, Deadline deadline) throws IOException {
        Packet.Received got;
        try {
            got = link.receive(deadline);
        } catch (RingException.Closed gone) {
            throw link.peerHasEnded() ? new RingException.PeerDied(0, 0) : gone;
        }
        boolean kept = false;
        try {
            link.learn(got.sender());
            Hello hello = orRefuse(link, 0, () -> Hello.parse(got.bytes()));
            if (hello.kind() == due) {
                kept = true;
                return new Heard(hello, got.descriptors());
            }
            switch (hello.kind()) {
                case REFUSE -> throw new RingException.NotPermitted(hello.refusal());
                case OFFER, ASK -> {
                    refuse(link, Hello.SAME_ROLE, 0);
                    throw new RingException.NotPermitted(new Hello(due, 0, Hello.SAME_ROLE).refusal());
                }
                default -> throw new RingException.Corrupt(hello.kind() + " received, but " + due + " expected");
            }
        } finally {
            if (!kept) {
                got.drop();
            }
        }
    }
}
