package dev.thalweg.afl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

import dev.thalweg.Sample;
import dev.thalweg.SharedMemory;
import org.example.fuzzed.Flawed;
import org.example.fuzzed.Json;
import org.example.fuzzed.Maze;
import org.example.fuzzed.Numbered;

/** The methods run in parallel, because they mostly wait for hangs and for starts of virtual machines. */
@Execution(ExecutionMode.CONCURRENT)
@Timeout(1500)
class AflTargetTest {
    /** Time limit in milliseconds for a run that does not hang, on the busiest machine. */
    private static final int GENEROUS = 60_000;

    private static final String LIMIT = Integer.toString(GENEROUS);

    /** Output of afl-showmap for a run that hangs. */
    private static final String HUNG = "+++ Program timed off +++";

    private static final String CRASHED = "+++ Program killed by signal 6 +++";

    @TempDir
    Path folder;

    @ParameterizedTest
    @ValueSource(ints = {65536, 262144})
    void mapsAreThoseOfTheSameProgramInC(int size) throws Exception {
        var fuzzer = new Fuzzer(folder);
        // afl-showmap omits an empty file.
        cases(Map.of("one", new byte[1], "text", "a line of text\n".getBytes(StandardCharsets.UTF_8),
                "random", random(4000), "large", random(100_000)));
        var flags = List.of("-Dthalweg.afl.map=" + size);
        var java = maps(fuzzer, fuzzer.java(Maze.class, flags), "java", size, GENEROUS);
        var c = maps(fuzzer, fuzzer.c(), "c", size, GENEROUS);
        assertEquals(4, c.size());
        assertEquals(c, java);
        assertNotEquals(c.get("text"), c.get("random"));
    }

    @Test
    void theInputHasNotRunWhenTheFuzzerFirstAsks() throws Exception {
        var fuzzer = new Fuzzer(folder);
        cases(Map.of("1", bytes("a"), "2", bytes("b")));
        var maps = maps(fuzzer, fuzzer.java(Numbered.class, List.of()), "java", Coverage.USUAL_SIZE, GENEROUS);
        // Each run has incremented the counter of its number, once.
        assertEquals(Map.of("1", "000001:1\n", "2", "000002:1\n"), maps);
    }

    @Test
    void aWorkerThatNeverGreetsTheFuzzerIsGivenUp() throws Exception {
        var fuzzer = new Fuzzer(folder);
        cases(Map.of("1", bytes("a")));
        var target = fuzzer.java(Numbered.class, List.of("-Dnumbered.stillborn=" + Supervisor.SUPERVISOR));
        var tool = List.of("afl-showmap", "-r", "-t", LIMIT, "-i", "in", "-o", "java");
        var ran = fuzzer.run(tool, target, Map.of());
        assertNotEquals(0, ran.status());
        assertTrue(ran.said().contains("the worker ended 3 times before its first run"), ran.said());
        nobodyIsLeft();
    }

    @Test
    @EnabledIfEnvironmentVariable(named = "THALWEG_SAMPLE", matches = "1", disabledReason = "takes long: the audit suite whole runs it")
    void whatLeavesTheTargetIsACrashAndWhatIsExpectedIsNone() throws Exception {
        var fuzzer = new Fuzzer(folder);
        var target = fuzzer.java(Maze.class, List.of());
        // The time limit is generous, because the measured time includes the start of the virtual machine.
        for (String harm : List.of("throw", "deep", "memory")) {
            String said = shown(fuzzer, target, harm, GENEROUS);
            assertTrue(said.contains(CRASHED), harm + ": " + said);
        }
        for (String fine : List.of("expected", "nothing", "")) {
            String said = shown(fuzzer, target, fine, GENEROUS);
            assertFalse(said.contains("+++"), fine + ": " + said);
        }
        assertTrue(shown(fuzzer, target, "busy", 3000).contains(HUNG));
        nobodyIsLeft();
    }

    static List<Arguments> verdicts() {
        return Sample.of(List.of(
            Arguments.of("exit0", 0), Arguments.of("exit1", 1), Arguments.of("exit130", 130), Arguments.of("exit134", 134),
            Arguments.of("halt0", 0), Arguments.of("halt1", 1), Arguments.of("halt130", 130), Arguments.of("expects", 0),
            Arguments.of("nothing", 0), Arguments.of("thread", -1), Arguments.of("virtual", -1), Arguments.of("throw", -1)), 4);
    }

