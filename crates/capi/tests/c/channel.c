/* Channels between two processes: message sizes, methods of waiting, closing, deaths, invalid calls. */
#include <pthread.h>

#include "process.h"

enum { CAPACITY = 8192, LARGEST = CAPACITY - 32 };
static const size_t sizes[] = { 0, 1, 31, 32, 33, 63, 64, 65, 1000, 4063, 4064, 4095, 4096, 4097, LARGEST - 1, LARGEST };
enum { SIZES = sizeof sizes / sizeof *sizes, ROUNDS = 3, MESSAGES = SIZES * ROUNDS };
static tw_error error;
/* A child process reports its progress through this pipe. */
static int so_far[2];

static tw_channel_options small(uint32_t wait, uint32_t flags)
{
    tw_channel_options options = TW_CHANNEL_OPTIONS_INIT;
    options.capacity = CAPACITY;
    options.wait = wait;
    options.flags = flags;
    return options;
}

static tw_producer *produce(tw_link *link, const tw_channel_options *options)
{
    tw_producer *producer;
    OK(tw_producer_open(&link, options, GUARD, &producer, &error));
    CHECK(!link && tw_producer_largest(producer) == LARGEST);
    return producer;
}

static tw_consumer *consume(tw_link *link, const tw_channel_options *options)
{
    tw_consumer *consumer;
    OK(tw_consumer_open(&link, options, GUARD, &consumer, &error));
    CHECK(!link);
    return consumer;
}

/* Sends messages of every size, alternately by a loan and by a copy, and then closes the channel. */
static void send_all(tw_link *link, const void *script)
{
    tw_producer *producer = produce(link, script);
    unsigned char message[LARGEST];
    for (size_t n = 0; n < MESSAGES; n++) {
        size_t length = sizes[n % SIZES];
        if (n % 2) {
            void *room;
            OK(tw_producer_loan(producer, LARGEST, TW_FOREVER, &room, &error));
            if (n % 5 == 0) {
                memset(room, 0xee, LARGEST);
                OK(tw_producer_abort(producer, &error));
                OK(tw_producer_loan(producer, length, GUARD, &room, &error));
            }
            fill(room, length, n);
            OK(tw_producer_commit(producer, length, &error));
        } else {
            fill(message, length, n);
            OK(tw_producer_send(producer, message, length, TW_FOREVER, &error));
        }
    }
    CHECK(tw_producer_sent(producer) == MESSAGES);
    OK(tw_producer_drain(producer, GUARD, &error));
    tw_producer_close(producer);
}

static void receive_one(tw_consumer *consumer, size_t n, int is_aligned)
{
    unsigned char copy[LARGEST];
    const void *message;
    size_t length;
    if (n % 3) {
        OK(tw_consumer_receive(consumer, TW_FOREVER, &message, &length, &error));
        CHECK(length == sizes[n % SIZES] && holds(message, length, n));
        CHECK(!is_aligned || (uintptr_t)message % 32 == 0);
        OK(tw_consumer_release(consumer, &error));
        return;
    }
    if (sizes[n % SIZES] > 0) {
        CHECK(tw_consumer_receive_into(consumer, copy, sizes[n % SIZES] - 1, GUARD, &length, &error) == TW_TOO_LARGE);
        CHECK(length == sizes[n % SIZES]);
    }
    OK(tw_consumer_receive_into(consumer, copy, sizeof copy, GUARD, &length, &error));
    CHECK(length == sizes[n % SIZES] && holds(copy, length, n));
}

static void every_size_by_every_wait(const char *folder)
{
    for (uint32_t way = 0; way < 12; way++) {
        tw_channel_options options = small(way % 3, way / 3);
        tw_link *link;
        size_t length;
        const void *message;
        pid_t child = other(folder, send_all, &options, &link);
        tw_consumer *consumer = consume(link, &options);
        for (size_t n = 0; n < MESSAGES; n++)
            receive_one(consumer, n, !(options.flags & TW_UNTRUSTED));
        CHECK(tw_consumer_receive(consumer, GUARD, &message, &length, &error) == TW_CLOSED);
        CHECK(error.moved == MESSAGES && !message && !length);
        CHECK(tw_consumer_receive(consumer, TW_NOW, &message, &length, NULL) == TW_CLOSED);
        tw_consumer_close(consumer);
        ended_well(child);
    }
}

