/* thalweg.h - moves bytes on Linux by the method that is fastest on this machine.
 *
 * Rules that hold for every function:
 * - It returns a tw_status: TW_OK or a failure. If `error` is not NULL, `*error` then describes the failure and the
 *   progress before it. Functions that cannot fail return another type. A newer library may return a status that is
 *   not listed here: treat it as a failure.
 * - After a failure, output parameters are NULL or 0, unless the function's comment says otherwise.
 * - Sizes and offsets are in bytes. Descriptors that the caller passes stay open and belong to the caller.
 * - A tw_*_options begins with its own size. Therefore a program that was built with an older header also works with
 *   a newer library. Initialise it by its _INIT macro.
 * - Strings are UTF-8 and end with NUL. Free a returned `char *` by tw_string_free. A `const char *` stays valid as
 *   long as the library, or as the error that contains it.
 * - Several threads may call all functions at once, unless noted otherwise.
 * - No function prints or ends the process, with two exceptions. If the library cannot allocate the memory of a handle
 *   or a message, it prints this and calls abort(3). If the environment variable THALWEG_CPU is invalid, the library
 *   prints this once to standard error, and ignores the variable.
 * - No function installs a signal handler. Therefore the caller must ignore SIGPIPE: otherwise writing to a pipe or
 *   socket without a reader kills the program.
 */
#ifndef THALWEG_H
#define THALWEG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. tw_version() returns the version of the library. */
#define TW_VERSION_MAJOR 0
#define TW_VERSION_MINOR 1

typedef enum tw_status {
    TW_OK = 0,
    TW_DIFFER = 1,      /* the data read back differs from the source */
    TW_USAGE = 2,       /* invalid argument; the call did nothing */
    TW_PARTIAL = 3,     /* the transfer failed after its start; `moved` bytes are in the sink */
    TW_UNSUPPORTED = 4, /* not supported by this machine or these ends */
    TW_STOPPED = 5,     /* the progress function stopped the transfer; `moved` bytes are in the sink */
    TW_INTERNAL = 6,    /* a defect of the library; please report it */
    /* Between processes: */
    TW_CLOSED = 7,         /* the peer closed its end; everything that it had sent was delivered */
    TW_PEER_DIED = 8,      /* the peer ended without closing its end; everything that it had sent was delivered */
    TW_TIMEOUT = 9,        /* the timeout expired; nothing is lost, and the call can be repeated */
    TW_TOO_LARGE = 10,     /* larger than the limit, which `message` contains */
    TW_CORRUPT = 11,       /* the peer violated the protocol; only closing the handle is useful */
    TW_NOT_PERMITTED = 12, /* another user, a forked child, unsealed memory, or no usable mechanism */
    TW_SYSTEM = 13         /* a system call failed: see `os_error` */
} tw_status;

typedef struct tw_error {
    tw_status status;
    int32_t os_error; /* the errno of a failed system call, or 0 */
    uint64_t moved;   /* bytes that reached the sink, a prefix of the source. TW_CLOSED: number of messages that a
                       * channel delivered, or of buffers that a bulk transfer delivered. TW_PEER_DIED: number of
                       * messages that a channel delivered, or of bytes in the current buffer */
    char message[480];
    uint64_t partial; /* TW_PEER_DIED: bytes of an incomplete message, which were not delivered */
} tw_error;

/* The version of the library, such as "0.1.0". */
const char *tw_version(void);

/* Frees a string that the library returned. NULL is allowed. */
void tw_string_free(char *text);

/* ---- mechanisms ---- */

/* Number of mechanisms. */
size_t tw_mechanism_count(void);

/* Name and one-line summary of the mechanism with this number, from 0. NULL after the last one. */
const char *tw_mechanism_name(size_t index);
const char *tw_mechanism_summary(size_t index);

/* Describes all mechanisms, like `thalweg list --json`: calls, pairs, guarantees, knobs. */
tw_status tw_mechanisms_json(char **json, tw_error *error);

/* Tests a mechanism on every pair of ends that it supports. The test makes real calls on one page of data. It uses
 * temporary files in the directory `folder` (NULL: the system's directory for them). Returns a JSON array of
 * {source, sink, works, reason}. TW_USAGE: unknown mechanism. */
tw_status tw_probe_json(const char *mechanism, const char *folder, char **json, tw_error *error);

/* ---- the measured profile of this machine ---- */

typedef struct tw_profile tw_profile;

