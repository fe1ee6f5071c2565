/* thalweg.h - moves bytes on Linux by the way that is fastest on the machine it runs on.
 *
 * Rules that hold for every function:
 * - It returns a tw_status: TW_OK, or a failure; then `*error`, if not NULL, says what, where and how
 *   far it came. Functions that cannot fail say so by their type. A newer library may return a status
 *   that this header does not know: it is a failure.
 * - What is handed out through a pointer is NULL or 0 after a failure, unless the function says otherwise.
 * - Sizes and offsets are in bytes. Descriptors stay the caller's: none is closed.
 * - A tw_*_options begins with its own size, so that a program built with an older header keeps
 *   working with a newer library. Start from its _INIT.
 * - Strings are UTF-8 and end with NUL. A `char *` that is handed out is freed with tw_string_free; a
 *   `const char *` lives as long as the library or as the error it is in.
 * - Everything may be called from several threads at once, unless it says otherwise. Nothing here
 *   prints, ends the process, or installs a signal handler. So SIGPIPE is the caller's to ignore:
 *   otherwise a pipe or socket that nobody reads any more ends the program, as with write(2).
 */
#ifndef THALWEG_H
#define THALWEG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version this header was written for; tw_version() is that of the library. */
#define TW_VERSION_MAJOR 0
#define TW_VERSION_MINOR 1

typedef enum tw_status {
    TW_OK = 0,
    TW_DIFFER = 1,      /* what was read back differs from its source */
    TW_USAGE = 2,       /* an argument makes no sense; nothing was done */
    TW_PARTIAL = 3,     /* it failed under way; `moved` bytes are in the sink */
    TW_UNSUPPORTED = 4, /* this machine, or these ends, cannot do it */
    TW_STOPPED = 5,     /* the progress function asked to stop; `moved` bytes are in the sink */
    TW_INTERNAL = 6,    /* a defect of the library; please report it */
    /* Between processes: */
    TW_CLOSED = 7,         /* the other side said goodbye, and everything it had sent was delivered */
    TW_PEER_DIED = 8,      /* the other process ended without a goodbye; what it had sent was delivered */
    TW_TIMEOUT = 9,        /* not within the time given; nothing is lost, call again */
    TW_TOO_LARGE = 10,     /* more than fits; the message says how much would */
    TW_CORRUPT = 11,       /* the other side wrote what the format does not allow; close the handle */
    TW_NOT_PERMITTED = 12, /* another user, a forked child, memory without its seals, no way left */
    TW_SYSTEM = 13         /* a system call failed: see `os_error` */
} tw_status;

typedef struct tw_error {
    tw_status status;
    int32_t os_error; /* the errno, or 0 */
    uint64_t moved;   /* bytes that reached the sink: a true prefix of the source. TW_CLOSED, TW_PEER_DIED:
                       * what was delivered; messages of a channel, bytes of the buffer under way of a
                       * bulk transfer (TW_CLOSED: buffers) */
    char message[480];
    uint64_t partial; /* TW_PEER_DIED: bytes that had come of a message that will never be whole */
} tw_error;

/* "0.1.0" */
const char *tw_version(void);

/* Frees a string that was handed out; NULL is allowed. */
void tw_string_free(char *text);

/* ---- mechanisms ---- */

/* How many mechanisms the library knows. */
size_t tw_mechanism_count(void);

/* Name and one-line summary of a mechanism; NULL beyond the last one. */
const char *tw_mechanism_name(size_t index);
const char *tw_mechanism_summary(size_t index);

/* All facts of all mechanisms, as `thalweg list --json` prints them: calls, pairs, promises, knobs. */
tw_status tw_mechanisms_json(char **json, tw_error *error);

/* Tries a mechanism on every pair of ends it claims, by real calls on a page in files made in `folder`
 * (NULL: the folder for temporary files), and removes them. A JSON array of {source, sink, works,
 * reason}. TW_USAGE: no such mechanism. */
tw_status tw_probe_json(const char *mechanism, const char *folder, char **json, tw_error *error);

/* ---- the measured profile of this machine ---- */

typedef struct tw_profile tw_profile;

