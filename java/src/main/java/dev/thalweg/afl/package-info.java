/**
 * Fuzzing Java with an unmodified AFL++, without C code, a bridge or changes to the fuzzer.
 *
 * <p>{@link dev.thalweg.afl.AflTarget} is the program that {@code afl-fuzz} starts,
 * {@link dev.thalweg.afl.CoverageAgent} counts the edges of chosen packages, and {@link dev.thalweg.afl.Coverage} is
 * the map of the counters.
 */
package dev.thalweg.afl;