/* Loads a profile. NULL means the path where `thalweg tune` saves it. If the file does not exist, returns TW_OK with
 * `*profile` NULL. TW_UNSUPPORTED: it was measured on another machine or kernel, and the message names the
 * differences. If only affinity, capabilities or pipe limits differ, for example in a pinned process, returns TW_OK,
 * and `*profile` contains only the measurements of copies and fills in memory. The first loaded profile with such measurements
 * determines tw_memcpy, tw_memmove and tw_memset for the rest of the process. */
tw_status tw_profile_load(const char *path, tw_profile **profile, tw_error *error);
void tw_profile_free(tw_profile *profile);

/* ---- moving bytes ---- */

/* Guarantees that the library never gives up for speed. */
#define TW_STABLE 1u  /* later writes to the source never appear in the sink */
#define TW_PRIVATE 2u /* source and sink share no pages afterwards */
#define TW_DURABLE 4u /* on stable storage when the call returns */
#define TW_DEFAULT_NEEDS (TW_STABLE | TW_PRIVATE)

typedef enum tw_prefer { TW_WALL = 0, TW_CPU = 1, TW_MEMORY = 2 } tw_prefer;

/* The caller's progress function, called every few tens of milliseconds during a transfer. tw_transfer calls it on
 * the calling thread, tw_copy on other threads, one call at a time. Return 0 to continue, any other value to stop. It
 * must not unwind (longjmp, C++ exceptions). */
typedef int (*tw_progress)(uint64_t moved, void *user);

typedef struct tw_transfer_options {
    size_t size;               /* sizeof(tw_transfer_options) */
    uint32_t needs;            /* TW_STABLE | TW_PRIVATE | TW_DURABLE */
    uint32_t prefer;           /* a tw_prefer */
    const char *method;        /* use only this mechanism; NULL: the library chooses */
    const tw_profile *profile; /* NULL: no measurements */
    uint64_t limit;            /* maximum bytes per second; 0: no limit */
    tw_progress progress;      /* the progress function, or NULL */
    void *user;                /* passed to `progress` */
} tw_transfer_options;

#define TW_TRANSFER_OPTIONS_INIT { sizeof(tw_transfer_options), TW_DEFAULT_NEEDS, TW_WALL, NULL, NULL, 0, NULL, NULL }

typedef struct tw_report {
    uint64_t bytes;     /* bytes moved */
    uint64_t lost;      /* bytes that were read from a pipe or similar source but not delivered */
    uint64_t wall_ns;   /* wall time */
    uint64_t cpu_ns;    /* CPU time of the whole process */
    uint32_t steps_down; /* number of fallbacks to another mechanism during the transfer */
    char mechanism[36]; /* the mechanism that moved the most bytes */
} tw_report;

/* A length that means all bytes until the source ends. */
#define TW_ALL UINT64_MAX

/* Moves `length` bytes (or TW_ALL) from one descriptor to the other. A file is read or written from its descriptor's
 * offset on; the offset does not change. If the source ends early, that is no failure: see `report->bytes`. The
 * report is also set after a failure. `options` and `report` may be NULL. */
tw_status tw_transfer(int source, int sink, uint64_t length, const tw_transfer_options *options,
                      tw_report *report, tw_error *error);

/* Returns what tw_transfer would do: a verdict for every mechanism, as `thalweg plan --json` prints it. */
tw_status tw_plan_json(int source, int sink, uint64_t length, const tw_transfer_options *options,
                       char **json, tw_error *error);

/* Copies one file and its mode, like `thalweg copy`. The destination appears only when it is complete. `options` and
 * `report` may be NULL. TW_SYSTEM: a call failed before the copy started. */
tw_status tw_copy(const char *source, const char *destination, const tw_transfer_options *options,
                  tw_report *report, tw_error *error);

/* ---- memory to memory ---- */

/* memcpy, memmove and memset by the kernels that are fastest for each size, as measured. Until a profile is loaded
 * (tw_profile_load), they are those of the C library. Sizes of 0 are allowed; NULL is not. */
void *tw_memcpy(void *destination, const void *source, size_t length);
void *tw_memmove(void *destination, const void *source, size_t length);
void *tw_memset(void *destination, int byte, size_t length);

/* The function that currently copies all sizes: the C library's memcpy, or a measured kernel. Only the library
 * writes this variable, once, when a profile is loaded. The function that it contained before stays valid. */
extern void *(*tw_memcpy_now)(void *destination, const void *source, size_t length);

/* The function that copies sizes up to `upto`; (tw_memcpy) copies larger ones. The library writes it together with
 * tw_memcpy_now, one word after the other. `run` can copy larger sizes too, but is slower for them. */
struct tw_first_band {
    size_t upto;
    void *(*run)(void *destination, const void *source, size_t length);
};
extern struct tw_first_band tw_memcpy_first;

