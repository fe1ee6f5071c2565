package dev.thalweg.ring;

/**
 * How a ring is made and waited for. Each end has its own; what only the other decides is ignored.
 *
 * @param capacity  bytes of messages that may be under way, with 32 bytes for each and rounded up to 64; rounded up to a
 *                  power of two and a page. The memory is taken at once. The producer decides
 * @param waiting   how to wait for the other end
 * @param trusted   whether the peer keeps to the protocol. If not, the consumer copies each message out of the shared
 *                  memory before it looks at it, so that it cannot change while it is read
 * @param checksums whether each message carries a CRC-32C, which the consumer checks. The producer decides
 */
public record Options(long capacity, Wait waiting, boolean trusted, boolean checksums) {
    /** A mebibyte, hybrid waiting, a trusted peer, no checksums. */
    public static final Options USUAL = new Options(1 << 20, Wait.HYBRID, true, false);

    /**
     * The same with another capacity.
     *
     * @param bytes the capacity
     * @return the options
     */
    public Options withCapacity(long bytes) {
        return new Options(bytes, waiting, trusted, checksums);
    }

    /**
     * The same with another way to wait.
     *
     * @param how the way
     * @return the options
     */
    public Options withWait(Wait how) {
        return new Options(capacity, how, trusted, checksums);
    }

    /**
     * The same for a peer that may not keep to the protocol.
     *
     * @return the options
     */
    public Options untrusted() {
        return new Options(capacity, waiting, false, checksums);
    }

    /**
     * The same with checksums.
     *
     * @return the options
     */
    public Options withChecksums() {
        return new Options(capacity, waiting, trusted, true);
    }
}
