/* The worker protocol, version 1 (docs/reference/formats.md), for programs that studies measure.
 *
 * A program fills in a `struct worker` and calls worker_main. Everything it times it times itself,
 * between worker_begin and worker_end; allocating and checking lie outside. One thread only, unless
 * the program says otherwise. */
#ifndef THALWEG_WORKER_H
#define THALWEG_WORKER_H

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* What some operations took. Add up as many parts as there are. */
struct cost {
    uint64_t wall_ns, user_us, sys_us;
    uint64_t minor_faults, major_faults, voluntary, involuntary;
    uint64_t bytes;
    uint64_t calls; /* system calls, if counts_calls is set */
};

struct worker {
    /* Page faults are part of the work: it touches fresh memory on purpose. */
    int faults;
    /* `calls` of the cost is counted. */
    int counts_calls;
    /* Allocates and touches everything. */
    void (*warm)(void);
    /* Does the operation so many times. */
    void (*run)(uint32_t times, struct cost *cost);
    /* Does it once more and looks at the bytes: NULL, or what is wrong. */
    const char *(*check)(void);
    /* "shared", "copied" or "none": whether a change of the source, made once the sender is done,
     * shows in the sink. NULL is "none". */
    const char *(*alias)(void);
    /* Bytes of memory of all its processes, shared ones counted once. NULL is not known. */
    uint64_t (*memory)(void);
};

/* Says why the work cannot be done here, and ends. The lab shows the reason. */
static inline void worker_unfit(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static inline void worker_unfit(const char *format, ...)
{
    va_list words;
    va_start(words, format);
    printf("unfit ");
    vprintf(format, words);
    printf("\n");
    fflush(stdout);
    va_end(words);
    exit(1);
}

/* ---- parameters: words of the form key=value ---- */

static int worker_words;
static char **worker_word;

/* The value of a parameter, or `otherwise` where it is not given. */
static inline const char *worker_text(const char *key, const char *otherwise)
{
    size_t length = strlen(key);
    for (int i = 1; i < worker_words; i++)
        if (!strncmp(worker_word[i], key, length) && worker_word[i][length] == '=')
            return worker_word[i] + length + 1;
    return otherwise;
}

static inline uint64_t worker_number(const char *key, uint64_t otherwise)
{
    const char *text = worker_text(key, NULL);
    if (!text)
        return otherwise;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-')
        worker_unfit("%s=%s: not a number", key, text);
    return number;
}

/* The place of the parameter's value in a list of words that ends with NULL; the first one where it
 * is not given. */
static inline int worker_choice(const char *key, const char *const *words)
{
    const char *text = worker_text(key, words[0]);
    for (int i = 0; words[i]; i++)
        if (!strcmp(text, words[i]))
            return i;
    worker_unfit("%s=%s: not known here", key, text);
}

/* Takes the command line; `keys` is a list of all keys the program knows, each followed by a blank. */
static inline void worker_parameters(int argc, char **argv, const char *keys)
{
    worker_words = argc;
    worker_word = argv;
    for (int i = 1; i < argc; i++) {
        char key[32];
        const char *equals = strchr(argv[i], '=');
        if (!equals || (size_t)(equals - argv[i]) + 2 > sizeof key)
            worker_unfit("%s: not of the form key=value", argv[i]);
        size_t length = (size_t)(equals - argv[i]);
        memcpy(key, argv[i], length);
        memcpy(key + length, " ", 2);
        const char *found = strstr(keys, key);
        if (!found || (found != keys && found[-1] != ' '))
            worker_unfit("%.*s: no such parameter; known: %s", (int)length, argv[i], keys);
    }
}

/* ---- time ---- */

struct worker_mark {
    struct timespec clock;
    struct rusage usage;
};

static inline struct worker_mark worker_begin(void)
{
    struct worker_mark mark;
    getrusage(RUSAGE_SELF, &mark.usage);
    clock_gettime(CLOCK_MONOTONIC, &mark.clock);
    return mark;
}

static inline uint64_t worker_us(struct timeval from, struct timeval to)
{
    int64_t us = (int64_t)(to.tv_sec - from.tv_sec) * 1000000 + (to.tv_usec - from.tv_usec);
    return us > 0 ? (uint64_t)us : 0;
}

/* Adds what was used since `from`. */
static inline void worker_end(const struct worker_mark *from, struct cost *cost)
{
    struct worker_mark to;
    clock_gettime(CLOCK_MONOTONIC, &to.clock);
    getrusage(RUSAGE_SELF, &to.usage);
    int64_t ns = (int64_t)(to.clock.tv_sec - from->clock.tv_sec) * 1000000000 +
                 (to.clock.tv_nsec - from->clock.tv_nsec);
    cost->wall_ns += ns > 0 ? (uint64_t)ns : 0;
    cost->user_us += worker_us(from->usage.ru_utime, to.usage.ru_utime);
    cost->sys_us += worker_us(from->usage.ru_stime, to.usage.ru_stime);
    cost->minor_faults += (uint64_t)(to.usage.ru_minflt - from->usage.ru_minflt);
    cost->major_faults += (uint64_t)(to.usage.ru_majflt - from->usage.ru_majflt);
    cost->voluntary += (uint64_t)(to.usage.ru_nvcsw - from->usage.ru_nvcsw);
    cost->involuntary += (uint64_t)(to.usage.ru_nivcsw - from->usage.ru_nivcsw);
}

/* Bytes of a kind of memory of a process, `Pss:` or `AnonHugePages:` (proc_pid_smaps(5)); 0 where it
 * does not show. */
static inline uint64_t worker_smaps(long pid, const char *kind)
{
    char path[64], line[256];
    unsigned long long kib = 0;
    snprintf(path, sizeof path, "/proc/%ld/smaps_rollup", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, kind, strlen(kind)) && sscanf(line + strlen(kind), "%llu kB", &kib) == 1)
            break;
    fclose(file);
    return (uint64_t)kib << 10;
}

