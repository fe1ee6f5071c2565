/**
 * Moves between files, pipes and sockets, by the way that is fastest on this machine where the native library is at
 * hand ({@link dev.thalweg.transfer.Transfer#plan()} explains it), else by plain system calls.
 *
 * <p>The JDK hides the descriptors of its channels, so this package has ends of its own.
 * {@link dev.thalweg.transfer.FileChannels} is for who has the JDK's.
 */
package dev.thalweg.transfer;
