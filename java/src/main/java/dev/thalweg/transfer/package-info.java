/**
 * Moves bytes between files, pipes and sockets. With the native library it uses the fastest method on this machine
 * ({@link dev.thalweg.transfer.Transfer#plan()} explains it), otherwise plain system calls.
 *
 * <p>The JDK hides the descriptors of its channels, so this package has ends of its own.
 * {@link dev.thalweg.transfer.FileChannels} works with the JDK's channels.
 */
package dev.thalweg.transfer;