static void send_three_and_stay(tw_link *link, const void *script)
{
    tw_producer *producer = produce(link, script);
    void *room;
    for (size_t n = 0; n < 3; n++)
        OK(tw_producer_send(producer, &n, sizeof n, TW_FOREVER, &error));
    OK(tw_producer_loan(producer, 100, TW_FOREVER, &room, &error));
    CHECK(write(so_far[1], "!", 1) == 1);
    for (;;)
        pause();
}

static void a_killed_producer_is_told_after_its_messages(const char *folder)
{
    tw_channel_options options = small(TW_WAIT_BLOCK, 0);
    tw_link *link;
    size_t length, got;
    char told;
    pid_t child = other(folder, send_three_and_stay, &options, &link);
    tw_consumer *consumer = consume(link, &options);
    CHECK(read(so_far[0], &told, 1) == 1);
    OK(tw_consumer_receive_into(consumer, &got, sizeof got, GUARD, &length, &error));
    kill_9(child);
    for (size_t n = 1; n < 3; n++) {
        OK(tw_consumer_receive_into(consumer, &got, sizeof got, GUARD, &length, &error));
        CHECK(length == sizeof got && got == n);
    }
    CHECK(tw_consumer_receive_into(consumer, &got, sizeof got, GUARD, &length, &error) == TW_PEER_DIED);
    CHECK(error.status == TW_PEER_DIED && error.moved == 3 && error.partial == 0 && strstr(error.message, "died"));
    tw_consumer_close(consumer);
}

static void receive_two_and_stay(tw_link *link, const void *script)
{
    tw_consumer *consumer = consume(link, script);
    size_t got, length;
    for (size_t n = 0; n < 2; n++)
        OK(tw_consumer_receive_into(consumer, &got, sizeof got, GUARD, &length, &error));
    for (;;)
        pause();
}

static void a_killed_consumer_is_told_with_what_it_released(const char *folder)
{
    tw_channel_options options = small(TW_WAIT_BLOCK, 0);
    tw_link *link;
    pid_t child = other(folder, receive_two_and_stay, &options, &link);
    tw_producer *producer = produce(link, &options);
    for (size_t n = 0; n < 2; n++)
        OK(tw_producer_send(producer, &n, sizeof n, GUARD, &error));
    OK(tw_producer_drain(producer, GUARD, &error));
    /* The consumer receives no more: sending succeeds, then times out, then reports the dead peer. */
    size_t sent = 2;
    tw_status status;
    while ((status = tw_producer_send(producer, &sent, sizeof sent, TW_NOW, &error)) == TW_OK)
        CHECK(++sent < CAPACITY);
    CHECK(status == TW_TIMEOUT && tw_producer_sent(producer) == sent);
    CHECK(tw_producer_send(producer, &sent, sizeof sent, 1000 * 1000, &error) == TW_TIMEOUT);
    kill_9(child);
    CHECK(tw_producer_send(producer, &sent, sizeof sent, GUARD, &error) == TW_PEER_DIED);
    CHECK(error.moved == 2 && error.partial == 0);
    tw_producer_close(producer);
}

/* Waits until the process that created the pair has ended, then uses one end. */
static void use_an_end(tw_link *link, part *play, const void *script, pid_t maker)
{
    while (getppid() == maker)
        poll(NULL, 0, 1);
    play(link, script);
    exit(write(so_far[1], "!", 1) != 1);
}

static void receive_all(tw_link *link, const void *script)
{
    tw_consumer *consumer = consume(link, script);
    for (size_t n = 0; n < MESSAGES; n++)
        receive_one(consumer, n, 0);
    tw_consumer_close(consumer);
}