#ifdef __GNUC__
/* A call of tw_memcpy costs as much as a call of memcpy. It calls the following few instructions, which jump to the
 * function for the length, as the PLT stub of memcpy does. They are not inlined, because on some processors a call
 * through a pointer is much slower. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes" /* `inline` keeps it out of programs that do not call it */
static inline __attribute__((noinline, unused)) void *tw_memcpy_jump(void *destination, const void *source, size_t length)
{
    if (__builtin_expect(length > __atomic_load_n(&tw_memcpy_first.upto, __ATOMIC_ACQUIRE), 0))
        return tw_memcpy(destination, source, length);
    return __atomic_load_n(&tw_memcpy_first.run, __ATOMIC_ACQUIRE)(destination, source, length);
}
#pragma GCC diagnostic pop
#define tw_memcpy(destination, source, length) tw_memcpy_jump(destination, source, length)
#endif

/* Copies, and returns the CRC32C (Castagnoli) of the bytes. `crc` is 0, or the result for the preceding bytes.
 * tw_crc32c does not copy. */
uint32_t tw_memcpy_crc32c(void *destination, const void *source, size_t length, uint32_t crc);
uint32_t tw_crc32c(const void *source, size_t length, uint32_t crc);

/* Copies, and returns the XXH3 of the bytes: 64 bits, seed 0, the default secret. The hash of one call cannot be
 * continued by another. tw_xxh3 does not copy. */
uint64_t tw_memcpy_xxh3(void *destination, const void *source, size_t length);
uint64_t tw_xxh3(const void *source, size_t length);

/* Name and summary of the kernel with this number, from 0, and 1 if this processor supports it. NULL or 0 after the
 * last kernel. */
size_t tw_kernel_count(void);
const char *tw_kernel_name(size_t index);
const char *tw_kernel_summary(size_t index);
int tw_kernel_is_available(size_t index);

/* Copies like memcpy, by one kernel. TW_USAGE: unknown number. TW_UNSUPPORTED: not supported by this processor. */
tw_status tw_memcpy_by(size_t index, void *destination, const void *source, size_t length);

/* ---- between processes: the rules ----
 *
 * A link connects two processes of one machine. Over a link, the two processes open the ends of one channel (for
 * messages: tw_producer and tw_consumer) or of one bulk transfer (for large buffers: tw_sender and tw_receiver).
 *
 * Threads: any thread may use a handle, but only one at a time. A call with a handle that another call uses returns
 * TW_USAGE, or -1, 0 or NULL if it returns no status. The check costs nothing, but cannot detect every race.
 * Different handles are independent.
 *
 * Closing and death: closing a handle closes that end, and the peer gets TW_CLOSED. If a process ends without closing
 * its end, by a signal, by exit(3) or by execve(2), the peer gets TW_PEER_DIED at once. A stopped process is not dead:
 * calls wait for it. The functions below never raise SIGPIPE.
 *
 * fork(2): the child may use listeners and links. Channels and ends of bulk transfers belong to the parent, and in
 * the child they return TW_NOT_PERMITTED. The child may close its copies, which does not affect the parent.
 *
 * A handle that is passed as `tw_X **x` is consumed: `*x` is NULL afterwards, whatever the result, unless the pointer
 * itself was invalid. Functions that close or free a handle accept NULL.
 *
 * Memory that a function returns stays valid until the call that releases it. Closing the handle releases it too.
 */

/* Timeouts are in nanoseconds from now. With TW_NOW, a call that would have to wait returns TW_TIMEOUT instead. A
 * negative timeout, such as `deadline - now` after the deadline, means TW_NOW. */
#define TW_FOREVER INT64_MAX
#define TW_NOW INT64_C(0)

/* Method of waiting for the peer. */
typedef enum tw_wait {
    TW_WAIT_HYBRID = 0, /* poll for a while, then sleep */
    TW_WAIT_SPIN = 1,   /* poll without pause: has the shortest delay, but uses a whole processor */
    TW_WAIT_BLOCK = 2   /* sleep at once */
} tw_wait;

/* ---- links ---- */

typedef struct tw_listener tw_listener;
typedef struct tw_link tw_link;

/* The users that are admitted at the other end: a user id, or one of these constants. */
#define TW_SAME_USER INT64_C(-1) /* processes of our own effective user */
#define TW_ANYONE INT64_C(-2)    /* all processes that can reach the socket */

/* Listens at an address: a path if it contains a slash, otherwise a name (letters, digits, '.', '_', '-') of this
 * user in $XDG_RUNTIME_DIR/thalweg or /tmp/thalweg-UID. TW_SYSTEM with EADDRINUSE: another process listens there.
 * Closing the listener removes the socket file. A file that a killed process left behind is replaced. */
