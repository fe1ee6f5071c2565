package dev.thalweg.ring;

/** The messages that the tests of crates/channel also use. Length and bytes depend on the number. */
final class Messages {
    private static final int[] ODD = {0, 1, 4095, 4097, 32, 33};

    private Messages() {}

    /** Returns message {@code seq}, as {@code message} in crates/testing. */
    static byte[] message(long seq) {
        var dice = new Dice(seq + 1);
        long at = dice.below(20);
        int length = at < ODD.length ? ODD[(int) at] : (int) dice.below(2000);
        byte[] bytes = new byte[length];
        for (int i = 0; i < length; i++) {
            bytes[i] = (byte) (seq * 31 ^ i * 7L ^ i >> 8);
        }
        return bytes;
    }

    /** Reproducible random numbers: xorshift64*. */
    static final class Dice {
        private long state;

        Dice(long seed) {
            state = seed * 0x9e37_79b9_7f4a_7c15L | 1;
        }

        long below(long most) {
            state ^= state >>> 12;
            state ^= state << 25;
            state ^= state >>> 27;
            return (state * 0x2545_f491_4f6c_dd1dL >>> 33) % most;
        }
    }
}