static void who_made_the_pair_need_not_live(void)
{
    tw_channel_options options = small(TW_WAIT_HYBRID, 0);
    char told;
    pid_t maker = fork();
    CHECK(maker >= 0);
    if (!maker) {
        tw_link *ends[2];
        pid_t us = getpid();
        OK(tw_link_pair(&ends[0], &ends[1], &error));
        for (int n = 0; n < 2; n++)
            if (fork() == 0) {
                tw_link_close(ends[!n]);
                use_an_end(ends[n], n ? receive_all : send_all, &options, us);
            }
        _exit(0);
    }
    ended_well(maker);
    struct pollfd watched = { so_far[0], POLLIN, 0 };
    for (int n = 0; n < 2; n++)
        CHECK(poll(&watched, 1, 120000) == 1 && read(so_far[0], &told, 1) == 1);
}

static void answer(tw_link *link, const void *script)
{
    tw_consumer *consumer = consume(link, script);
    size_t got, length;
    tw_status status;
    while ((status = tw_consumer_receive_into(consumer, &got, sizeof got, GUARD, &length, &error)) == TW_OK)
        CHECK(length == sizeof got);
    CHECK(status == TW_CLOSED);
    tw_consumer_close(consumer);
}

static void wrong_calls_of_a_producer(const char *folder)
{
    tw_channel_options options = small(TW_WAIT_HYBRID, 0);
    tw_link *link;
    void *room;
    size_t n = 1;
    int armed = 7;
    pid_t child = other(folder, answer, &options, &link);
    tw_producer *producer = produce(link, &options);
    CHECK(tw_producer_commit(producer, 0, &error) == TW_USAGE && strstr(error.message, "loan"));
    CHECK(tw_producer_abort(producer, &error) == TW_USAGE);
    CHECK(tw_producer_loan(producer, LARGEST + 1, GUARD, &room, &error) == TW_TOO_LARGE && !room);
    CHECK(strstr(error.message, "8160") && strstr(error.message, "tw_sender"));
    CHECK(tw_producer_loan(producer, sizeof n, GUARD, NULL, &error) == TW_USAGE);
    OK(tw_producer_loan(producer, sizeof n, GUARD, &room, &error));
    CHECK(tw_producer_loan(producer, sizeof n, GUARD, &room, &error) == TW_USAGE && !room);
    CHECK(tw_producer_send(producer, &n, sizeof n, GUARD, &error) == TW_USAGE);
    CHECK(tw_producer_commit(producer, sizeof n + 1, &error) == TW_USAGE);
    OK(tw_producer_commit(producer, sizeof n, &error));
    CHECK(tw_producer_send(producer, NULL, 1, GUARD, &error) == TW_USAGE && strstr(error.message, "NULL"));
    CHECK(tw_producer_send(NULL, &n, sizeof n, GUARD, &error) == TW_USAGE);
    CHECK(tw_producer_arm(producer, sizeof n, &armed, &error) == TW_OK && !armed);
    CHECK(tw_producer_arm(producer, sizeof n, NULL, &error) == TW_USAGE);
    CHECK(tw_producer_fd(producer) >= 0 && tw_producer_fd(NULL) == -1);
    CHECK(!tw_producer_sent(NULL) && !tw_producer_largest(NULL));
    tw_producer_close(producer);
    tw_producer_close(NULL);
    ended_well(child);
}

static void send_three_and_drain(tw_link *link, const void *script)
{
    tw_producer *producer = produce(link, script);
    for (size_t n = 0; n < 3; n++) {
        tw_status status = tw_producer_send(producer, &n, sizeof n, GUARD, &error);
        if (status == TW_OK)
            status = tw_producer_drain(producer, GUARD, &error);
        /* The consumer may close its end before it has received all messages. */
        if (status == TW_CLOSED)
            break;
        OK(status);
    }
    tw_producer_close(producer);
}

static void *hold_on(void *consumer)
{
    const void *message;
    size_t length;
    return tw_consumer_receive(consumer, GUARD, &message, &length, NULL) == TW_OK ? consumer : NULL;
}

