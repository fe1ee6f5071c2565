package dev.thalweg.ring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class VirtualThreadsTest {
    @TempDir
    Path folder;

    @Test
    void aWaitingEndLeavesItsCarrierToOthers() throws IOException, InterruptedException {
        Path log = folder.resolve("log");
        var program = new ProcessBuilder(List.of(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-XX:ActiveProcessorCount=1",
                        "-Djdk.virtualThreadScheduler.parallelism=1",
                        "-Djdk.virtualThreadScheduler.maxPoolSize=1",
                        "--enable-native-access=ALL-UNNAMED",
                        "-classpath",
                        System.getProperty("java.class.path"),
                        VirtualThreads.class.getName(),
                        folder.resolve("ring").toString()))
                .redirectErrorStream(true)
                .redirectOutput(log.toFile())
                .start();
        try {
            assertTrue(program.waitFor(300, TimeUnit.SECONDS), "the virtual threads wait for each other for ever");
            assertEquals("other ran: true\nreceived 4000\n", Files.readString(log));
        } finally {
            program.destroyForcibly();
        }
    }
}
