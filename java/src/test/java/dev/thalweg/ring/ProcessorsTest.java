package dev.thalweg.ring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.BitSet;
import org.junit.jupiter.api.Test;

class ProcessorsTest {
    private static BitSet set(int... numbers) {
        var set = new BitSet();
        for (int number : numbers) {
            set.set(number);
        }
        return set;
    }

    @Test
    void twoThatAreKeptOnAProcessorEachAreNotAlone() {
        assertFalse(Processors.isOne(set(0), set(1)));
        assertFalse(Processors.isOne(set(1), set(0, 1)));
        assertTrue(Processors.isOne(set(1), set(1)));
    }

    @Test
    void aProcessIsAloneWithItselfWhereThereIsOneProcessor() {
        boolean one = Runtime.getRuntime().availableProcessors() == 1;
        assertEquals(one, Processors.isAloneWith((int) ProcessHandle.current().pid()));
    }
}