static void wrong_calls_of_a_consumer(const char *folder)
{
    tw_channel_options options = small(TW_WAIT_BLOCK, 0);
    tw_link *link;
    const void *message;
    size_t length;
    int armed;
    pid_t child = other(folder, send_three_and_drain, &options, &link);
    tw_consumer *consumer = consume(link, &options);
    CHECK(tw_consumer_release(consumer, &error) == TW_USAGE && strstr(error.message, "release"));
    OK(tw_consumer_receive(consumer, GUARD, &message, &length, &error));
    CHECK(tw_consumer_receive(consumer, GUARD, &message, &length, &error) == TW_USAGE && !message);
    CHECK(tw_consumer_receive_into(consumer, &length, sizeof length, GUARD, &length, &error) == TW_USAGE);
    CHECK(tw_consumer_arm(consumer, &armed, &error) == TW_USAGE);
    OK(tw_consumer_release(consumer, &error));
    CHECK(tw_consumer_receive(NULL, GUARD, &message, &length, &error) == TW_USAGE);
    CHECK((length = 7) && tw_consumer_receive(consumer, GUARD, NULL, &length, &error) == TW_USAGE && !length);
    CHECK(tw_consumer_receive_into(consumer, NULL, 9, GUARD, &length, &error) == TW_USAGE);
    OK(tw_consumer_receive(consumer, GUARD, &message, &length, &error));
    /* Closing the consumer also releases its held messages. */
    tw_consumer_close(consumer);
    tw_consumer_close(NULL);
    CHECK(tw_consumer_fd(NULL) == -1);
    ended_well(child);
}

static void an_event_loop_polls_the_descriptor(const char *folder)
{
    tw_channel_options options = small(TW_WAIT_BLOCK, 0);
    tw_link *link;
    size_t got, length, came = 0;
    pid_t child = other(folder, send_three_and_drain, &options, &link);
    tw_consumer *consumer = consume(link, &options);
    for (int turns = 0; turns < 1000; turns++) {
        tw_status status = tw_consumer_receive_into(consumer, &got, sizeof got, TW_NOW, &length, &error);
        if (status == TW_CLOSED)
            break;
        if (status == TW_OK) {
            CHECK(got == came++);
            continue;
        }
        int armed;
        CHECK(status == TW_TIMEOUT);
        OK(tw_consumer_arm(consumer, &armed, &error));
        struct pollfd watched = { tw_consumer_fd(consumer), POLLIN, 0 };
        if (armed)
            CHECK(poll(&watched, 1, 120000) == 1);
    }
    CHECK(came == 3);
    tw_consumer_close(consumer);
    ended_well(child);
}

static void a_handle_is_for_one_thread_at_a_time(const char *folder)
{
    tw_channel_options options = small(TW_WAIT_BLOCK, 0);
    tw_link *link;
    pthread_t thread;
    void *answered;
    int seen = 0;
    char told;
    pid_t child = other(folder, send_three_and_stay, &options, &link);
    tw_consumer *consumer = consume(link, &options);
    size_t got, length;
    for (size_t n = 0; n < 3; n++)
        OK(tw_consumer_receive_into(consumer, &got, sizeof got, GUARD, &length, &error));
    CHECK(read(so_far[0], &told, 1) == 1);
    CHECK(pthread_create(&thread, NULL, hold_on, consumer) == 0);
    /* The thread should now be asleep in its call. If it is not, the loop checks again. */
    for (int tries = 0; tries < 1000 && !seen; tries++) {
        usleep(20000);
        CHECK(tw_consumer_release(consumer, &error) == TW_USAGE);
        seen = strstr(error.message, "another thread") != NULL;
    }
    CHECK(seen);
    kill_9(child);
    CHECK(pthread_join(thread, &answered) == 0 && !answered);
    tw_consumer_close(consumer);
}

