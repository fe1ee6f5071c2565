package org.example.fuzzed;

import dev.thalweg.afl.AflTarget;

/** A small parser of nested lists of numbers, {@code (12 (3 4))}, with a planted bug that only coverage finds. */
public final class Flawed {
    private final byte[] text;
    private int at;

    private Flawed(byte[] text) {
        this.text = text;
    }

    /** Runs the fuzz target. */
    public static void main(String[] arguments) {
        AflTarget.run(arguments, bytes -> new Flawed(bytes).list(0), AflTarget.Options.USUAL.expecting(
                NumberFormatException.class));
    }

    private int list(int depth) {
        if (next() != '(') {
            return 0;
        }
        int sum = 0;
        while (at < text.length) {
            int symbol = text[at];
            if (symbol == ')') {
                at++;
                return sum;
            } else if (symbol == '(') {
                sum += list(depth + 1);
            } else if (symbol >= '0' && symbol <= '9') {
                sum = sum * 10 + symbol - '0';
                at++;
            } else if (symbol == '#') {
                at++;
                // The planted bug: a comment inside a list inside a list.
                if (depth == 2) {
                    throw new ArrayIndexOutOfBoundsException("planted");
                }
            } else if (symbol == ' ') {
                at++;
            } else {
                throw new NumberFormatException("at " + at);
            }
        }
        return sum;
    }

    private int next() {
        return at < text.length ? text[at++] : -1;
    }
}