/* Loads a profile; NULL is the place where `thalweg tune` saves it. `*profile` is NULL, with TW_OK,
 * where there is none. TW_UNSUPPORTED: it was measured on another machine or kernel; the message
 * names the key. The first that knows copy kernels or fills decides what tw_memcpy, tw_memmove and
 * tw_memset are for the rest of the process. */
tw_status tw_profile_load(const char *path, tw_profile **profile, tw_error *error);
void tw_profile_free(tw_profile *profile);

/* ---- moving bytes ---- */

/* What the caller will not give up for speed. */
#define TW_STABLE 1u  /* later writes to the source never show in the sink */
#define TW_PRIVATE 2u /* source and sink share no page afterwards */
#define TW_DURABLE 4u /* on stable storage when the call returns */
#define TW_DEFAULT_NEEDS (TW_STABLE | TW_PRIVATE)

typedef enum tw_prefer { TW_WALL = 0, TW_CPU = 1, TW_MEMORY = 2 } tw_prefer;

/* Called every few tens of milliseconds while bytes move: by tw_transfer on the thread that called it,
 * by tw_copy on a thread of its own. Return 0 to go on, anything else to stop. It must not unwind
 * (longjmp, C++ exceptions). */
typedef int (*tw_progress)(uint64_t moved, void *user);

typedef struct tw_transfer_options {
    size_t size;               /* sizeof(tw_transfer_options) */
    uint32_t needs;            /* TW_STABLE | TW_PRIVATE | TW_DURABLE */
    uint32_t prefer;           /* a tw_prefer */
    const char *method;        /* only this mechanism; NULL: the library chooses */
    const tw_profile *profile; /* NULL: nothing is known of this machine */
    uint64_t limit;            /* bytes per second not to exceed; 0: none */
    tw_progress progress;      /* NULL: nobody watches */
    void *user;                /* handed to `progress` */
} tw_transfer_options;

#define TW_TRANSFER_OPTIONS_INIT { sizeof(tw_transfer_options), TW_DEFAULT_NEEDS, TW_WALL, NULL, NULL, 0, NULL, NULL }

typedef struct tw_report {
    uint64_t bytes;     /* moved */
    uint64_t lost;      /* taken from a source that cannot be rewound, and not delivered */
    uint64_t wall_ns;   /* time on the clock */
    uint64_t cpu_ns;    /* processor time of the whole process */
    uint32_t steps_down; /* changes of mechanism under way */
    char mechanism[36]; /* the one that moved most */
} tw_report;

/* Everything until the source ends. */
#define TW_ALL UINT64_MAX

/* Moves `length` bytes, or all, from one descriptor to the other. A file is read and written from its
 * descriptor's offset on; the offset itself is not moved. A source that ends early is no failure: see
 * `report->bytes`, which a failure fills too. `options` and `report` may be NULL. */
tw_status tw_transfer(int source, int sink, uint64_t length, const tw_transfer_options *options,
                      tw_report *report, tw_error *error);

/* What tw_transfer would do: a verdict for every mechanism, as `thalweg plan --json` prints them. */
tw_status tw_plan_json(int source, int sink, uint64_t length, const tw_transfer_options *options,
                       char **json, tw_error *error);

/* Copies one file with its mode, as `thalweg copy` does: the destination has its name only when it is
 * whole. `options` and `report` may be NULL. TW_SYSTEM: a call failed before anything was begun. */
tw_status tw_copy(const char *source, const char *destination, const tw_transfer_options *options,
                  tw_report *report, tw_error *error);

/* ---- memory to memory ---- */

/* memcpy, memmove and memset by the kernels that were measured best for each size: those of the C
 * library until a profile is loaded (tw_profile_load). Sizes of 0 are allowed; NULL is not. */
void *tw_memcpy(void *destination, const void *source, size_t length);
void *tw_memmove(void *destination, const void *source, size_t length);
void *tw_memset(void *destination, int byte, size_t length);

/* What copies every size now, as a pointer: the C library's memcpy itself, or what was measured better. Only the library
 * writes it, once, when a profile is loaded; what it held before copies any size for ever. */
extern void *(*tw_memcpy_now)(void *destination, const void *source, size_t length);

/* What copies the sizes up to one, and that size; larger ones are (tw_memcpy)'s. Written as tw_memcpy_now is, one word after
 * the other; `run` copies any size, if not as fast. */