static void a_forked_child_is_told_that_it_is_not_its_channel(const char *folder)
{
    tw_channel_options options = small(TW_WAIT_BLOCK, 0);
    tw_link *link;
    size_t n = 5;
    pid_t child = other(folder, answer, &options, &link);
    tw_producer *producer = produce(link, &options);
    pid_t forked = fork();
    if (!forked) {
        CHECK(tw_producer_send(producer, &n, sizeof n, GUARD, &error) == TW_NOT_PERMITTED);
        tw_producer_close(producer);
        exit(0);
    }
    ended_well(forked);
    OK(tw_producer_send(producer, &n, sizeof n, GUARD, &error));
    OK(tw_producer_drain(producer, GUARD, &error));
    tw_producer_close(producer);
    ended_well(child);
}

static void take_it_if_free(tw_link *link, const void *script)
{
    tw_consumer *consumer;
    tw_status status = tw_consumer_open(&link, script, GUARD, &consumer, &error);
    CHECK(status == TW_NOT_PERMITTED && !consumer && !link);
}

/* Two consumers connect to a listener. The second one gets an error, because a channel has one consumer. */
static void a_channel_has_one_consumer(const char *folder)
{
    tw_channel_options options = small(TW_WAIT_HYBRID, 0);
    char path[4096], told;
    tw_listener *listener;
    tw_producer *producer;
    pid_t children[2];
    snprintf(path, sizeof path, "%s/one", folder);
    OK(tw_listener_bind(path, TW_SAME_USER, &listener, &error));
    CHECK(tw_listener_fd(listener) >= 0 && tw_listener_fd(NULL) == -1);
    for (int n = 0; n < 2; n++) {
        tw_link *link;
        children[n] = fork();
        if (!children[n]) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            OK(tw_link_connect(path, TW_SAME_USER, GUARD, &link, &error));
            CHECK(write(so_far[1], "!", 1) == 1);
            (n == 0 ? answer : take_it_if_free)(link, &options);
            exit(0);
        }
        CHECK(read(so_far[0], &told, 1) == 1);
    }
    OK(tw_producer_accept(&listener, &options, GUARD, &producer, &error));
    CHECK(!listener && access(path, F_OK) != 0);
    ended_well(children[1]);
    OK(tw_producer_send(producer, path, sizeof(size_t), GUARD, &error));
    tw_producer_close(producer);
    ended_well(children[0]);
}