    /** Runs each input through the fork server, in a single run under a tool, and without a tool. */
    @ParameterizedTest
    @MethodSource("verdicts")
    void aRunHasOneVerdict(String input, int exit) throws Exception {
        var fuzzer = new Fuzzer(folder);
        boolean crash = exit < 0;
        cases(Map.of("1", bytes(input), "2", bytes("harmless")));
        var target = fuzzer.java(Maze.class, List.of());
        var tool = List.of("afl-fuzz", "-V", "1", "-t", LIMIT, "-i", "in", "-o", "out");
        var fuzzed = fuzzer.run(tool, target, Map.of()).said();
        assertTrue(fuzzed.contains("orig:1"), fuzzed);
        assertEquals(crash, fuzzed.contains("results in a crash"), fuzzed);
        String said = shown(fuzzer, target, input, GENEROUS);
        assertEquals(crash, said.contains("+++ Program killed by signal"), said);
        var command = new ArrayList<>(target);
        command.add("input");
        var once = fuzzer.run(command, Map.of());
        assertEquals(crash ? 134 : exit, once.status(), once.said());
        if (!input.startsWith("halt")) {
            String verdict = crash ? "crash:" : "no crash";
            assertTrue(once.said().lines().anyMatch(line -> line.startsWith(verdict)), once.said());
        }
        nobodyIsLeft();
    }

    @Test
    void aCrashEndsByItsSignalWhateverBecomesOfTheSignal() throws Exception {
        var fuzzer = new Fuzzer(folder);
        Files.writeString(folder.resolve("input"), "deep");
        // Runs the target with SIGABRT handled by default, blocked and ignored. A blocked signal stays pending, like
        // one for a thread that was not scheduled yet.
        for (String fate : List.of("--default-signal=ABRT", "--block-signal=ABRT", "--ignore-signal=ABRT")) {
            // One of them has the map of an AFL++ that was built with USEMMAP.
            var kind = fate.startsWith("--block") ? SharedMemory.Kind.POSIX : SharedMemory.Kind.SYSV;
            var name = kind == SharedMemory.Kind.POSIX ? "/thalweg-afl-test-" + ProcessHandle.current().pid() : "";
            try (var map = SharedMemory.create(kind, name, Coverage.USUAL_SIZE)) {
                var command = new ArrayList<>(List.of("env", fate));
                command.addAll(fuzzer.java(Maze.class, List.of()));
                command.add("input");
                int sigAbort = 6;
                var process = fuzzer.start(command, Map.of("__AFL_SHM_ID", map.name()));
                assertEquals(128 + sigAbort, process.waitFor(), () -> fate);
            }
        }
    }

    @Test
    @EnabledIfEnvironmentVariable(named = "THALWEG_SAMPLE", matches = "1", disabledReason = "takes long: the audit suite whole runs it")
    void hangsAndCrashesInARowAreToldAndWhatComesAfterThemRuns() throws Exception {
        var fuzzer = new Fuzzer(folder);
        cases(Map.of("1", bytes("busy"), "2", bytes("throw"), "3", bytes("asleep"), "4", bytes("busy"),
                "5", bytes("harmless")));
        var maps = maps(fuzzer, fuzzer.java(Maze.class, List.of()), "java", Coverage.USUAL_SIZE, 6000);
        var harmless = maps(fuzzer, fuzzer.c(), "c", Coverage.USUAL_SIZE, 6000).get("5");
        assertEquals(harmless, maps.get("5"));
        nobodyIsLeft();
    }

    @Test
    void aFuzzerFindsThePlantedBugAndItsOtherToolsWork() throws Exception {
        var fuzzer = new Fuzzer(folder);
        var target = fuzzer.java(Flawed.class, List.of(fuzzer.agent(Flawed.class.getName())));
        cases(Map.of("seed", bytes("(12 (3))")));
        var ran = fuzzer.run(
                List.of("afl-fuzz", "-D", "-s", "1", "-V", "500", "-t", LIMIT, "-i", "in", "-o", "out"),
                target,
                Map.of("AFL_BENCH_UNTIL_CRASH", "1"));
        assertEquals(0, ran.status(), ran.said());
        var crashes = inside(folder.resolve("out/default/crashes"), "id:");
        assertFalse(crashes.isEmpty(), ran.said());
        assertTrue(inside(folder.resolve("out/default/queue"), "id:").size() > 1, ran.said());
        Files.copy(crashes.getFirst(), folder.resolve("crash"));
        var shrunk = fuzzer.run(
                List.of("afl-tmin", "-t", LIMIT, "-i", "crash", "-o", "small"), target, Map.of());
        assertEquals(0, shrunk.status(), shrunk.said());
        assertTrue(Files.readString(folder.resolve("small")).matches("(?s)\\(.*\\(.*\\(.*#"), Files.readString(folder.resolve("small")));
        var chosen = fuzzer.run(
                List.of("afl-cmin", "-t", LIMIT, "-i", "out/default/queue", "-o", "fewer"), target, Map.of());
        assertEquals(0, chosen.status(), chosen.said());
        assertFalse(inside(folder.resolve("fewer"), "").isEmpty(), chosen.said());
        nobodyIsLeft();
    }

