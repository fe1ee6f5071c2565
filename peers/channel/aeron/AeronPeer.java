import java.util.List;

/**
 * Aeron IPC as a worker of study 103: two processes, with the jobs and the timing of two.h. Process A communicates
 * with the lab, sends, and runs the media driver. Process B receives into private memory.
 *
 * <p>job=ping-pong|stream. With driver=invoker, A's own thread runs the driver whenever A has to wait. With
 * driver=shared, another thread in A runs it. Both processes poll.
 */
final class AeronPeer extends Worker {
    private static final List<String> KEYS =
            List.of("job", "driver", "pin", "spoil", "bytes", "scratch", "side", "folder");

    private final String[] words;
    private final Setting setting;
    private Other other;
    private Way way;
    private Memory source;
    private long salt = 1;

    private AeronPeer(String[] words, Setting setting) {
        super(new Native());
        this.words = words;
        this.setting = setting;
    }

    public static void main(String[] words) throws Exception {
        if (List.of(words).contains("side=receiver")) {
            Receiver.main(Setting.of(new Parameters(words, KEYS)));
        } else {
            Worker.main(words, KEYS, parameters -> new AeronPeer(words, Setting.of(parameters)));
        }
    }

    @Override
    void warm() throws Exception {
        needs(2L * setting.bytes() + 2L * setting.logLength());
        // B is started first, so that it inherits A's processor affinity from before A is pinned.
        other = Other.start(words, setting);
        Settle.sender(setting.pinned());
        way = Way.hosting(setting, other::lives);
        other.say("meet");
        way.meet();
        // B can only connect if A runs the driver.
        while (!other.hasSpoken()) {
            way.serve();
        }
        other.hear("here");
        source = new Memory(setting.bytes());
        source.fill(salt);
        compile();
    }

    /** Sends batches until the JVMs of both processes have compiled the code, and every term of the log was used. */
    private void compile() throws Exception {
        long batch = Math.clamp((64L << 20) / setting.bytes(), 64, 10_000);
        for (long until = System.nanoTime() + Setting.WARM_UP_NS; System.nanoTime() < until; ) {
            run(batch, new Cost());
        }
    }

    @Override
    void run(long times, Cost cost) throws Exception {
        other.go("go", times);
        Mark mark = begin();
        sendAll(times);
        end(mark, cost);
        other.done(cost.used);
        cost.bytes += times * setting.bytes();
    }

    private void sendAll(long times) {
        for (long n = 0; n < times; n++) {
            way.send(source);
            if (setting.pingPong()) {
                way.await(1);
            }
        }
        if (!setting.pingPong()) {
            way.await(1);
        }
    }

    @Override
    String check() throws Exception {
        long sent = 0;
        boolean same = true;
        other.go("count", Setting.CHECKED);
        for (int n = 0; n < Setting.CHECKED; n++) {
            source.fill(++salt);
            long sum = way.number(source).sum();
            sent = Memory.fold(sent, sum);
            if (setting.spoil()) {
                source.spoil();
            }
            way.sendNumbered(source);
            // B must not see this change, because the call has returned.
            source.clear();
            if (setting.pingPong()) {
                way.await(1);
                same &= way.sink().sum() == sum;
            }
        }
        if (!setting.pingPong()) {
            way.await(1);
        }
        if (other.done(new Usage()) != sent) {
            return "what arrived is not what was sent";
        }
        return same ? null : "what came back is not what was sent";
    }

    @Override
    void close() throws Exception {
        // B ends when its input is closed. It must end before the driver, so that it can disconnect.
        if (other != null) {
            other.close();
        }
        if (way != null) {
            way.close();
        }
    }
}