struct tw_first_band {
    size_t upto;
    void *(*run)(void *destination, const void *source, size_t length);
};
extern struct tw_first_band tw_memcpy_first;

#ifdef __GNUC__
/* A call of tw_memcpy takes as long as one of memcpy: it is a call of these few instructions, which jump to what serves the
 * length now, as a call of memcpy is one of a few instructions that jump to memcpy. Not inlined, because a call through a
 * pointer takes some processors twice as long. */
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

/* Copies and returns the CRC32C (Castagnoli) of what was copied, carried on from `crc`; start with 0. */
uint32_t tw_memcpy_crc32c(void *destination, const void *source, size_t length, uint32_t crc);
uint32_t tw_crc32c(const void *source, size_t length, uint32_t crc);

/* Copies and returns the XXH3 of what was copied: 64 bits, seed 0, the default secret. It is of all bytes at once and
 * cannot be carried on. */
uint64_t tw_memcpy_xxh3(void *destination, const void *source, size_t length);
uint64_t tw_xxh3(const void *source, size_t length);

/* The kernels by number: name, summary, and whether this processor runs it. NULL or 0 beyond the last. */
size_t tw_kernel_count(void);
const char *tw_kernel_name(size_t index);
const char *tw_kernel_summary(size_t index);
int tw_kernel_is_available(size_t index);

/* memcpy by one kernel. TW_USAGE: no such number; TW_UNSUPPORTED: this processor does not run it. */
tw_status tw_memcpy_by(size_t index, void *destination, const void *source, size_t length);

/* ---- between processes: the rules ----
 *
 * A link joins two processes of one machine. Over it one channel (messages, tw_producer to tw_consumer)
 * or one bulk transfer (large buffers, tw_sender to tw_receiver) is opened, one end in each process.
 *
 * Threads: a handle may be used from every thread, but from one at a time. A call that finds another
 * one under way with the same handle gets TW_USAGE (or -1, 0, NULL, where there is no status); the
 * check costs nothing and so cannot see every race. Different handles do not disturb each other.
 *
 * Death and goodbye: closing a handle is the goodbye, TW_CLOSED at the other side. A process that ends
 * without one, by a signal, by exit(3) or by execve(2), is TW_PEER_DIED there, at once. A process that
 * is stopped is waited for. No SIGPIPE comes of what is below this line.
 *
 * fork(2): listeners and links may be used in the child. Channels and ends of bulk transfers stay the
 * parent's: the child gets TW_NOT_PERMITTED, and may close its copies, which nobody notices.
 *
 * A `tw_X **` that goes in is used up: `*x` is NULL afterwards, however the call ended, except where
 * the pointer itself was refused. NULL may be closed and freed.
 *
 * Memory that is pointed to stays valid until the call that takes it back; closing the handle takes it back too.
 */

/* Timeouts are in nanoseconds from now. TW_NOW: only what needs no waiting, else TW_TIMEOUT. A negative timeout, as
 * `deadline - now` gives it when the deadline has passed, is TW_NOW. */
#define TW_FOREVER INT64_MAX
#define TW_NOW INT64_C(0)

/* How to wait for the other side. */
typedef enum tw_wait {
    TW_WAIT_HYBRID = 0, /* look for a while, then sleep */
    TW_WAIT_SPIN = 1,   /* look again and again: the shortest delay, and a processor for itself */
    TW_WAIT_BLOCK = 2   /* sleep at once */
} tw_wait;

/* ---- links ---- */

typedef struct tw_listener tw_listener;
typedef struct tw_link tw_link;

/* Who is admitted at the other end: a user id, or one of these. */
#define TW_SAME_USER INT64_C(-1) /* processes of our own effective user */
#define TW_ANYONE INT64_C(-2)    /* whoever can reach the socket */

/* Listens at an address: a path if it has a slash; else a name among this user's, in
 * $XDG_RUNTIME_DIR/thalweg or /tmp/thalweg-UID (letters, digits, '.', '_', '-'). TW_SYSTEM with
 * EADDRINUSE: somebody listens there. The socket's file goes when the listener is closed; one that a
 * killed process left behind is replaced. */
tw_status tw_listener_bind(const char *address, int64_t admit, tw_listener **listener, tw_error *error);

/* The next process that has connected. TW_NOT_PERMITTED: it was of a user who is not admitted; the
 * next one can be waited for. */