tw_status tw_listener_bind(const char *address, int64_t admit, tw_listener **listener, tw_error *error);

/* Waits for the next process that connects. TW_NOT_PERMITTED: its user is not admitted. Repeat the call to wait for
 * the next process. */
tw_status tw_listener_accept(tw_listener *listener, int64_t timeout_ns, tw_link **link, tw_error *error);

/* The descriptor for polling, which belongs to the listener. It is readable while a process waits to connect. -1 for
 * NULL. */
int tw_listener_fd(const tw_listener *listener);
void tw_listener_close(tw_listener *listener);

/* Connects to the process that listens at an address. TW_SYSTEM with ENOENT or ECONNREFUSED: no process
 * listens there. */
tw_status tw_link_connect(const char *address, int64_t admit, int64_t timeout_ns, tw_link **link,
                          tw_error *error);

/* Creates both ends in this process, for two threads, or to pass one to a child by fork(2). */
tw_status tw_link_pair(tw_link **near, tw_link **far, tw_error *error);

/* Creates a link over a connected Unix socket of type SOCK_SEQPACKET. The library duplicates the descriptor. */
tw_status tw_link_of_fd(int fd, int64_t admit, tw_link **link, tw_error *error);

/* The process at the other end, as the kernel recorded it when the ends were connected. For the connecting side,
 * this is the listening process; for a pair, the process that created it. Only a channel or bulk transfer over the
 * link learns from the peer's messages which process really uses the other end. */
typedef struct tw_peer {
    uint32_t pid; /* 0: the process is in a pid namespace that is not visible here */
    uint32_t uid; /* UINT32_MAX after a failure, because 0 is root */
    uint32_t gid; /* UINT32_MAX after a failure */
    int32_t is_alive; /* 0: the process has ended or closed its end */
} tw_peer;
tw_status tw_link_peer(tw_link *link, tw_peer *peer, tw_error *error);

/* Sends one message of at least 1 byte, completely or not at all, with `count` descriptors (SCM_RIGHTS), at most 8.
 * The maximum length is a few KiB, because a link sets up connections and is not for data. TW_CLOSED: the other end
 * is closed. Allowed only before a channel or a bulk transfer is opened over the link. */
tw_status tw_link_send(tw_link *link, const void *message, size_t length, const int *fds, size_t count,
                       int64_t timeout_ns, tw_error *error);

/* Receives one message. Before the call, `*count` is the capacity of `fds`; afterwards it is the number of
 * descriptors received. They are close-on-exec and belong to the caller. Both may be NULL if no descriptors are
 * expected. TW_CORRUPT: the message is larger than `room` or has more descriptors. Then it is lost, and its
 * descriptors are closed. */
tw_status tw_link_receive(tw_link *link, void *into, size_t room, size_t *length, int *fds, size_t *count,
                          int64_t timeout_ns, tw_error *error);

/* The socket for polling, which belongs to the link. -1 for NULL. */
int tw_link_fd(const tw_link *link);
void tw_link_close(tw_link *link);

/* ---- channels: messages through shared memory ----
 *
 * A channel has one producer and one consumer. They write and read messages in place, without system calls while both
 * are awake. Committed messages arrive complete and in order, even if the producer is killed directly afterwards.
 * Uncommitted messages never arrive. docs/reference/formats.md describes every byte. */

typedef struct tw_producer tw_producer;
typedef struct tw_consumer tw_consumer;
typedef struct tw_held tw_held;

#define TW_CHECKSUMS 1u /* producer only: each message carries a CRC-32C, which the consumer checks */
#define TW_UNTRUSTED 2u /* the peer may be hostile: its data is copied out of shared memory before it is checked and read */

typedef struct tw_channel_options {
    size_t size;       /* sizeof(tw_channel_options) */
    uint64_t capacity; /* producer only: bytes for unread messages. Each message needs its length plus 32, rounded up
                        * to a multiple of 64. The capacity is rounded up to a power of two, at most 2^30; 0: 2^20 */
    uint64_t spin_ns;  /* TW_WAIT_HYBRID: maximum polling time before sleeping; 0: the default */
    uint32_t wait;     /* a tw_wait */
    uint32_t flags;    /* TW_CHECKSUMS | TW_UNTRUSTED */
} tw_channel_options;

#define TW_CHANNEL_OPTIONS_INIT { sizeof(tw_channel_options), 0, 0, TW_WAIT_HYBRID, 0 }

/* Offers a channel over a link, and waits until the other end opens the consumer. `options` may be NULL. */
tw_status tw_producer_open(tw_link **link, const tw_channel_options *options, int64_t timeout_ns,
                           tw_producer **producer, tw_error *error);

