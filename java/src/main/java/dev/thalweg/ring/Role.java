package dev.thalweg.ring;

import java.nio.charset.StandardCharsets;

/** The owner of a memory file. Each constant lists the words that the file contains. */
enum Role {
    /** Head and data. */
    PRODUCER("THALWEGR"),
    /** Tail. */
    CONSUMER("THALWEGC");

    private final byte[] magic;

    Role(String magic) {
        this.magic = magic.getBytes(StandardCharsets.US_ASCII);
    }

    /** Returns the first bytes of the memory. */
    byte[] magic() {
        return magic.clone();
    }
}