tw_status tw_listener_accept(tw_listener *listener, int64_t timeout_ns, tw_link **link, tw_error *error);

/* Readable when somebody waits; stays the listener's. -1 for NULL. */
int tw_listener_fd(const tw_listener *listener);
void tw_listener_close(tw_listener *listener);

/* Joins the process that listens there. TW_SYSTEM with ENOENT or ECONNREFUSED: nobody does. */
tw_status tw_link_connect(const char *address, int64_t admit, int64_t timeout_ns, tw_link **link,
                          tw_error *error);

/* Both ends in this process, for two threads, or before fork(2). */
tw_status tw_link_pair(tw_link **near, tw_link **far, tw_error *error);

/* A link over a connected unix socket of type SOCK_SEQPACKET, which is duplicated. */
tw_status tw_link_of_fd(int fd, int64_t admit, tw_link **link, tw_error *error);

/* The process at the other end, as the kernel knew it when the two were joined: for the side that
 * connected the one that listens, for a pair the one that made it. A channel or bulk transfer that is opened
 * over the link learns from the messages of the other side which process uses that end. */
typedef struct tw_peer {
    uint32_t pid; /* 0: it lives in a pid namespace that we do not see */
    uint32_t uid;
    uint32_t gid;
    int32_t is_alive; /* 0: it has ended, or has closed its end */
} tw_peer;
tw_status tw_link_peer(tw_link *link, tw_peer *peer, tw_error *error);

/* Sends one message of at least 1 byte with `count` descriptors, at most 8 (SCM_RIGHTS), whole or not at
 * all. A few KiB fit: a link introduces processes, and is not for data. TW_CLOSED: the other end is gone.
 * Only before a channel or a bulk transfer is opened over the link. */
tw_status tw_link_send(tw_link *link, const void *message, size_t length, const int *fds, size_t count,
                       int64_t timeout_ns, tw_error *error);

/* Receives one message. `*count` says how many places `fds` has, and then how many came: they are the
 * caller's, closed on exec. Both may be NULL where none are expected. TW_CORRUPT: a message that is
 * larger than `room` or has more descriptors; it is lost, and the descriptors are closed. */
tw_status tw_link_receive(tw_link *link, void *into, size_t room, size_t *length, int *fds, size_t *count,
                          int64_t timeout_ns, tw_error *error);

/* The socket, to be polled; stays the link's. -1 for NULL. */
int tw_link_fd(const tw_link *link);
void tw_link_close(tw_link *link);

/* ---- channels: messages through shared memory ----
 *
 * One producer, one consumer. Messages are written and read in place; no system call while both sides
 * are awake. What was not committed does not exist; what was committed arrives, in order, whole, also
 * when the producer is killed a moment later. docs/reference/formats.md has every byte. */

typedef struct tw_producer tw_producer;
typedef struct tw_consumer tw_consumer;
typedef struct tw_held tw_held;

#define TW_CHECKSUMS 1u /* producer: each message carries a CRC-32C, which the consumer checks */
#define TW_UNTRUSTED 2u /* the other side may be hostile: nothing of it is looked at in shared memory */

typedef struct tw_channel_options {
    size_t size;       /* sizeof(tw_channel_options) */
    uint64_t capacity; /* producer: bytes of messages that may be under way, with 32 more for each and
                        * rounded up to 64; rounded up to a power of two, at most 2^30; 0: 2^20 */
    uint64_t spin_ns;  /* TW_WAIT_HYBRID: how long to look before sleeping; 0: the library's choice */
    uint32_t wait;     /* a tw_wait */
    uint32_t flags;    /* TW_CHECKSUMS | TW_UNTRUSTED */
} tw_channel_options;

#define TW_CHANNEL_OPTIONS_INIT { sizeof(tw_channel_options), 0, 0, TW_WAIT_HYBRID, 0 }

/* Offers a channel over a link and waits for its consumer. `options` may be NULL. */
tw_status tw_producer_open(tw_link **link, const tw_channel_options *options, int64_t timeout_ns,
                           tw_producer **producer, tw_error *error);

/* The same with the first consumer that comes; later ones are told that the channel has its consumer. One that
 * says nothing for five seconds is hung up on, and the next is met; however many fail, `timeout_ns` is for all. */
