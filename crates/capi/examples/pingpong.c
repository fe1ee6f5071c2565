/* Sends a message to another process and back, over two channels. Run it on an idle machine.
 *   cc -O2 pingpong.c $(pkg-config --cflags --libs thalweg) -o pingpong
 *   pingpong ping|pong DIR|fd:N,M [spin|hybrid|block] [ROUNDS] [BATCHES] [BYTES]
 * The other process may also be the Rust or Java version of this program, which has the same arguments. peers/speed
 * runs all versions in turn. `pong` listens in DIR, and answers until `ping` ends. N and M are inherited sockets, which
 * are used instead: one for each channel. `ping` prints the nanoseconds of a round trip: the median, the minimum and
 * the maximum of the batches. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thalweg.h>
#include <time.h>

/* Maximum time to wait for the other process. */
static const int64_t patience_ns = INT64_C(60000000000);

static tw_error error;

static void must(tw_status status)
{
    if (status == TW_OK)
        return;
    fprintf(stderr, "pingpong: %s\n", error.message);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void address(char *to, size_t room, const char *place, const char *name)
{
    if (snprintf(to, room, "%s/%s", place, name) >= (int)room) {
        fprintf(stderr, "pingpong: %s/%s is too long for a socket\n", place, name);
        exit(2);
    }
}

/* The names of the sockets in DIR. */
static const char *const names[] = { "there", "back" };

/* Creates the link of a channel over an inherited socket. Returns NULL if `place` is a directory. */
static tw_link *inherited(const char *place, int channel)
{
    tw_link *link;
    int fds[2];

    if (sscanf(place, "fd:%d,%d", &fds[0], &fds[1]) != 2)
        return NULL;
    must(tw_link_of_fd(fds[channel], TW_SAME_USER, &link, &error));
    return link;
}

/* Connects to the other process. Retries until that process listens. */
static tw_link *join(const char *place, int channel)
{
    char at[100];
    tw_link *link = inherited(place, channel);
    tw_status status;
    int64_t end = now_ns() + patience_ns;

    if (link)
        return link;
    address(at, sizeof at, place, names[channel]);
    while ((status = tw_link_connect(at, TW_SAME_USER, patience_ns, &link, &error)) == TW_SYSTEM &&
           (error.os_error == ENOENT || error.os_error == ECONNREFUSED) && now_ns() < end)
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    must(status);
    return link;
}

/* Waits for the other process. */
static tw_link *accepted(const char *place, int channel)
{
    char at[100];
    tw_link *link = inherited(place, channel);
    tw_listener *from;

    if (link)
        return link;
    address(at, sizeof at, place, names[channel]);
    must(tw_listener_bind(at, TW_SAME_USER, &from, &error));
    must(tw_listener_accept(from, patience_ns, &link, &error));
    tw_listener_close(from);
    return link;
}

static double batch(tw_producer *there, tw_consumer *back, const void *message, size_t bytes, long rounds)
{
    const void *answer;
    size_t length;
    int64_t begin = now_ns();

    for (long round = 0; round < rounds; round++) {
        must(tw_producer_send(there, message, bytes, TW_FOREVER, &error));
        must(tw_consumer_receive(back, TW_FOREVER, &answer, &length, &error));
        if (length != bytes) {
            fprintf(stderr, "pingpong: an answer of %zu bytes\n", length);
            exit(1);
        }
        must(tw_consumer_release(back, &error));
    }
    return (double)(now_ns() - begin) / (double)rounds;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void ping(const char *place, const tw_channel_options *options, long rounds, size_t batches, size_t bytes)
{
    tw_producer *there;
    tw_consumer *back;
    tw_link *link = join(place, 0);

    must(tw_producer_open(&link, options, patience_ns, &there, &error));
    link = join(place, 1);
    must(tw_consumer_open(&link, options, patience_ns, &back, &error));
    void *message = calloc(bytes + 1, 1);
    double *times = calloc(batches, sizeof *times);
    if (!message || !times)
        exit(1);
    /* The first batches are not counted, because a JVM at the other end compiles its code during them. */
    for (int n = 0; n < 5; n++)
        batch(there, back, message, bytes, rounds);
    for (size_t n = 0; n < batches; n++)
        times[n] = batch(there, back, message, bytes, rounds);
    tw_producer_close(there);
    tw_consumer_close(back);
    qsort(times, batches, sizeof *times, by_size);
    printf("%.1f ns [%.1f-%.1f]\n", times[batches / 2], times[0], times[batches - 1]);
    free(message);
    free(times);
}

static void pong(const char *place, const tw_channel_options *options)
{
    const void *message;
    size_t length;
    tw_consumer *there;
    tw_producer *back;
    tw_status status;
    tw_link *link = accepted(place, 0);

    must(tw_consumer_open(&link, options, patience_ns, &there, &error));
    link = accepted(place, 1);
    must(tw_producer_open(&link, options, patience_ns, &back, &error));
    while ((status = tw_consumer_receive(there, TW_FOREVER, &message, &length, &error)) == TW_OK) {
        must(tw_producer_send(back, message, length, TW_FOREVER, &error));
        must(tw_consumer_release(there, &error));
    }
    if (status != TW_CLOSED)
        must(status);
    tw_consumer_close(there);
    tw_producer_close(back);
}

static long number(int argc, char **argv, int at, long otherwise)
{
    return argc > at ? atol(argv[at]) : otherwise;
}

int main(int argc, char **argv)
{
    tw_channel_options options = TW_CHANNEL_OPTIONS_INIT;
    const char *wait = argc > 3 ? argv[3] : "hybrid";
    long rounds = number(argc, argv, 4, 100000), batches = number(argc, argv, 5, 21), bytes = number(argc, argv, 6, 64);

    options.wait = !strcmp(wait, "spin") ? TW_WAIT_SPIN : !strcmp(wait, "block") ? TW_WAIT_BLOCK : TW_WAIT_HYBRID;
    if (argc > 2 && !strcmp(argv[1], "pong"))
        pong(argv[2], &options);
    else if (argc > 2 && !strcmp(argv[1], "ping") && rounds > 0 && batches > 0 && bytes >= 0)
        ping(argv[2], &options, rounds, (size_t)batches, (size_t)bytes);
    else {
        fprintf(stderr, "usage: %s ping|pong DIR|fd:N,M [spin|hybrid|block] [ROUNDS] [BATCHES] [BYTES]\n", argv[0]);
        return TW_USAGE;
    }
    return 0;
}