/* Offers a channel to the first consumer that connects, and refuses later ones. A process that is silent for five
 * seconds is disconnected, and the call waits for the next one. `timeout_ns` covers all attempts. */
tw_status tw_producer_accept(tw_listener **listener, const tw_channel_options *options, int64_t timeout_ns,
                             tw_producer **producer, tw_error *error);

/* Waits for room for a message of `length` bytes, and lends it for writing in place. The room is aligned to 32 bytes
 * and has arbitrary contents. Only one loan at a time is possible. TW_TOO_LARGE: more than tw_producer_largest.
 * TW_CLOSED, TW_PEER_DIED: the consumer is gone, and it had released `error->moved` messages. */
tw_status tw_producer_loan(tw_producer *producer, size_t length, int64_t timeout_ns, void **room,
                           tw_error *error);

/* Sends the first `length` bytes of the loan as a message. `length` must not exceed that of the loan. */
tw_status tw_producer_commit(tw_producer *producer, size_t length, tw_error *error);

/* Discards the loan. */
tw_status tw_producer_abort(tw_producer *producer, tw_error *error);

/* Sends a copy of a message: loan, copy and commit in one call. */
tw_status tw_producer_send(tw_producer *producer, const void *message, size_t length, int64_t timeout_ns,
                           tw_error *error);

/* Waits until the consumer has released every message. */
tw_status tw_producer_drain(tw_producer *producer, int64_t timeout_ns, tw_error *error);

/* For event loops. `*is_armed` 1: poll tw_producer_fd for reading, and retry when it is ready; any call disarms it.
 * `*is_armed` 0: retry at once, because there is room for `length` bytes or the consumer is gone. */
tw_status tw_producer_arm(tw_producer *producer, size_t length, int *is_armed, tw_error *error);

/* In order: the descriptor for polling, which belongs to the producer (-1 for NULL); the size of the largest
 * possible message; the number of messages sent. */
int tw_producer_fd(const tw_producer *producer);
size_t tw_producer_largest(const tw_producer *producer);
uint64_t tw_producer_sent(const tw_producer *producer);
void tw_producer_close(tw_producer *producer);

/* Opens the channel that is offered over a link. `options` may be NULL. */
tw_status tw_consumer_open(tw_link **link, const tw_channel_options *options, int64_t timeout_ns,
                           tw_consumer **consumer, tw_error *error);

/* Waits for the next message and lends it in place. The message is read-only, aligned to 32 bytes, and valid until
 * it is released. With TW_UNTRUSTED it is a copy and not aligned. Only one message at a time is lent. TW_CLOSED,
 * TW_PEER_DIED: there are no more messages, and `error->moved` were received. */
tw_status tw_consumer_receive(tw_consumer *consumer, int64_t timeout_ns, const void **message,
                              size_t *length, tw_error *error);

/* Releases the lent message, so that the producer can reuse its room. */
tw_status tw_consumer_release(tw_consumer *consumer, tw_error *error);

/* Like tw_consumer_receive, but holds the message while later ones are received. A consumer can hold as many
 * messages as the ring has room for, and release them in any order. `*message` stays valid and unchanged until
 * tw_held_release, even after tw_consumer_close or if the producer is gone. The room from the oldest held message on
 * stays occupied. If the ring is full, the producer waits. A consumer that holds the whole ring therefore gets no
 * next message. */
tw_status tw_consumer_hold(tw_consumer *consumer, int64_t timeout_ns, tw_held **held, const void **message,
                           size_t *length, tw_error *error);

/* Returns the number of held messages. `*is_waited_for` is 1 if the producer waits for their room while no message
 * is available. Neither end then makes progress until a held message is released. Intended for a consumer after a
 * wait that timed out. The result is 0 until the producer has checked for room twice, so call this function after
 * each of several waits. */
tw_status tw_consumer_held(tw_consumer *consumer, size_t *messages, int *is_waited_for, tw_error *error);

/* Releases a held message. Any thread may call this, even while another one uses the consumer. NULL is allowed. */
void tw_held_release(tw_held *held);

/* Copies the next message and releases it. TW_TOO_LARGE: the message stays available, and `*length` is its size. */
tw_status tw_consumer_receive_into(tw_consumer *consumer, void *into, size_t room, int64_t timeout_ns,
                                   size_t *length, tw_error *error);

/* Like tw_producer_arm and tw_producer_fd. Not allowed while a message is lent. */
tw_status tw_consumer_arm(tw_consumer *consumer, int *is_armed, tw_error *error);
int tw_consumer_fd(const tw_consumer *consumer);
void tw_consumer_close(tw_consumer *consumer);