tw_status tw_producer_accept(tw_listener **listener, const tw_channel_options *options, int64_t timeout_ns,
                             tw_producer **producer, tw_error *error);

/* Room for a message of `length` bytes, to be written in place: aligned to 32, with anything in it. One
 * at a time. TW_TOO_LARGE: more than tw_producer_largest. TW_CLOSED, TW_PEER_DIED: the consumer is gone;
 * `error->moved` messages were released by it. */
tw_status tw_producer_loan(tw_producer *producer, size_t length, int64_t timeout_ns, void **room,
                           tw_error *error);

/* Makes the first `length` bytes of the room a message; no more than were on loan. */
tw_status tw_producer_commit(tw_producer *producer, size_t length, tw_error *error);

/* Gives the room back; there was no message. */
tw_status tw_producer_abort(tw_producer *producer, tw_error *error);

/* Sends a copy: loan, copy and commit in one. */
tw_status tw_producer_send(tw_producer *producer, const void *message, size_t length, int64_t timeout_ns,
                           tw_error *error);

/* Waits until the consumer has released every message. */
tw_status tw_producer_drain(tw_producer *producer, int64_t timeout_ns, tw_error *error);

/* For an event loop: `*is_armed` 1: poll tw_producer_fd for reading, and try again when it is ready (any
 * call disarms it). 0: there is room for `length` bytes already, or the consumer is gone; try at once. */
tw_status tw_producer_arm(tw_producer *producer, size_t length, int *is_armed, tw_error *error);

/* The descriptor to poll, which stays the producer's (-1 for NULL); the largest message; messages sent. */
int tw_producer_fd(const tw_producer *producer);
size_t tw_producer_largest(const tw_producer *producer);
uint64_t tw_producer_sent(const tw_producer *producer);
void tw_producer_close(tw_producer *producer);

/* Takes the channel that is offered over a link. `options` may be NULL. */
tw_status tw_consumer_open(tw_link **link, const tw_channel_options *options, int64_t timeout_ns,
                           tw_consumer **consumer, tw_error *error);

/* The next message, where it lies: aligned to 32 (with TW_UNTRUSTED, where it is a copy, not aligned), not to
 * be written to, valid until it is released. One at a time. TW_CLOSED, TW_PEER_DIED: nothing more comes; `error->moved` messages came. */
tw_status tw_consumer_receive(tw_consumer *consumer, int64_t timeout_ns, const void **message,
                              size_t *length, tw_error *error);

/* Gives the message's room back to the producer. */
tw_status tw_consumer_release(tw_consumer *consumer, tw_error *error);

/* As tw_consumer_receive, but to be kept while others are received: as many as the ring has room for, given back
 * in any order. `*message` stays valid, and as it is, until tw_held_release, also after tw_consumer_close and
 * when the producer is gone. The room of the oldest and all behind it stays taken meanwhile: a producer whose ring is
 * full waits. Who holds the whole ring waits for its next message in vain. */
tw_status tw_consumer_hold(tw_consumer *consumer, int64_t timeout_ns, tw_held **held, const void **message,
                           size_t *length, tw_error *error);

/* How many messages are held, and whether the producer waits for their room while no message is here: then neither
 * end goes on until one of them is given back. For who has waited in vain: the answer is 0 until the producer has looked
 * twice, so ask after each of several waits. */
tw_status tw_consumer_held(tw_consumer *consumer, size_t *messages, int *is_waited_for, tw_error *error);

/* Gives it back; from any thread, whoever uses the consumer meanwhile. NULL is allowed. */
void tw_held_release(tw_held *held);

/* Copies the next message out and releases it. TW_TOO_LARGE: it waits, and `*length` is its size. */
tw_status tw_consumer_receive_into(tw_consumer *consumer, void *into, size_t room, int64_t timeout_ns,
                                   size_t *length, tw_error *error);

/* As tw_producer_arm and tw_producer_fd. Not while a message is held. */
tw_status tw_consumer_arm(tw_consumer *consumer, int *is_armed, tw_error *error);
int tw_consumer_fd(const tw_consumer *consumer);
void tw_consumer_close(tw_consumer *consumer);

/* ---- channels with more ends: a ring for each, so that one who dies or lies harms its own alone ---- */

typedef struct tw_broadcast tw_broadcast;
typedef struct tw_subscription tw_subscription;
typedef struct tw_mpsc tw_mpsc;

