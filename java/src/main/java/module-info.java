/**
 * Shared memory of all kinds in Linux, transfers between descriptors by the fastest method, and targets for an
 * unmodified AFL++. System calls are made through the foreign function interface: run with
 * {@code --enable-native-access=dev.thalweg}, or {@code ALL-UNNAMED} on the class path.
 */
module dev.thalweg {
    requires static java.instrument;

    exports dev.thalweg;
    exports dev.thalweg.afl;
    exports dev.thalweg.ring;
    exports dev.thalweg.transfer;
}