static void links_carry_descriptors_and_refuse_nonsense(void)
{
    tw_link *near, *far, *none = NULL;
    tw_producer *producer;
    tw_consumer *consumer;
    tw_listener *listener;
    char text[8];
    int ends[2], got[2];
    size_t length, count = 2;
    tw_peer peer;
    OK(tw_link_pair(&near, &far, &error));
    OK(tw_link_peer(near, &peer, &error));
    CHECK(peer.pid == (uint32_t)getpid() && peer.uid == geteuid() && peer.gid == getegid() && peer.is_alive == 1);
    CHECK(pipe(ends) == 0);
    OK(tw_link_send(near, "hello", 5, ends, 2, GUARD, &error));
    OK(tw_link_receive(far, text, sizeof text, &length, got, &count, GUARD, &error));
    CHECK(length == 5 && count == 2 && !memcmp(text, "hello", 5));
    CHECK(write(got[1], "through", 7) == 7 && read(ends[0], text, 7) == 7 && !memcmp(text, "through", 7));
    CHECK(fcntl(got[0], F_GETFD) == FD_CLOEXEC);
    for (int n = 0; n < 2; n++)
        close(got[n]);
    OK(tw_link_send(near, "x", 1, ends, 1, GUARD, &error));
    CHECK(tw_link_receive(far, text, sizeof text, &length, NULL, NULL, GUARD, &error) == TW_CORRUPT);
    CHECK(tw_link_receive(far, text, sizeof text, &length, NULL, NULL, TW_NOW, &error) == TW_TIMEOUT);
    CHECK(tw_link_receive(far, text, sizeof text, &length, NULL, NULL, 1000, &error) == TW_TIMEOUT);
    CHECK(tw_link_send(near, "", 0, NULL, 0, GUARD, &error) == TW_USAGE);
    CHECK(tw_link_send(near, "x", 1, NULL, 1, GUARD, &error) == TW_USAGE);
    CHECK(tw_link_send(near, "x", 1, ends, 9, GUARD, &error) == TW_USAGE);
    for (int n = 0; n < 2; n++)
        close(ends[n]);
    CHECK(tw_link_fd(near) >= 0 && tw_link_fd(NULL) == -1);
    tw_link_close(far);
    OK(tw_link_peer(near, &peer, &error));
    CHECK(!peer.is_alive && tw_link_peer(near, NULL, &error) == TW_USAGE && tw_link_peer(NULL, &peer, &error) == TW_USAGE);
    CHECK(tw_link_receive(near, text, sizeof text, &length, NULL, NULL, GUARD, &error) == TW_CLOSED);
    CHECK(tw_producer_open(&near, NULL, GUARD, &producer, &error) == TW_CLOSED && !near && !producer);
    producer = (tw_producer *)text;
    CHECK(tw_producer_open(&none, NULL, GUARD, &producer, &error) == TW_USAGE && strstr(error.message, "link"));
    CHECK(!producer);
    consumer = (tw_consumer *)text;
    CHECK(tw_consumer_open(NULL, NULL, GUARD, &consumer, &error) == TW_USAGE && !consumer);
    CHECK(tw_link_connect("no such name", TW_SAME_USER, GUARD, &near, &error) == TW_NOT_PERMITTED && !near);
    CHECK(tw_link_connect(NULL, TW_SAME_USER, GUARD, &near, &error) == TW_USAGE);
    CHECK(tw_link_connect("/no/such/socket", TW_SAME_USER, GUARD, &near, &error) == TW_SYSTEM);
    CHECK(error.os_error == ENOENT && strstr(error.message, "cannot connect to '/no/such/socket'") && strstr(error.message, "(connect: ENOENT)"));
    CHECK(tw_listener_bind("/no/such/socket", -3, &listener, &error) == TW_USAGE && !listener);
    CHECK(tw_link_of_fd(0, TW_ANYONE, &near, &error) == TW_SYSTEM && !near);
    CHECK(tw_link_of_fd(-1, TW_ANYONE, &near, &error) == TW_USAGE);
    CHECK(tw_link_of_fd(9999, TW_ANYONE, &near, &error) == TW_USAGE && error.os_error == EBADF);
}

static void options_are_checked(void)
{
    for (int n = 0; n < 4; n++) {
        tw_channel_options options = TW_CHANNEL_OPTIONS_INIT;
        tw_link *near, *far;
        tw_producer *producer;
        OK(tw_link_pair(&near, &far, &error));
        if (n == 0)
            options.size = 8;
        if (n == 1)
            options.wait = 3;
        if (n == 2)
            options.flags = 64;
        if (n == 3)
            options.capacity = UINT64_C(1) << 31;
        tw_status status = tw_producer_open(&near, &options, GUARD, &producer, &error);
        CHECK(status == (n == 3 ? TW_TOO_LARGE : TW_USAGE) && !producer && !near);
        tw_link_close(far);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 2 && pipe(so_far) == 0);
    every_size_by_every_wait(argv[1]);
    for (by_pair = 0; by_pair < 2; by_pair++) {
        a_killed_producer_is_told_after_its_messages(argv[1]);
        a_killed_consumer_is_told_with_what_it_released(argv[1]);
    }
    who_made_the_pair_need_not_live();
    by_pair = 0;
    wrong_calls_of_a_producer(argv[1]);
    wrong_calls_of_a_consumer(argv[1]);
    an_event_loop_polls_the_descriptor(argv[1]);
    a_handle_is_for_one_thread_at_a_time(argv[1]);
    a_forked_child_is_told_that_it_is_not_its_channel(argv[1]);
    a_channel_has_one_consumer(argv[1]);
    links_carry_descriptors_and_refuse_nonsense();
    options_are_checked();
    return 0;
}
