/**
 * Fuzzing Java with an unmodified AFL++: no C, no bridge, no change to the fuzzer.
 *
 * <p>{@link dev.thalweg.afl.AflTarget} is the program that {@code afl-fuzz} starts,
 * {@link dev.thalweg.afl.CoverageAgent} counts the edges of chosen packages, and
 * {@link dev.thalweg.afl.Coverage} is the map they are counted in.
 */
package dev.thalweg.afl;