#define TW_NOBODY UINT64_MAX

/* One sends to all; no subscribers yet. `backlog` 0: all wait for the slowest one. Else so many messages are
 * kept for each, and when there are more the oldest is dropped and counted. */
tw_status tw_broadcast_new(size_t backlog, tw_broadcast **broadcast, tw_error *error);

/* Takes in whoever opens a subscription at the other end; it gets what is published from now on. */
tw_status tw_broadcast_add(tw_broadcast *broadcast, tw_link **link, const tw_channel_options *options,
                           int64_t timeout_ns, uint64_t *subscriber, tw_error *error);

/* Sends a copy to every subscriber. After TW_TIMEOUT nobody has it; only without a backlog is there a wait. */
tw_status tw_broadcast_publish(tw_broadcast *broadcast, const void *message, size_t length,
                               int64_t timeout_ns, tw_error *error);

/* Moves on what is kept, as far as there is room; `*left` are still kept. Publishing does it too. */
tw_status tw_broadcast_push(tw_broadcast *broadcast, size_t *left, tw_error *error);

/* One who has gone, a call each: the status is how (TW_CLOSED, TW_PEER_DIED, ...), `*subscriber` who, and
 * `*dropped` what was dropped for it. TW_OK: nobody has gone. */
tw_status tw_broadcast_departed(tw_broadcast *broadcast, uint64_t *subscriber, uint64_t *dropped,
                                tw_error *error);
size_t tw_broadcast_subscribers(const tw_broadcast *broadcast);
void tw_broadcast_close(tw_broadcast *broadcast);

/* Subscribes to the broadcast at the other end, and waits for it. `options` may be NULL. */
tw_status tw_subscription_open(tw_link **link, const tw_channel_options *options,
                               tw_subscription **subscription, tw_error *error);

/* As tw_consumer_receive; its number among all that were published, and how many were dropped just before
 * it. `number` and `missed` may be NULL. */
tw_status tw_subscription_receive(tw_subscription *subscription, int64_t timeout_ns, const void **message,
                                  size_t *length, uint64_t *number, uint64_t *missed, tw_error *error);
tw_status tw_subscription_release(tw_subscription *subscription, tw_error *error);
void tw_subscription_close(tw_subscription *subscription);

/* One receives from all, who are plain producers; none yet. `options` are for each ring. */
tw_status tw_mpsc_new(const tw_channel_options *options, tw_mpsc **mpsc, tw_error *error);

/* Takes in whoever opens a producer at the other end. */
tw_status tw_mpsc_add(tw_mpsc *mpsc, tw_link **link, int64_t timeout_ns, uint64_t *producer, tw_error *error);

/* The next message of whoever has one; no order between producers. When one is gone, after everything it had
 * committed, the status says how and `*from` who, once. TW_CLOSED from TW_NOBODY: there is no producer. */
tw_status tw_mpsc_receive(tw_mpsc *mpsc, int64_t timeout_ns, uint64_t *from, const void **message,
                          size_t *length, tw_error *error);
tw_status tw_mpsc_release(tw_mpsc *mpsc, tw_error *error);
void tw_mpsc_close(tw_mpsc *mpsc);

/* ---- bulk: large buffers into another process's own memory ----
 *
 * The two ends agree on an arm, a way to move the bytes; one that is refused under way is replaced by
 * the next. A call returns when all of a buffer has arrived. These calls have no timeout; the end of
 * the other process ends them. */

typedef struct tw_sender tw_sender;
typedef struct tw_receiver tw_receiver;
typedef struct tw_buffer tw_buffer;

/* The arms by number: name and one-line summary; NULL beyond the last one. */
size_t tw_arm_count(void);
const char *tw_arm_name(size_t index);
const char *tw_arm_summary(size_t index);

/* Tries an arm's calls in this process. TW_UNSUPPORTED with the reason: they do not work here. */
tw_status tw_arm_probe(size_t index, tw_error *error);

/* Where the bytes land, as the receiver says. */
typedef enum tw_destination {
    TW_DESTINATION_UNKNOWN = 0,
    TW_DESTINATION_RESIDENT = 1,  /* memory that was written to before */
    TW_DESTINATION_FRESH = 2,     /* memory whose pages are not there yet */
    TW_DESTINATION_FRESH_HUGE = 3 /* the same, on huge pages */
} tw_destination;

