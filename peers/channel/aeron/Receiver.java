import java.io.BufferedReader;
import java.io.InputStreamReader;

/** Process B: executes A's orders, and reports the resources that it used. Only A reads
 * its standard output. */
final class Receiver {
    private final Setting setting;
    private final Native meter = new Native();
    private Way way;

    private Receiver(Setting setting) {
        this.setting = setting;
    }

    static void main(Setting setting) throws Exception {
        var receiver = new Receiver(setting);
        Settle.receiver(setting.pinned());
        try {
            var orders = new BufferedReader(new InputStreamReader(System.in));
            for (String line = orders.readLine(); line != null; line = orders.readLine()) {
                receiver.obey(line.split(" "));
            }
        } catch (Worker.Unfit unfit) {
            System.err.println("B: " + unfit.getMessage());
            System.exit(1);
        }
    }

    private void obey(String[] order) {
        if (order[0].equals("meet")) {
            way = Way.joining(setting);
            way.meet();
            say("here");
        } else {
            go(Long.parseLong(order[1]), order[0].equals("count"));
        }
    }

    /** A starts its clock when it reads "ready". */
    private void go(long times, boolean counts) {
        way.count(counts);
        say("ready");
        var used = new Worker.Usage();
        Worker.Usage before = meter.now();
        receiveAll(times);
        used.addSince(before, meter.now());
        say("done " + used.userUs + " " + used.sysUs + " " + used.minorFaults + " " + used.majorFaults + " "
                + used.voluntary + " " + used.involuntary + " " + way.count(false));
    }

    private void receiveAll(long times) {
        if (!setting.pingPong()) {
            way.await(times);
            way.answer();
            return;
        }
        for (long n = 0; n < times; n++) {
            way.await(1);
            // Sends the ping back, with its number.
            way.send(way.sink());
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