/* Proportional memory: of a page that two share, each has half. */
static inline uint64_t worker_pss(long pid)
{
    return worker_smaps(pid, "Pss:");
}

/* Ends, with the reason, where so many bytes are not to be had without driving others out. */
static inline void worker_needs(uint64_t bytes)
{
    char line[128];
    unsigned long long kib;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1 && kib < bytes / 1024)
            worker_unfit("it needs %" PRIu64 " MiB of memory, and %llu MiB are available", bytes >> 20, kib >> 10);
    if (file)
        fclose(file);
}

/* ---- the conversation ---- */

static inline void worker_answer_run(const struct worker *worker, uint32_t times)
{
    struct cost c = { 0 };
    worker->run(times, &c);
    printf("{\"wall_ns\":%" PRIu64 ",\"user_us\":%" PRIu64 ",\"sys_us\":%" PRIu64
           ",\"minor_faults\":%" PRIu64 ",\"major_faults\":%" PRIu64 ",\"voluntary\":%" PRIu64
           ",\"involuntary\":%" PRIu64 ",\"bytes\":%" PRIu64,
           c.wall_ns, c.user_us, c.sys_us, c.minor_faults, c.major_faults, c.voluntary, c.involuntary,
           c.bytes);
    if (worker->counts_calls)
        printf(",\"calls\":%" PRIu64, c.calls);
    printf("}\n");
}

/* Obeys until `quit` or the end of input. */
static inline int worker_main(const struct worker *worker)
{
    char line[128];
    unsigned times;
    if (!worker->warm || !worker->run || !worker->check)
        worker_unfit("the worker has no warm, no run, or no check");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "hello")) {
            printf("thalweg-worker 1%s\n", worker->faults ? " faults" : "");
        } else if (!strcmp(line, "warm")) {
            struct cost unused = { 0 };
            worker->warm();
            /* The clock's own pages are touched too. */
            struct worker_mark mark = worker_begin();
            worker_end(&mark, &unused);
            printf("ok\n");
        } else if (sscanf(line, "run %u", &times) == 1) {
            worker_answer_run(worker, times);
        } else if (!strcmp(line, "check")) {
            const char *wrong = worker->check();
            printf(wrong ? "wrong %s\n" : "ok\n", wrong);
        } else if (!strcmp(line, "alias")) {
            printf("%s\n", worker->alias ? worker->alias() : "none");
        } else if (!strcmp(line, "memory")) {
            printf("%" PRIu64 "\n", worker->memory ? worker->memory() : 0);
        } else if (!strcmp(line, "quit")) {
            break;
        } else {
            printf("unfit no such command: %s\n", line);
        }
        fflush(stdout);
    }
    return 0;
}

#endif
