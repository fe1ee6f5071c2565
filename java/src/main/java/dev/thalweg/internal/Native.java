package dev.thalweg.internal;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/**
 * The functions of {@code libthalweg.so} that this module calls, as declared in {@code thalweg.h}.
 *
 * <p>Loads the library from the file that {@code -Dthalweg.library} names. Otherwise loads it from the jar with the
 * classifier of this platform, and otherwise from the loader's path.
 */
public final class Native {
    /** Version of the layouts below. All libraries with this major and minor version have these layouts. */
    private static final String VERSION = "0.1.0";
    private static final String SERIES = VERSION.substring(0, VERSION.lastIndexOf('.'));
    private static final String SONAME = "libthalweg.so.0";
    private static final Linker LINKER = Linker.nativeLinker();

    /** The library, or the reason why it was not found. */
    private record Found(Native library, String why) {}

    private static final class Holder {
        static final Found FOUND = look();
    }

    private final MethodHandle transfer;
    private final MethodHandle plan;
    private final MethodHandle loadProfile;
    private final MethodHandle freeString;

    private Native(SymbolLookup library) {
        var moving = FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);
        this.transfer = handle(library, "tw_transfer", moving);
        this.plan = handle(library, "tw_plan_json", moving);
        this.loadProfile = handle(library, "tw_profile_load", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS));
        this.freeString = handle(library, "tw_string_free", FunctionDescriptor.ofVoid(ADDRESS));
    }

    /**
     * Returns the library if it was found.
     *
     * @return the library, or null
     */
    public static Native orNull() {
        return Holder.FOUND.library();
    }

    /**
     * Returns the library.
     *
     * @return the library
     * @throws UnsupportedOperationException if it was not found; the message contains advice
     */
    public static Native get() {
        Found found = Holder.FOUND;
        if (found.library() == null) {
            throw new UnsupportedOperationException(found.why());
        }
        return found.library();
    }

    /**
     * {@code tw_transfer}.
     *
     * @param source  a descriptor
     * @param sink    a descriptor
     * @param length  bytes, or -1 for all
     * @param options a {@code tw_transfer_options}
     * @param report  a {@code tw_report}, to be filled
     * @param error   a {@code tw_error}, to be filled
     * @return a {@code tw_status}
     */
    public int transfer(
            int source, int sink, long length, MemorySegment options, MemorySegment report, MemorySegment error) {
        try {
            return (int) transfer.invokeExact(source, sink, length, options, report, error);
        } catch (Throwable defect) {
            throw new AssertionError("tw_transfer", defect);
        }
    }

    /**
     * {@code tw_plan_json}.
     *
     * @param source  a descriptor
     * @param sink    a descriptor
     * @param length  bytes, or -1 for all
     * @param options a {@code tw_transfer_options}
     * @param text    room for a pointer, which {@link #take} frees
     * @param error   a {@code tw_error}, to be filled
     * @return a {@code tw_status}
     */
    public int plan(int source, int sink, long length, MemorySegment options, MemorySegment text, MemorySegment error) {
        try {
            return (int) plan.invokeExact(source, sink, length, options, text, error);
        } catch (Throwable defect) {
            throw new AssertionError("tw_plan_json", defect);
        }
    }

    /**
     * {@code tw_profile_load}.
     *
     * @param path    the file, or NULL for the usual place
     * @param profile room for a pointer
     * @param error   a {@code tw_error}, to be filled
     * @return a {@code tw_status}
     */
    public int loadProfile(MemorySegment path, MemorySegment profile, MemorySegment error) {
        try {
            return (int) loadProfile.invokeExact(path, profile, error);
        } catch (Throwable defect) {
            throw new AssertionError("tw_profile_load", defect);
        }
    }

    /**
     * Copies and frees a string that the library returned.
     *
     * @param text location of its pointer
     * @return the string
     */
    public String take(MemorySegment text) {
        MemorySegment string = text.get(ADDRESS, 0);
        try {
            String copied = string.reinterpret(Long.MAX_VALUE).getString(0);
            freeString.invokeExact(string);
            return copied;
        } catch (Throwable defect) {
            throw new AssertionError("tw_string_free", defect);
        }
    }

    private static Found look() {
        String named = System.getProperty("thalweg.library");
        try {
            if (named != null) {
                return loaded(SymbolLookup.libraryLookup(Path.of(named), Arena.global()), named);
            }
            String resource = "META-INF/native/linux-" + architecture() + "/libthalweg.so";
            try (InputStream carried = Native.class.getClassLoader().getResourceAsStream(resource)) {
                if (carried != null) {
                    return loaded(unpacked(carried), resource);
                }
            }
            return loaded(SymbolLookup.libraryLookup(SONAME, Arena.global()), SONAME);
        } catch (IOException | RuntimeException | LinkageError failure) {
            String where = named == null ? "from a jar on the class path or as " + SONAME : "from " + named;
            return new Found(null, "cannot load the native library " + where + " (" + failure.getMessage()
                    + "): add the jar with the classifier linux-" + architecture()
                    + ", or name the file with -Dthalweg.library=/PATH/libthalweg.so");
        }
    }

    private static Found loaded(SymbolLookup library, String from) throws IOException {
        var version = handle(library, "tw_version", FunctionDescriptor.of(ADDRESS));
        String found;
        try {
            found = ((MemorySegment) version.invokeExact()).reinterpret(Long.MAX_VALUE).getString(0);
        } catch (Throwable defect) {
            throw new AssertionError("tw_version", defect);
        }
        if (!found.startsWith(SERIES + ".")) {
            throw new IOException(from + " is version " + found + ", and this jar is for " + SERIES);
        }
        return new Found(new Native(library), null);
    }

    /** Copies the library to a temporary file, loads it, and deletes the file, which a loaded library does not need. */
    private static SymbolLookup unpacked(InputStream carried) throws IOException {
        Path file = Files.createTempFile("libthalweg", ".so");
        try {
            Files.copy(carried, file, StandardCopyOption.REPLACE_EXISTING);
            return SymbolLookup.libraryLookup(file, Arena.global());
        } finally {
            Files.deleteIfExists(file);
        }
    }

    private static String architecture() {
        String name = System.getProperty("os.arch");
        return name.equals("amd64") ? "x86_64" : name;
    }

    private static MethodHandle handle(SymbolLookup library, String name, FunctionDescriptor descriptor) {
        var symbol = library.find(name).orElseThrow(() -> new UnsatisfiedLinkError("the library has no symbol " + name));
        return LINKER.downcallHandle(symbol, descriptor);
    }
}
