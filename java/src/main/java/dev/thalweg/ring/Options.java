package dev.thalweg.ring;

/**
 * Configuration of a ring. Each end has its own options, and ignores the fields that only the peer decides.
 *
 * @param capacity  capacity for unread messages in bytes. Each message needs its payload and 32 bytes, rounded up to
 *                  a multiple of 64. The capacity is rounded up to a power of two of at least one page, and allocated
 *                  at once. The producer decides
 * @param waiting   method of waiting for the peer
 * @param trusted   true if the peer follows the protocol. If false, the consumer copies each message out of the shared
 *                  memory before it reads it, so that the message cannot change during the read
 * @param checksums true if each message carries a CRC-32C, which the consumer checks. The producer decides
 */
public record Options(long capacity, Wait waiting, boolean trusted, boolean checksums) {
    /** 1 MiB, hybrid waiting, a trusted peer, no checksums. */
    public static final Options USUAL = new Options(1 << 20, Wait.HYBRID, true, false);

    /**
     * Returns a copy with another capacity.
     *
     * @param bytes the capacity
     * @return the options
     */
    public Options withCapacity(long bytes) {
        return new Options(bytes, waiting, trusted, checksums);
    }

    /**
     * Returns a copy with another method of waiting.
     *
     * @param how the method
     * @return the options
     */
    public Options withWait(Wait how) {
        return new Options(capacity, how, trusted, checksums);
    }

    /**
     * Returns a copy for a peer that may violate the protocol.
     *
     * @return the options
     */
    public Options untrusted() {
        return new Options(capacity, waiting, false, checksums);
    }

    /**
     * Returns a copy with checksums.
     *
     * @return the options
     */
    public Options withChecksums() {
        return new Options(capacity, waiting, trusted, true);
    }
}
