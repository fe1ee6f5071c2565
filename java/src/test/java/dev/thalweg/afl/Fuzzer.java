package dev.thalweg.afl;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.jar.Attributes;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;

import dev.thalweg.Skips;

/** Debian's unmodified AFL++ in a private directory. */
final class Fuzzer {
    /** Time limit of a tool in seconds. It only ends tools that hang. */
    private static final int MOST_SECONDS = 600;

    /** The exit status and the output of a tool. */
    record Ran(int status, String said) {}

    private final Path folder;

    Fuzzer(Path folder) throws IOException {
        if (!isInstalled("afl-fuzz")) {
            Skips.skip("AflTargetTest", "afl++ is not installed");
        }
        this.folder = folder;
    }

    private static boolean isInstalled(String program) {
        for (String place : System.getenv("PATH").split(":")) {
            if (Files.isExecutable(Path.of(place, program))) {
                return true;
            }
        }
        return false;
    }

    /** Returns the mark on the command lines of the targets of a test in this directory. */
    static String markOf(Path folder) {
        return "-Dthalweg.test=" + folder;
    }

    /** Returns the command line of a target. */
    List<String> java(Class<?> target, List<String> flags) throws IOException {
        var command = new ArrayList<String>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        // Disables the second JIT compiler, which would use half of the second for which most of these JVMs run.
        command.addAll(List.of("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m"));
        command.addAll(List.of("--enable-native-access=ALL-UNNAMED", markOf(folder)));
        command.addAll(flags);
        command.addAll(List.of("-cp", classPath(), target.getName()));
        return command;
    }

    /**
     * Returns the flag that counts the edges of classes with a prefix. The jar of the agent contains only a manifest.
     */
    String agent(String prefix) throws IOException {
        Path jar = folder.resolve("agent.jar");
        var manifest = new Manifest();
        manifest.getMainAttributes().put(Attributes.Name.MANIFEST_VERSION, "1.0");
        manifest.getMainAttributes().put(new Attributes.Name("Premain-Class"), CoverageAgent.class.getName());
        new JarOutputStream(Files.newOutputStream(jar), manifest).close();
        return "-javaagent:" + jar + "=" + prefix;
    }

    /** Returns the target in C. */
    List<String> c() throws IOException, InterruptedException {
        if (!isInstalled("cc")) {
            Skips.skip("AflTargetTest in C", "there is no C compiler");
        }
        Path program = folder.resolve("maze");
        if (!Files.exists(program)) {
            var built = run(List.of("cc", "-O1", "-Wall", "-Werror", "-o", program.toString(), source().toString()), Map.of());
            assertTrue(built.status() == 0, built.said());
        }
        return List.of(program.toString());
    }

    private static Path source() {
        try {
            return Path.of(Fuzzer.class.getResource("maze.c").toURI());
        } catch (URISyntaxException defect) {
            throw new AssertionError(defect);
        }
    }

    private static String classPath() {
        var places = new ArrayList<String>();
        for (Class<?> each : List.of(AflTarget.class, Fuzzer.class, org.json.JSONObject.class)) {
            places.add(each.getProtectionDomain().getCodeSource().getLocation().getPath());
        }
        return String.join(":", places);
    }

    /** Runs a tool of AFL++ on a target. */
    Ran run(List<String> tool, List<String> target, Map<String, String> more) throws IOException, InterruptedException {
        var command = new ArrayList<>(tool);
        command.add("--");
        command.addAll(target);
        return run(command, more);
    }

    /** The awaited event. */
    interface Event {
        boolean hasHappened() throws IOException;
    }

    /**
     * Runs an endless tool until an event has happened, and then asks it to end. {@code THALWEG_FUZZ_SECONDS} is the
     * minimum duration.
     */
    Ran runUntil(List<String> tool, List<String> target, Event event) throws IOException, InterruptedException {
        var command = new ArrayList<>(tool);
        command.add("--");
        command.addAll(target);
        long began = System.nanoTime();
        long least = TimeUnit.SECONDS.toNanos(Long.parseLong(System.getenv().getOrDefault("THALWEG_FUZZ_SECONDS", "0")));
        long most = Math.max(least, TimeUnit.SECONDS.toNanos(MOST_SECONDS));
        Process process = start(command, Map.of());
        try {
            boolean happened = false;
            for (long ran = 0; process.isAlive() && ran < most && !(happened && ran >= least); ) {
                Thread.sleep(100);
                happened = happened || event.hasHappened();
                ran = System.nanoTime() - began;
            }
            process.destroy();
            return ended(process, command);
        } finally {
            process.destroyForcibly();
        }
    }

    /** Runs a command. */
    Ran run(List<String> command, Map<String, String> more) throws IOException, InterruptedException {
        Process process = start(command, more);
        try {
            return ended(process, command);
        } finally {
            process.destroyForcibly();
        }
    }

    private Ran ended(Process process, List<String> command) throws IOException, InterruptedException {
        assertTrue(process.waitFor(MOST_SECONDS, TimeUnit.SECONDS), () -> "still running: " + command);
        return new Ran(process.exitValue(), Files.readString(folder.resolve("said"), StandardCharsets.ISO_8859_1));
    }

    Process start(List<String> command, Map<String, String> more) throws IOException {
        var builder = new ProcessBuilder(command).directory(folder.toFile()).redirectErrorStream(true);
        builder.redirectInput(Path.of("/dev/null").toFile()).redirectOutput(folder.resolve("said").toFile());
        var environment = builder.environment();
        // Skips the check of the binary, because the program is java. Sets a long limit for the start, because a JVM
        // starts slowly on a busy machine.
        environment.put("AFL_SKIP_BIN_CHECK", "1");
        environment.put("AFL_FORKSRV_INIT_TMOUT", "60000");
        environment.put("AFL_NO_UI", "1");
        environment.put("AFL_ALLOW_TMP", "1");
        environment.put("AFL_NO_AFFINITY", "1");
        environment.put("AFL_SKIP_CPUFREQ", "1");
        environment.put("AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES", "1");
        environment.putAll(more);
        return builder.start();
    }
}
