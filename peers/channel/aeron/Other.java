import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;

/** A's handle of process B: the process, and the streams for orders and reports. */
final class Other {
    private final Process process;
    private final PrintStream orders;
    private final BufferedReader reports;

    private Other(Process process) {
        this.process = process;
        orders = new PrintStream(process.getOutputStream(), true);
        reports = new BufferedReader(new InputStreamReader(process.getInputStream()));
    }

    /** Starts this program again as B, with equal parameters and equal options of the
     * virtual machine. */
    static Other start(String[] words, Setting setting) throws IOException {
        var command = new ArrayList<String>();
        command.add(ProcessHandle.current().info().command().orElseThrow());
        command.addAll(java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments());
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), AeronPeer.class.getName()));
        command.addAll(List.of(words));
        command.addAll(List.of("side=receiver", "folder=" + setting.folder()));
        return new Other(new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start());
    }

    void say(String order) {
        orders.println(order);
    }

    /** Sends an order to B, and waits until B is ready to execute it. */
    void go(String what, long times) throws IOException {
        say(what + " " + times);
        hear("ready");
    }

    /** Adds the resources that B used to {@code used}. Returns the sum of the messages that B received. */
    long done(Worker.Usage used) throws IOException {
        String[] numbers = hear("done").split(" ");
        var theirs = new Worker.Usage();
        theirs.userUs = Long.parseLong(numbers[1]);
        theirs.sysUs = Long.parseLong(numbers[2]);
        theirs.minorFaults = Long.parseLong(numbers[3]);
        theirs.majorFaults = Long.parseLong(numbers[4]);
        theirs.voluntary = Long.parseLong(numbers[5]);
        theirs.involuntary = Long.parseLong(numbers[6]);
        used.add(theirs);
        return Long.parseLong(numbers[7]);
    }

    boolean lives() {
        return process.isAlive();
    }

    /** Returns true if a line can be read, or if B has ended. */
    boolean hasSpoken() throws IOException {
        return reports.ready() || !lives();
    }

    /** Returns the next line, which must begin with `what`. */
    String hear(String what) throws IOException {
        String line = reports.readLine();
        if (line == null) {
            throw new Worker.Unfit("the receiver ended");
        }
        if (!line.startsWith(what)) {
            throw new Worker.Unfit("the receiver says " + line + ", not " + what);
        }
        return line;
    }

    void close() throws InterruptedException {
        orders.close();
        process.waitFor();
    }
}