#define TW_WILL_LOAN 1u /* sender: the data will be written into tw_sender_loan */
/* TW_UNTRUSTED: the other side must not read or write this process's memory, though of the same user. */

typedef struct tw_bulk_options {
    size_t size;          /* sizeof(tw_bulk_options) */
    const char *arm;      /* sender: only this arm; NULL: the library chooses */
    const char *knobs;    /* sender: its knobs, "KNOB=NUMBER,..." as `thalweg list` names them; NULL: defaults */
    uint64_t length;      /* sender: of most buffers; 0: not known */
    uint64_t spin_ns;     /* as in tw_channel_options */
    uint32_t wait;        /* a tw_wait */
    uint32_t needs;       /* sender: TW_STABLE | TW_PRIVATE */
    uint32_t destination; /* receiver: a tw_destination */
    uint32_t flags;       /* TW_WILL_LOAN | TW_UNTRUSTED */
    /* sender: chooses the arm, without `arm`: of those that work the fastest measured for `length`, TW_WILL_LOAN
     * and the receiver's `destination`, with the knobs it was measured with. NULL, or a profile that knows nothing
     * of that (`thalweg tune --pair process:process`): the first by what is known without measuring. It may be
     * freed once the sender is open. */
    const tw_profile *profile;
} tw_bulk_options;

#define TW_BULK_OPTIONS_INIT { sizeof(tw_bulk_options), NULL, NULL, 0, 0, TW_WAIT_HYBRID, TW_DEFAULT_NEEDS, TW_DESTINATION_UNKNOWN, 0, NULL }

/* Meets the receiver at the other end and agrees on an arm. TW_NOT_PERMITTED: there is none; the message
 * says why of each. `options` may be NULL. */
tw_status tw_sender_open(tw_link **link, const tw_bulk_options *options, tw_sender **sender, tw_error *error);

/* Sends a buffer and waits until all of it is the receiver's; then it may be written to again.
 * TW_PEER_DIED: what arrived is not known. */
tw_status tw_sender_send(tw_sender *sender, const void *bytes, size_t length, tw_error *error);

/* Memory to write the data into: arms that can hand it over save a copy. It may outlive the sender. */
tw_status tw_sender_loan(tw_sender *sender, size_t length, tw_buffer **loan, tw_error *error);

/* Sends a loan. `*loan` is NULL afterwards if the memory is the receiver's now, and after a failure; else it
 * is a loan to be filled again: ask for its data anew. TW_USAGE: no loan; it stays where it was. */
tw_status tw_sender_send_loan(tw_sender *sender, tw_buffer **loan, tw_error *error);

/* The name of the arm in use; NULL for NULL. And, as JSON, {arm, tuning, choice: {why, evidence}, skipped: [{arm,
 * reason}]}: `why` is a sentence, `evidence` what the profile has measured of the arm under these conditions, as
 * ratios of time to another arm's, with intervals, noise, sessions and date; null if the profile did not choose. */
const char *tw_sender_arm(const tw_sender *sender);
tw_status tw_sender_explain_json(const tw_sender *sender, char **json, tw_error *error);
void tw_sender_close(tw_sender *sender);

/* Meets the sender at the other end. `options` may be NULL. */
tw_status tw_receiver_open(tw_link **link, const tw_bulk_options *options, tw_receiver **receiver,
                           tw_error *error);

/* Waits for the next buffer and says how long it is; it is received by one of the next two. TW_CLOSED:
 * there is none; `error->moved` buffers came. */
tw_status tw_receiver_next_length(tw_receiver *receiver, uint64_t *length, tw_error *error);

/* Receives the next buffer into the start of `into`. TW_TOO_LARGE: it waits. TW_PEER_DIED: the first
 * `error->moved` bytes are true. After any other failure the bytes are any bytes. */
tw_status tw_receiver_receive_into(tw_receiver *receiver, void *into, size_t room, size_t *length,
                                   tw_error *error);

/* Receives the next buffer into memory of its own, on huge pages where the kernel has them. */
tw_status tw_receiver_receive_new(tw_receiver *receiver, tw_buffer **buffer, tw_error *error);

