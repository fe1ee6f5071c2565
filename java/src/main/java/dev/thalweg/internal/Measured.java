package dev.thalweg.internal;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** What was measured for this module: numbers that are data, kept in {@code measured.properties} with their conditions. */
public final class Measured {
    private static final Properties ALL = read();

    private Measured() {}

    /**
     * A measured number, or what the system property {@code thalweg.NAME} says instead.
     *
     * @param name      its name
     * @param otherwise the value if none was measured
     * @return the number
     */
    public static long number(String name, long otherwise) {
        String measured = ALL.getProperty(name);
        return Long.getLong("thalweg." + name, measured == null ? otherwise : Long.parseLong(measured));
    }

    /** Nothing, where the classes are used without the module's resources. */
    private static Properties read() {
        var all = new Properties();
        try (InputStream file = Measured.class.getResourceAsStream("/dev/thalweg/measured.properties")) {
            if (file != null) {
                all.load(file);
            }
        } catch (IOException failure) {
            throw new UncheckedIOException("measured.properties", failure);
        }
        return all;
    }
}
