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
 * One publication in each direction over aeron:ipc. Sent messages are copied into the log, received ones out of it.
 *
 * <p>The driver does not move bytes. It advances the limit up to which a publisher may write, and clears the log
 * after reading. If the driver has no thread, A runs it whenever A has to wait.
 */
final class Way implements FragmentHandler {
    private static final String CHANNEL = "aeron:ipc";
    private static final int THERE = 1;
    private static final int BACK = 2;
    /** Fragments per poll, as in Aeron's samples. */
    private static final int FRAGMENTS = 10;
    /** Aeron's largest MTU, a multiple of the frame alignment (32), so that large messages are cut into few pieces. */
    private static final int MTU = 65504;
    /** Number of empty polls after which the driver is run. It is far larger than a round trip needs. */
    private static final int PATIENCE = 4096;
    /** Timeout for liveness checks. It is long, because a worker that waits for its next order is not dead. */
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
    /** Error of a poll or of the conductor. By default, Aeron would print it and continue. */
    private Throwable failure;

    /** Creates A's end, with the driver. */
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

    /** Creates B's end. The kernel ends B when A ends. */
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

    /** Waits until the other process is connected in both directions. */
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

    /** Runs the driver and this client's conductor once. */
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

    /** Sends a whole message. The caller may overwrite the message when this returns. */
    void sendNumbered(Memory message) {
        write(message, message.bytes.capacity());
    }

    /** Sends the answer to a stream, which consists of the number only. */
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

    /** Polls until this many more messages have arrived. */
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

    /** Returns the sum of the counted messages, and starts or stops counting. */
    long count(boolean on) {
        long sum = counted;
        counts = on;
        counted = 0;
        return sum;
    }

    @Override
    public void onFragment(DirectBuffer buffer, int offset, int length, Header header) {
        // Checks the bounds here, because Agrona's bounds checks are disabled.
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
