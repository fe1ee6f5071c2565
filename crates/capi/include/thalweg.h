/* thalweg.h - moves bytes on Linux by the way that is fastest on the machine it runs on.
 *
 * Rules that hold for every function:
 * - It returns a tw_status: TW_OK, or a failure; then `*error`, if not NULL, says what, where and how
 *   far it came. Functions that cannot fail say so by their type.
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
    TW_INTERNAL = 6     /* a defect of the library; please report it */
} tw_status;

typedef struct tw_error {
    tw_status status;
    int32_t os_error; /* the errno, or 0 */
    uint64_t moved;   /* bytes that reached the sink: a true prefix of the source */
    char message[488];
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
 * names the key. */
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
 * `report->bytes`. `options` and `report` may be NULL. */
tw_status tw_transfer(int source, int sink, uint64_t length, const tw_transfer_options *options,
                      tw_report *report, tw_error *error);

/* What tw_transfer would do: a verdict for every mechanism, as `thalweg plan --json` prints them. */
tw_status tw_plan_json(int source, int sink, uint64_t length, const tw_transfer_options *options,
                       char **json, tw_error *error);

/* Copies one file with its mode, as `thalweg copy` does: the destination has its name only when it is
 * whole. `options` and `report` may be NULL. */
tw_status tw_copy(const char *source, const char *destination, const tw_transfer_options *options,
                  tw_report *report, tw_error *error);

/* ---- memory to memory ---- */

/* memcpy, memmove and memset by the kernel chosen for this process: that of the C library until
 * somebody measured better. Sizes of 0 are allowed; NULL is not. */
void *tw_memcpy(void *destination, const void *source, size_t length);
void *tw_memmove(void *destination, const void *source, size_t length);
void *tw_memset(void *destination, int byte, size_t length);

/* Copies and returns the CRC32C (Castagnoli) of what was copied, carried on from `crc`; start with 0. */
uint32_t tw_memcpy_crc32c(void *destination, const void *source, size_t length, uint32_t crc);
uint32_t tw_crc32c(const void *source, size_t length, uint32_t crc);

/* The kernels by number: name, summary, and whether this processor runs it. NULL or 0 beyond the last. */
size_t tw_kernel_count(void);
const char *tw_kernel_name(size_t index);
const char *tw_kernel_summary(size_t index);
int tw_kernel_is_available(size_t index);

/* memcpy by one kernel. TW_USAGE: no such number; TW_UNSUPPORTED: this processor does not run it. */
tw_status tw_memcpy_by(size_t index, void *destination, const void *source, size_t length);

#ifdef __cplusplus
}
#endif
#endif