/* ---- channels with several ends: each peer has a ring of its own, and can damage only that ring ---- */

typedef struct tw_broadcast tw_broadcast;
typedef struct tw_subscription tw_subscription;
typedef struct tw_mpsc tw_mpsc;

#define TW_NOBODY UINT64_MAX /* instead of the number of a producer or subscriber, if there is none, or after a failure */

/* Creates a broadcast without subscribers. With `backlog` 0, publishing waits for the slowest subscriber. Otherwise
 * the library queues up to `backlog` messages for each subscriber. If more are queued, it drops the oldest and
 * counts it. */
tw_status tw_broadcast_new(size_t backlog, tw_broadcast **broadcast, tw_error *error);

/* Adds the process that opens a subscription at the other end of the link. It receives all messages published from
 * now on. */
tw_status tw_broadcast_add(tw_broadcast *broadcast, tw_link **link, const tw_channel_options *options,
                           int64_t timeout_ns, uint64_t *subscriber, tw_error *error);

/* Sends a copy of a message to every subscriber. Waits only without a backlog. After TW_TIMEOUT, no subscriber has
 * received it. */
tw_status tw_broadcast_publish(tw_broadcast *broadcast, const void *message, size_t length,
                               int64_t timeout_ns, tw_error *error);

/* Moves queued messages to the rings while there is room. `*left` messages are still queued. Publishing does this
 * too. */
tw_status tw_broadcast_push(tw_broadcast *broadcast, size_t *left, tw_error *error);

/* Reports one departed subscriber per call. The status is the reason (TW_CLOSED, TW_PEER_DIED, ...), `*subscriber`
 * its number, and `*dropped` the number of messages dropped for it. TW_OK: no other subscriber has left, and
 * `*subscriber` is TW_NOBODY. */
tw_status tw_broadcast_departed(tw_broadcast *broadcast, uint64_t *subscriber, uint64_t *dropped,
                                tw_error *error);
size_t tw_broadcast_subscribers(const tw_broadcast *broadcast);
void tw_broadcast_close(tw_broadcast *broadcast);

/* Subscribes to the broadcast at the other end of the link, without a time limit. `options` may be NULL. */
tw_status tw_subscription_open(tw_link **link, const tw_channel_options *options,
                               tw_subscription **subscription, tw_error *error);

/* Like tw_consumer_receive. `*number` is the message's number among all published ones, and `*missed` the number of
 * messages dropped directly before it. Both pointers may be NULL. */
tw_status tw_subscription_receive(tw_subscription *subscription, int64_t timeout_ns, const void **message,
                                  size_t *length, uint64_t *number, uint64_t *missed, tw_error *error);
tw_status tw_subscription_release(tw_subscription *subscription, tw_error *error);
void tw_subscription_close(tw_subscription *subscription);

/* Creates a consumer for any number of producers, at first without any. `options` apply to each producer's ring. */
tw_status tw_mpsc_new(const tw_channel_options *options, tw_mpsc **mpsc, tw_error *error);

/* Adds the process that opens a producer at the other end of the link. */
tw_status tw_mpsc_add(tw_mpsc *mpsc, tw_link **link, int64_t timeout_ns, uint64_t *producer, tw_error *error);

/* Waits for the next message of any producer. Messages of different producers have no defined order. If a producer
 * has left and everything that it committed was received, this is reported once: the status is the reason, and
 * `*from` is its number. TW_CLOSED with TW_NOBODY: there are no producers. */
tw_status tw_mpsc_receive(tw_mpsc *mpsc, int64_t timeout_ns, uint64_t *from, const void **message,
                          size_t *length, tw_error *error);
tw_status tw_mpsc_release(tw_mpsc *mpsc, tw_error *error);
void tw_mpsc_close(tw_mpsc *mpsc);

/* ---- bulk: large buffers into another process's memory ----
 *
 * The two ends agree on an arm, which is a mechanism for moving the bytes. If it fails during the transfer, the next
 * one replaces it. A call returns when the whole buffer has arrived. These calls have no timeout, but they return if
 * the other process ends. */

typedef struct tw_sender tw_sender;
typedef struct tw_receiver tw_receiver;
typedef struct tw_buffer tw_buffer;

/* Name and one-line summary of the arm with this number, from 0. NULL after the last one. */
size_t tw_arm_count(void);
const char *tw_arm_name(size_t index);
const char *tw_arm_summary(size_t index);

/* Tests the system calls of an arm in this process. TW_UNSUPPORTED: they do not work here, and the message contains
 * the reason. */
tw_status tw_arm_probe(size_t index, tw_error *error);

