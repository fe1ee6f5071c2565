package dev.thalweg.internal;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** Measured numbers of this module, stored as data in {@code measured.properties} with their conditions. */
public final class Measured {
    private static final Properties ALL = read();

    private Measured() {}

    /**
     * Returns a measured number, or the value of the system property {@code thalweg.NAME}.
     *
     * @param name      its name
     * @param otherwise the value if none was measured
     * @return the number
     */
    public static long number(String name, long otherwise) {
        String measured = ALL.getProperty(name);
        return Long.getLong("thalweg." + name, measured == null ? otherwise : Long.parseLong(measured));
    }

    /** Returns no numbers if the classes are used without the module's resources. */
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