/* As tw_sender_arm and tw_sender_explain_json, without `choice`: it is the sender who chooses. */
const char *tw_receiver_arm(const tw_receiver *receiver);
tw_status tw_receiver_explain_json(const tw_receiver *receiver, char **json, tw_error *error);
void tw_receiver_close(tw_receiver *receiver);

/* Zeroed memory to receive into again and again: on huge pages where the kernel has them, and resident,
 * because a page fault costs more than the copy of its page. */
tw_status tw_buffer_new(size_t length, tw_buffer **buffer, tw_error *error);
void *tw_buffer_data(tw_buffer *buffer);
size_t tw_buffer_length(const tw_buffer *buffer);
void tw_buffer_free(tw_buffer *buffer);

/* ---- regions: memory that processes share ----
 *
 * A region has no name: its descriptor (tw_link_send), or the number of a System V segment, is handed on.
 * What others write shows at once and at any time: agree on who writes when. */

typedef struct tw_region tw_region;

typedef enum tw_region_kind {
    TW_MEMFD = 0, /* memfd_create(2): can be sealed; all its pages are allocated at once */
    TW_POSIX = 1, /* shm_open(3) */
    TW_SYSV = 2   /* shmget(2): outlives every process until it is removed */
} tw_region_kind;

typedef enum tw_sharing {
    TW_READ = 0,         /* reading; a store is a SIGSEGV */
    TW_WRITE = 1,        /* reading and writing for all to see */
    TW_COPY_ON_WRITE = 2 /* reading and writing; what is written is our own copy */
} tw_sharing;

/* Makes zeroed memory for this user alone and maps it with TW_WRITE. */
tw_status tw_region_create(tw_region_kind kind, size_t length, tw_region **region, tw_error *error);

/* Maps the first `length` bytes (0: all) of what a descriptor stands for: a region's, a file's. The
 * descriptor is duplicated. TW_TOO_LARGE: it is shorter. Whoever makes it shorter later takes the pages away,
 * and a load there is a SIGBUS: ask tw_region_is_sealed(TW_SEAL_SIZE), or trust them. */
tw_status tw_region_of_fd(int fd, size_t length, tw_sharing sharing, tw_region **region, tw_error *error);

/* The same with a System V segment, which is mapped with TW_WRITE only. */
tw_status tw_region_of_segment(int id, size_t length, tw_sharing sharing, tw_region **region,
                               tw_error *error);

/* Unmaps, and maps again; the region keeps its memory in between, and its address changes. */
tw_status tw_region_unmap(tw_region *region, tw_error *error);
tw_status tw_region_map(tw_region *region, tw_sharing sharing, tw_error *error);

#define TW_SEAL_SIZE 1u    /* nobody can make it shorter or longer */
#define TW_SEAL_WRITE 2u   /* nobody can write to it; EBUSY while somebody has it mapped with TW_WRITE. Then
                            * TW_READ needs Linux 6.7, TW_COPY_ON_WRITE does not */
#define TW_SEAL_WRITERS 4u /* nobody can map it with TW_WRITE any more; who has may still write */
#define TW_SEAL_SEALS 8u   /* nobody can add seals */

/* Seals a TW_MEMFD, for good. Refused seals are TW_SYSTEM with EBUSY, EPERM or EINVAL. */
tw_status tw_region_seal(tw_region *region, uint32_t seals, tw_error *error);

/* 1 if it has all of these seals, is as long as it was, and is of ordinary pages; else 0. */
int tw_region_is_sealed(const tw_region *region, uint32_t seals);

/* Makes every page resident now, in one call instead of a fault for each. TW_UNSUPPORTED before Linux 5.14. */
tw_status tw_region_populate(tw_region *region, tw_error *error);

/* Removes a TW_SYSV: it goes with the last process that has it mapped. Call it once all have. */
tw_status tw_region_remove(tw_region *region, tw_error *error);

/* The first byte, page-aligned (NULL while not mapped); bytes; the descriptor, which stays the region's, or
 * -1; the number of the System V segment, or -1. */
void *tw_region_data(const tw_region *region);
size_t tw_region_length(const tw_region *region);
int tw_region_fd(const tw_region *region);
int tw_region_segment(const tw_region *region);
void tw_region_close(tw_region *region);

#ifdef __cplusplus
}
#endif
#endif