    @Test
    void aParserFromMavenCentralIsFuzzed() throws Exception {
        var fuzzer = new Fuzzer(folder);
        var target = fuzzer.java(Json.class, List.of(fuzzer.agent("org.json")));
        cases(Map.of("seed", bytes("{\"a\": [1, 2.5e3, true, null]}")));
        var queue = folder.resolve("out/default/queue");
        var ran = fuzzer.runUntil(
                List.of("afl-fuzz", "-s", "1", "-t", LIMIT, "-i", "in", "-o", "out"),
                target,
                () -> Files.exists(queue) && inside(queue, "id:").size() > 3);
        assertEquals(0, ran.status(), ran.said());
        assertTrue(inside(queue, "id:").size() > 3, ran.said());
        assertTrue(Files.readString(folder.resolve("out/default/fuzzer_stats")).contains("execs_done"));
        nobodyIsLeft();
    }

    @Test
    void nobodyIsLeftWhenTheFuzzerIsKilled() throws Exception {
        var fuzzer = new Fuzzer(folder);
        cases(Map.of("seed", bytes("x")));
        var command = new ArrayList<>(List.of("afl-fuzz", "-t", LIMIT, "-i", "in", "-o", "out", "--"));
        command.addAll(fuzzer.java(Maze.class, List.of()));
        Process process = fuzzer.start(command, Map.of());
        Path statistics = folder.resolve("out/default/fuzzer_stats");
        for (int turn = 0; turn < 3000 && process.isAlive() && !Files.exists(statistics); turn++) {
            Thread.sleep(100);
        }
        assertTrue(process.isAlive() && Files.exists(statistics), Files.readString(folder.resolve("said")));
        assertTrue(left() > 0, "the supervisor and its worker are not found, so nobody could be missed");
        process.destroyForcibly().waitFor();
        nobodyIsLeft();
    }

    private String shown(Fuzzer fuzzer, List<String> target, String input, int milliseconds)
            throws IOException, InterruptedException {
        Files.writeString(folder.resolve("input"), input);
        var all = new ArrayList<>(target);
        all.add("input");
        var tool = List.of("afl-showmap", "-e", "-t", Integer.toString(milliseconds), "-o", "shown");
        return fuzzer.run(tool, all, Map.of()).said();
    }

    /** Returns the raw counters of every case. */
    private Map<String, String> maps(Fuzzer fuzzer, List<String> target, String to, int size, int milliseconds)
            throws IOException, InterruptedException {
        var tool = List.of("afl-showmap", "-r", "-t", Integer.toString(milliseconds), "-i", "in", "-o", to);
        var ran = fuzzer.run(tool, target, Map.of("AFL_MAP_SIZE", Integer.toString(size)));
        var maps = new TreeMap<String, String>();
        for (Path each : inside(folder.resolve(to), "")) {
            maps.put(each.getFileName().toString(), Files.readString(each));
        }
        assertFalse(maps.isEmpty(), ran.said());
        return maps;
    }

    private void cases(Map<String, byte[]> cases) throws IOException {
        Files.createDirectories(folder.resolve("in"));
        for (var each : cases.entrySet()) {
            Files.write(folder.resolve("in").resolve(each.getKey()), each.getValue());
        }
    }

    private static List<Path> inside(Path folder, String prefix) throws IOException {
        try (Stream<Path> all = Files.list(folder)) {
            return all.filter(path -> path.getFileName().toString().startsWith(prefix)).sorted().toList();
        }
    }

    /** Waits until no process of the target is left after the end of the fuzzer. */
    private void nobodyIsLeft() throws InterruptedException {
        for (int turn = 0; turn < 1200 && left() > 0; turn++) {
            Thread.sleep(100);
        }
        assertEquals(0, left());
    }

    /** Returns the number of virtual machines that run this test's target. Those of parallel tests have other marks. */
    private long left() {
        String mark = Fuzzer.markOf(folder);
        return ProcessHandle.allProcesses()
                .filter(process -> process.info().command().orElse("").endsWith("/java"))
                .filter(process -> commandLine(process.pid()).contains(mark))
                .count();
    }

    /** Returns the complete command line, because ProcessHandle truncates long ones. */
    private static String commandLine(long pid) {
        try {
            return Files.readString(Path.of("/proc", Long.toString(pid), "cmdline"), StandardCharsets.ISO_8859_1);
        } catch (IOException ended) {
            return "";
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] random(int size) {
        byte[] bytes = new byte[size];
        new Random(size).nextBytes(bytes);
        return bytes;
    }
}