/* Kind of the memory that receives the bytes, as the receiver announces it. */
typedef enum tw_destination {
    TW_DESTINATION_UNKNOWN = 0,
    TW_DESTINATION_RESIDENT = 1,  /* memory that was written before */
    TW_DESTINATION_FRESH = 2,     /* memory without resident pages */
    TW_DESTINATION_FRESH_HUGE = 3 /* memory without resident pages, on huge pages */
} tw_destination;

#define TW_WILL_LOAN 1u /* sender: the data will be written to loans (tw_sender_loan) */
/* TW_UNTRUSTED: the peer must not read or write this process's memory, even if it belongs to this user. */

typedef struct tw_bulk_options {
    size_t size;          /* sizeof(tw_bulk_options) */
    const char *arm;      /* sender: use only this arm; NULL: the library chooses */
    const char *knobs;    /* sender: knobs of `arm`, "KNOB=NUMBER,..." as in `thalweg list`; NULL: defaults */
    uint64_t length;      /* sender: size of most buffers; 0: unknown */
    uint64_t spin_ns;     /* as in tw_channel_options */
    uint32_t wait;        /* a tw_wait */
    uint32_t needs;       /* sender: TW_STABLE | TW_PRIVATE */
    uint32_t destination; /* receiver: a tw_destination */
    uint32_t flags;       /* TW_WILL_LOAN | TW_UNTRUSTED */
    /* sender: selects the arm if `arm` is NULL. This is the arm that was measured fastest for `length`, TW_WILL_LOAN
     * and the receiver's `destination`, with its measured knobs. If the profile is NULL or has no such measurements
     * (`thalweg tune --pair process:process`), it is the first arm in the default order. The caller may free the
     * profile when the sender is open. */
    const tw_profile *profile;
} tw_bulk_options;

#define TW_BULK_OPTIONS_INIT { sizeof(tw_bulk_options), NULL, NULL, 0, 0, TW_WAIT_HYBRID, TW_DEFAULT_NEEDS, TW_DESTINATION_UNKNOWN, 0, NULL }

/* Connects to the receiver at the other end of the link, and agrees on an arm. TW_NOT_PERMITTED: no arm is usable,
 * and the message contains the reasons. `options` may be NULL. */
tw_status tw_sender_open(tw_link **link, const tw_bulk_options *options, tw_sender **sender, tw_error *error);

/* Sends a buffer, and waits until the receiver has all of it. Then the caller may overwrite the buffer.
 * TW_PEER_DIED: the number of bytes that arrived is unknown. */
tw_status tw_sender_send(tw_sender *sender, const void *bytes, size_t length, tw_error *error);

/* Allocates memory for data to be sent by tw_sender_send_loan. Arms that can pass the memory to the receiver avoid a
 * copy. The loan may outlive the sender. */
tw_status tw_sender_loan(tw_sender *sender, size_t length, tw_buffer **loan, tw_error *error);

/* Sends a loan. Afterwards, `*loan` is NULL if the receiver keeps the memory, and after a failure. Otherwise it is a
 * loan that can be filled again: first call tw_buffer_data again, because the address may differ. TW_USAGE: not a
 * loan; `*loan` is unchanged. */
tw_status tw_sender_send_loan(tw_sender *sender, tw_buffer **loan, tw_error *error);

/* The name of the arm in use; NULL for NULL. The second function returns a description as JSON: {arm, tuning,
 * choice: {why, evidence}, skipped: [{arm, reason}]}. `why` is a sentence. `evidence` contains the profile's
 * measurements of the arm under these conditions, as ratios of its time to that of a reference arm, with intervals,
 * noise, sessions and date. It is null if the profile did not select the arm. */
const char *tw_sender_arm(const tw_sender *sender);
tw_status tw_sender_explain_json(const tw_sender *sender, char **json, tw_error *error);
void tw_sender_close(tw_sender *sender);

/* Connects to the sender at the other end of the link. `options` may be NULL. */
tw_status tw_receiver_open(tw_link **link, const tw_bulk_options *options, tw_receiver **receiver,
                           tw_error *error);

/* Waits for the next buffer and returns its length. Then receive it by one of the next two functions. TW_CLOSED:
 * there are no more buffers, and `error->moved` were received. */
tw_status tw_receiver_next_length(tw_receiver *receiver, uint64_t *length, tw_error *error);

/* Receives the next buffer to the start of `into`. TW_TOO_LARGE: the buffer stays available. TW_PEER_DIED: the first
 * `error->moved` bytes are valid. After any other failure the contents of `into` are arbitrary. */
tw_status tw_receiver_receive_into(tw_receiver *receiver, void *into, size_t room, size_t *length,
                                   tw_error *error);

