import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.BufferClaim;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.FrameDescriptor;
import io.aeron.logbuffer.Header;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.AgentInvoker;

/**
 * A publication there and one back over aeron:ipc. What is sent is copied into the log, what is received out of it.
 *
 * <p>The driver carries no bytes, but it moves the limit up to which a publisher may write, and clears what was read:
 * where it has no thread, A lets it work when A is kept waiting.
 */
final class Way implements FragmentHandler {
    private static final String CHANNEL = "aeron:ipc";
    private static final int THERE = 1;
    private static final int BACK = 2;
    /** Of a poll, as in Aeron's samples. */
    private static final int FRAGMENTS = 10;
    /** Aeron's largest, a multiple of its frame's 32 bytes: the fewest pieces of what is not claimed whole. */
    private static final int MTU = 65504;
    /** Empty polls until the driver is let to work: far more than a round trip has. */
    private static final int PATIENCE = 4096;
    /** A worker may idle for long between two orders, which is no death. */
    private static final long IDLE_NS = TimeUnit.DAYS.toNanos(1);
    private static final long MEETING_NS = TimeUnit.SECONDS.toNanos(20);

    private final MediaDriver driver;
    private final BooleanSupplier otherLives;
    private final AgentInvoker driverInvoker;
    private final Aeron aeron;
    private final ExclusivePublication publication;
    private final Subscription subscription;
    private final BufferClaim claim = new BufferClaim();
    private final Memory sink;
    private Image image;
    private long sent;
    private long arrived;
    private int filled;
    private boolean counts;
    private long counted;
    /** What a poll, or the work besides, ran into: Aeron itself would print it and go on. */
    private Throwable failure;

    /** A's end, with the driver. */
    static Way hosting(Setting setting, BooleanSupplier otherLives) {
        var context = new MediaDriver.Context()
                .aeronDirectoryName(setting.folder().toString())
                .dirDeleteOnShutdown(true)
                .threadingMode(setting.invoker() ? ThreadingMode.INVOKER : ThreadingMode.SHARED)
                .termBufferSparseFile(false)
                .ipcTermBufferLength(setting.termLength())
                .ipcPublicationTermWindowLength(setting.window())
                .ipcMtuLength(MTU)
                .driverTimeoutMs(TimeUnit.NANOSECONDS.toMillis(IDLE_NS))
                .clientLivenessTimeoutNs(IDLE_NS)
                .publicationUnblockTimeoutNs(2 * IDLE_NS);
        return new Way(setting, MediaDriver.launch(context), otherLives, THERE, BACK);
    }

    /** B's end. The kernel ends B with A. */
    static Way joining(Setting setting) {
        return new Way(setting, null, () -> true, BACK, THERE);
    }

    private Way(Setting setting, MediaDriver driver, BooleanSupplier otherLives, int to, int from) {
        this.driver = driver;
        this.otherLives = otherLives;
        driverInvoker = driver == null ? null : driver.sharedAgentInvoker();
        aeron = Aeron.connect(new Aeron.Context()
                .aeronDirectoryName(setting.folder().toString())
                .driverTimeoutMs(TimeUnit.NANOSECONDS.toMillis(IDLE_NS))
                .errorHandler(seen -> failure = seen)
                .useConductorAgentInvoker(true)
                .driverAgentInvoker(driverInvoker)
                .preTouchMappedMemory(true));
        publication = aeron.addExclusivePublication(CHANNEL, to);
        subscription = aeron.addSubscription(CHANNEL, from);
        sink = new Memory(setting.bytes());
    }

    /** Waits for the other end of both. */
    void meet() {
        long until = System.nanoTime() + MEETING_NS;
        while (!publication.isConnected() || subscription.imageCount() == 0) {
            if (System.nanoTime() > until || !otherLives.getAsBoolean()) {
                throw new Worker.Unfit("Aeron: the other process has not come");
            }
            serve();
        }
        image = subscription.imageAtIndex(0);
    }

    /** What the driver and this client have to do besides. */
    void serve() {
        if (driverInvoker != null) {
            driverInvoker.invoke();
        }
        aeron.conductorAgentInvoker().invoke();
        Thread.onSpinWait();
    }

    Memory sink() {
        return sink;
    }

    Memory number(Memory message) {
        message.number(++sent);
        return message;
    }

    void send(Memory message) {
        sendNumbered(number(message));
    }

    /** A whole message; when it returns, the message may be overwritten. */
    void sendNumbered(Memory message) {
        write(message, message.bytes.capacity());
    }

    /** The answer to a stream: the number alone. */
    void answer() {
        number(sink);
        write(sink, Long.BYTES);
    }

    private void write(Memory message, int length) {
        long position = publish(message, length);
        for (int turns = 1; position < 0; turns++) {
            if (position != Publication.BACK_PRESSURED && position != Publication.ADMIN_ACTION) {
                throw new Worker.Unfit("Aeron: message " + sent + " was answered " + position);
            }
            if (driverInvoker != null) {
                driverInvoker.invoke();
            }
            idle(turns);
            position = publish(message, length);
        }
    }

    private long publish(Memory message, int length) {
        if (length > publication.maxPayloadLength()) {
            return publication.offer(message.bytes, 0, length);
        }
        long position = publication.tryClaim(length, claim);
        if (position > 0) {
            claim.buffer().putBytes(claim.offset(), message.bytes, 0, length);
            claim.commit();
        }
        return position;
    }

    /** Polls until so many more messages have come. */
    void await(long messages) {
        long until = arrived + messages;
        for (int empty = 0; arrived < until; ) {
            empty = image.poll(this, FRAGMENTS) > 0 ? 0 : empty + 1;
            if (failure != null) {
                throw new Worker.Unfit("Aeron: " + failure.getMessage());
            }
            if (empty > 0) {
                idle(empty);
            }
        }
    }

    private void idle(int turns) {
        Thread.onSpinWait();
        if (turns % PATIENCE != 0) {
            return;
        }
        if (!otherLives.getAsBoolean()) {
            throw new Worker.Unfit("the other process is gone");
        }
        if (driverInvoker != null) {
            driverInvoker.invoke();
        }
    }

    /** The sum of all that comes until the next call. */
    long count(boolean on) {
        long sum = counted;
        counts = on;
        counted = 0;
        return sum;
    }

    @Override
    public void onFragment(DirectBuffer buffer, int offset, int length, Header header) {
        // Agrona's own check is off.
        if (length > sink.bytes.capacity() - filled) {
            throw new Worker.Unfit("message " + (arrived + 1) + " has more bytes than there is room");
        }
        buffer.getBytes(offset, sink.bytes, filled, length);
        filled += length;
        if ((header.flags() & FrameDescriptor.END_FRAG_FLAG) == 0) {
            return;
        }
        filled = 0;
        arrived++;
        if (sink.number() != arrived) {
            throw new Worker.Unfit("message " + arrived + " came as " + sink.number());
        }
        if (counts) {
            counted = Memory.fold(counted, sink.sum());
        }
    }

    void close() {
        aeron.close();
        if (driver != null) {
            driver.close();
        }
    }
}
