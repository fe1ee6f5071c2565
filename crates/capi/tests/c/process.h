/* Starts the other process of a test: forked, connected by a link, and killed when the test ends. */
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "check.h"

/* Time after which a test counts as hanging. It is no requirement of speed. */
#define GUARD (INT64_C(120) * 1000 * 1000 * 1000)

#define OK(call)                                                                                     \
    do {                                                                                             \
        tw_status status_ = (call);                                                                  \
        if (status_ != TW_OK) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %d: %s\n", __FILE__, __LINE__, #call, (int)status_, error.message); \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

/* Marks functions, because each program uses only some of those in this file. */
#define PART __attribute__((unused))

/* The function that the other process calls with its end of the link, which it consumes. */
typedef void part(tw_link *link, const void *script);

/* 1: the two processes are connected by a pair that was created before the fork. 0: by a listener. */
PART static int by_pair;

PART static pid_t other_by_pair(part *play, const void *script, tw_link **link)
{
    tw_link *far;
    tw_error error;
    OK(tw_link_pair(link, &far, &error));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        tw_link_close(*link);
        play(far, script);
        exit(0);
    }
    tw_link_close(far);
    return child;
}

PART static pid_t other(const char *folder, part *play, const void *script, tw_link **link)
{
    char path[4096];
    tw_listener *listener;
    tw_error error;
    if (by_pair)
        return other_by_pair(play, script, link);
    snprintf(path, sizeof path, "%s/link", folder);
    OK(tw_listener_bind(path, TW_SAME_USER, &listener, &error));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        tw_link *own;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        tw_listener_close(listener);
        OK(tw_link_connect(path, TW_SAME_USER, GUARD, &own, &error));
        play(own, script);
        exit(0);
    }
    OK(tw_listener_accept(listener, GUARD, link, &error));
    tw_listener_close(listener);
    CHECK(access(path, F_OK) != 0);
    return child;
}

PART static void ended_well(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

PART static void kill_9(pid_t child)
{
    int status;
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Writes the contents of message or buffer `number`, which differ for each number. */
PART static void fill(unsigned char *into, size_t length, size_t number)
{
    for (size_t n = 0; n < length; n++)
        into[n] = (unsigned char)((number * 31) ^ (n * 7) ^ (n >> 8));
}

PART static int holds(const unsigned char *bytes, size_t length, size_t number)
{
    for (size_t n = 0; n < length; n++)
        if (bytes[n] != (unsigned char)((number * 31) ^ (n * 7) ^ (n >> 8)))
            return 0;
    return 1;
}