/* Receives the next buffer to new memory, on huge pages if the kernel provides them. */
tw_status tw_receiver_receive_new(tw_receiver *receiver, tw_buffer **buffer, tw_error *error);

/* Like tw_sender_arm and tw_sender_explain_json. There is no `choice`, because the sender selects the arm. */
const char *tw_receiver_arm(const tw_receiver *receiver);
tw_status tw_receiver_explain_json(const tw_receiver *receiver, char **json, tw_error *error);
void tw_receiver_close(tw_receiver *receiver);

/* Allocates zeroed memory for repeated receives, on huge pages if the kernel provides them. The memory is resident,
 * because a page fault costs more than the copy of a page. */
tw_status tw_buffer_new(size_t length, tw_buffer **buffer, tw_error *error);
void *tw_buffer_data(tw_buffer *buffer);
size_t tw_buffer_length(const tw_buffer *buffer);
void tw_buffer_free(tw_buffer *buffer);

/* ---- regions: memory that processes share ----
 *
 * A region has no name. To share it, send its descriptor to the other process (tw_link_send), or the number of its
 * System V segment. Writes of other processes are visible at once, so the processes must synchronise accesses. */

typedef struct tw_region tw_region;

typedef enum tw_region_kind {
    TW_MEMFD = 0, /* memfd_create(2): can be sealed; all its pages are allocated at once */
    TW_POSIX = 1, /* shm_open(3) */
    TW_SYSV = 2   /* shmget(2): outlives every process until it is removed */
} tw_region_kind;

typedef enum tw_sharing {
    TW_READ = 0,         /* reading only; a store raises SIGSEGV */
    TW_WRITE = 1,        /* reading and writing; writes are visible to all processes */
    TW_COPY_ON_WRITE = 2 /* reading and writing; writes go to a private copy */
} tw_sharing;

/* Creates zeroed memory that only this user can access, and maps it with TW_WRITE. */
tw_status tw_region_create(tw_region_kind kind, size_t length, tw_region **region, tw_error *error);

/* Maps the first `length` bytes (0: all) of the region or file behind a descriptor, which the library duplicates.
 * TW_TOO_LARGE: the file is shorter. If another process truncates it later, accesses raise SIGBUS. Therefore check
 * TW_SEAL_SIZE by tw_region_is_sealed, or trust the other process. */
tw_status tw_region_of_fd(int fd, size_t length, tw_sharing sharing, tw_region **region, tw_error *error);

/* Maps a System V segment, given by its number. Only TW_WRITE is possible. */
tw_status tw_region_of_segment(int id, size_t length, tw_sharing sharing, tw_region **region,
                               tw_error *error);

/* Unmaps a region, or maps it again. Its contents are kept, but its address may change. */
tw_status tw_region_unmap(tw_region *region, tw_error *error);
tw_status tw_region_map(tw_region *region, tw_sharing sharing, tw_error *error);

#define TW_SEAL_SIZE 1u    /* its size is fixed */
#define TW_SEAL_WRITE 2u   /* it cannot be written. Sealing fails with EBUSY while a process has it mapped with
                            * TW_WRITE. Afterwards TW_READ needs Linux 6.7, and TW_COPY_ON_WRITE always works */
#define TW_SEAL_WRITERS 4u /* it cannot be mapped with TW_WRITE any more; existing mappings stay writable */
#define TW_SEAL_SEALS 8u   /* no seals can be added */

/* Seals a TW_MEMFD permanently. If the kernel rejects the seals, returns TW_SYSTEM with EBUSY, EPERM or EINVAL. */
tw_status tw_region_seal(tw_region *region, uint32_t seals, tw_error *error);

/* Returns 1 if the region has all of these seals, at least its original length, and pages of the ordinary size;
 * otherwise 0. */
int tw_region_is_sealed(const tw_region *region, uint32_t seals);

/* Makes every page resident, by one call instead of one page fault for each. TW_UNSUPPORTED before Linux 5.14. */
tw_status tw_region_populate(tw_region *region, tw_error *error);

/* Removes a TW_SYSV. The kernel frees it when the last process unmaps it. Call this after all processes have mapped
 * it. */
tw_status tw_region_remove(tw_region *region, tw_error *error);

/* In order: the page-aligned address (NULL while the region is not mapped); the length; the descriptor, which
 * belongs to the region (-1 for a TW_SYSV); the number of the System V segment (-1 for the other kinds). */
void *tw_region_data(const tw_region *region);
size_t tw_region_length(const tw_region *region);
int tw_region_fd(const tw_region *region);
int tw_region_segment(const tw_region *region);
void tw_region_close(tw_region *region);

#ifdef __cplusplus
}
#endif
#endif
