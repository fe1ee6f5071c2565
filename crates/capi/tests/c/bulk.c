/* Tests bulk transfers between two processes, with each arm that works here: sizes, loans, new memory, deaths of the peer.
 *   bulk FOLDER [LARGEST]    prints one line for each skipped arm: its name, a tab, the reason */
#include "process.h"

#include <sys/syscall.h>

enum { SIZES = 7 };
static size_t large = (2 << 20) + 5;
static size_t sizes[SIZES] = { 0, 1, 4095, 4097, 65537, 70000 };
static tw_error error;

struct script {
    const char *arm;
    int loans;
};

static tw_sender *send_by(tw_link *link, const struct script *script)
{
    tw_bulk_options options = TW_BULK_OPTIONS_INIT;
    tw_sender *sender;
    options.arm = script->arm;
    /* Arms that leave shared pages are usable only if the caller does not need TW_PRIVATE. */
    options.needs = 0;
    options.flags = script->loans ? TW_WILL_LOAN : 0;
    OK(tw_sender_open(&link, &options, &sender, &error));
    CHECK(!link && !strcmp(tw_sender_arm(sender), script->arm));
    return sender;
}

static tw_receiver *receive(tw_link *link)
{
    tw_receiver *receiver;
    OK(tw_receiver_open(&link, NULL, &receiver, &error));
    CHECK(!link);
    return receiver;
}

static void send_every_size(tw_link *link, const void *told)
{
    const struct script *script = told;
    tw_sender *sender = send_by(link, script);
    for (size_t n = 0; n < SIZES; n++) {
        if (script->loans) {
            tw_buffer *loan;
            OK(tw_sender_loan(sender, sizes[n], &loan, &error));
            CHECK(tw_buffer_length(loan) == sizes[n]);
            fill(tw_buffer_data(loan), sizes[n], n);
            OK(tw_sender_send_loan(sender, &loan, &error));
            if (loan)
                memset(tw_buffer_data(loan), 0xee, tw_buffer_length(loan));
            tw_buffer_free(loan);
            continue;
        }
        unsigned char *bytes = malloc(sizes[n] + 1);
        fill(bytes, sizes[n], n);
        OK(tw_sender_send(sender, bytes, sizes[n], &error));
        memset(bytes, 0xee, sizes[n] + 1);
        free(bytes);
    }
    tw_sender_close(sender);
}

static void receive_one(tw_receiver *receiver, size_t n, int is_new)
{
    uint64_t told;
    size_t length;
    OK(tw_receiver_next_length(receiver, &told, &error));
    CHECK(told == sizes[n]);
    if (is_new) {
        tw_buffer *buffer;
        OK(tw_receiver_receive_new(receiver, &buffer, &error));
        CHECK(tw_buffer_length(buffer) == sizes[n] && holds(tw_buffer_data(buffer), sizes[n], n));
        /* The memory belongs to this process, so writing to it is allowed. */
        memset(tw_buffer_data(buffer), 0xdd, sizes[n]);
        tw_buffer_free(buffer);
        return;
    }
    /* Use calloc and not malloc: valgrind does not see the writes of another process, and would report uninitialised bytes. */
    unsigned char *bytes = calloc(sizes[n] + 8, 1);
    if (sizes[n] > 0) {
        CHECK(tw_receiver_receive_into(receiver, bytes, sizes[n] - 1, &length, &error) == TW_TOO_LARGE && !length);
        CHECK(strstr(error.message, "tw_receiver_receive_new"));
    }
    OK(tw_receiver_receive_into(receiver, bytes, sizes[n] + 8, &length, &error));
    CHECK(length == sizes[n] && holds(bytes, length, n));
    free(bytes);
}

static void every_size(const char *folder, const char *arm, int loans)
{
    struct script script = { arm, loans };
    tw_link *link;
    uint64_t length;
    pid_t child = other(folder, send_every_size, &script, &link);
    tw_receiver *receiver = receive(link);
    CHECK(!strcmp(tw_receiver_arm(receiver), arm));
    for (size_t n = 0; n < SIZES; n++)
        receive_one(receiver, n, loans);
    CHECK(tw_receiver_next_length(receiver, &length, &error) == TW_CLOSED && error.moved == SIZES);
    tw_receiver_close(receiver);
    ended_well(child);
}

static void send_for_ever(tw_link *link, const void *script)
{
    tw_sender *sender = send_by(link, script);
    unsigned char *bytes = malloc(large);
    fill(bytes, large, 3);
    for (;;)
        OK(tw_sender_send(sender, bytes, large, &error));
}

static void a_killed_sender_is_told_with_a_true_part(const char *folder, const char *arm)
{
    struct script script = { arm, 0 };
    tw_link *link;
    tw_status status = TW_OK;
    size_t length, came = 0;
    pid_t child = other(folder, send_for_ever, &script, &link);
    tw_receiver *receiver = receive(link);
    unsigned char *bytes = calloc(large, 1);
    for (int n = 0; n < 1000 && status == TW_OK; n++) {
        if (n == 2)
            kill_9(child);
        status = tw_receiver_receive_into(receiver, bytes, large, &length, &error);
        if (status == TW_OK)
            came++;
        CHECK(status != TW_OK || (length == large && holds(bytes, large, 3)));
    }
    CHECK(status == TW_PEER_DIED && came >= 2 && error.moved <= large && holds(bytes, error.moved, 3));
    CHECK(tw_receiver_receive_into(receiver, bytes, large, &length, &error) != TW_OK);
    free(bytes);
    tw_receiver_close(receiver);
}

static void receive_two_and_stay(tw_link *link, const void *script)
{
    tw_receiver *receiver = receive(link);
    unsigned char *bytes = calloc(large, 1);
    size_t length;
    for (int n = 0; n < 2; n++)
        OK(tw_receiver_receive_into(receiver, bytes, large, &length, &error));
    CHECK(!strcmp(tw_receiver_arm(receiver), ((const struct script *)script)->arm));
    for (;;)
        pause();
}

static void a_killed_receiver_is_told(const char *folder, const char *arm, int blocks_sigpipe)
{
    struct script script = { arm, 0 };
    tw_link *link;
    sigset_t sigpipe, before, pending;
    pid_t child = other(folder, receive_two_and_stay, &script, &link);
    tw_sender *sender = send_by(link, &script);
    unsigned char *bytes = malloc(large);
    fill(bytes, large, 3);
    for (int n = 0; n < 2; n++)
        OK(tw_sender_send(sender, bytes, large, &error));
    kill_9(child);
    /* This program does not ignore SIGPIPE. If the library raised the signal, it would kill the program, or stay pending
     * while the program blocks it. */
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    CHECK(!sigprocmask(blocks_sigpipe ? SIG_BLOCK : SIG_UNBLOCK, &sigpipe, &before));
    CHECK(tw_sender_send(sender, bytes, large, &error) == TW_PEER_DIED && strstr(error.message, "died"));
    CHECK(tw_sender_send(sender, bytes, large, &error) != TW_OK);
    CHECK(!sigpending(&pending) && !sigismember(&pending, SIGPIPE));
    CHECK(!sigprocmask(SIG_SETMASK, &before, &pending) && sigismember(&pending, SIGPIPE) == blocks_sigpipe);
    free(bytes);
    tw_sender_close(sender);
}

static void count_down(tw_link *link, const void *script)
{
    tw_receiver *receiver = receive(link);
    unsigned char bytes[64];
    size_t length;
    tw_status status;
    while ((status = tw_receiver_receive_into(receiver, bytes, sizeof bytes, &length, &error)) == TW_OK)
        CHECK(length == 5 && !memcmp(bytes, "hello", 5));
    CHECK(status == TW_CLOSED && error.moved == 2);
    tw_receiver_close(receiver);
    (void)script;
}

/* Tests the library's choice of an arm, the reasons that it reports, and invalid calls. */
static void choices_are_told_and_nonsense_is_refused(const char *folder)
{
    tw_link *link;
    tw_sender *sender;
    tw_buffer *buffer, *none = NULL;
    char *json;
    pid_t child = other(folder, count_down, NULL, &link);
    /* A program that was built before the field `profile` was added passes a shorter struct. */
    tw_bulk_options usual = TW_BULK_OPTIONS_INIT, *old = malloc(usual.size = offsetof(tw_bulk_options, profile));
    memcpy(old, &usual, usual.size);
    OK(tw_sender_open(&link, old, &sender, &error));
    free(old);
    OK(tw_sender_explain_json(sender, &json, &error));
    CHECK(json[0] == '{' && strstr(json, tw_sender_arm(sender)) && strstr(json, "\"skipped\""));
    tw_string_free(json);
    CHECK(tw_sender_explain_json(NULL, &json, &error) == TW_USAGE && !json);
    CHECK(tw_sender_explain_json(sender, NULL, &error) == TW_USAGE);
    OK(tw_buffer_new(5, &buffer, &error));
    memcpy(tw_buffer_data(buffer), "hello", 5);
    CHECK(tw_sender_send_loan(sender, &buffer, &error) == TW_USAGE && buffer && strstr(error.message, "loan"));
    CHECK(tw_sender_send_loan(sender, &none, &error) == TW_USAGE);
    CHECK(tw_sender_send_loan(NULL, &buffer, &error) == TW_USAGE && buffer);
    OK(tw_sender_send(sender, tw_buffer_data(buffer), tw_buffer_length(buffer), &error));
    CHECK(tw_sender_send(sender, NULL, 5, &error) == TW_USAGE);
    CHECK(tw_sender_send(NULL, "x", 1, &error) == TW_USAGE);
    CHECK(tw_sender_send(sender, "x", SIZE_MAX, &error) == TW_USAGE);
    CHECK(tw_sender_loan(sender, 5, NULL, &error) == TW_USAGE);
    CHECK(!tw_sender_arm(NULL) && !tw_receiver_arm(NULL) && !tw_buffer_data(NULL) && !tw_buffer_length(NULL));
    tw_buffer *loan;
    OK(tw_sender_loan(sender, 5, &loan, &error));
    pid_t forked = fork();
    if (!forked) {
        CHECK(tw_sender_send(sender, "child", 5, &error) == TW_NOT_PERMITTED && strstr(error.message, "fork"));
        CHECK(tw_sender_send_loan(sender, &loan, &error) == TW_NOT_PERMITTED && !loan);
        tw_sender_close(sender);
        /* exec discards the child's memory. Without it, valgrind would report the child's handles as leaked. */
        execlp("true", "true", (char *)NULL);
        exit(1);
    }
    ended_well(forked);
    OK(tw_sender_send(sender, tw_buffer_data(buffer), tw_buffer_length(buffer), &error));
    tw_buffer_free(buffer);
    tw_buffer_free(loan);
    tw_buffer_free(NULL);
    tw_sender_close(sender);
    tw_sender_close(NULL);
    tw_receiver_close(NULL);
    ended_well(child);
    for (int n = 0; n < 6; n++) {
        tw_bulk_options options = TW_BULK_OPTIONS_INIT;
        tw_link *near, *far;
        options.arm = tw_arm_name(0);
        if (n == 0)
            options.arm = "carrier-pigeon";
        if (n == 1)
            options.knobs = "feathers=2";
        if (n == 2)
            options.arm = NULL, options.knobs = "slot=1";
        if (n == 3)
            options.destination = 9;
        if (n == 4)
            options.needs = 64;
        if (n == 5)
            options.size = 16;
        OK(tw_link_pair(&near, &far, &error));
        CHECK(tw_sender_open(&near, &options, &sender, &error) == TW_USAGE && !sender && !near);
        tw_link_close(far);
    }
    CHECK(!tw_arm_name(tw_arm_count()) && !tw_arm_summary(tw_arm_count()));
    CHECK(tw_arm_probe(tw_arm_count(), &error) == TW_USAGE);
}

/* Returns JSON that describes the library's choice of an arm for this peer. */
static char *explained(const char *folder, int pair)
{
    tw_bulk_options options = TW_BULK_OPTIONS_INIT;
    tw_link *link;
    tw_sender *sender;
    char *json;
    by_pair = pair;
    pid_t child = other(folder, count_down, NULL, &link);
    options.needs = 0;
    OK(tw_sender_open(&link, &options, &sender, &error));
    OK(tw_sender_explain_json(sender, &json, &error));
    for (int n = 0; n < 2; n++)
        OK(tw_sender_send(sender, "hello", 5, &error));
    tw_sender_close(sender);
    ended_well(child);
    by_pair = 0;
    return json;
}

/* For a pair that was created before fork(2), SO_PEERCRED names the creating process at both ends. */
static void a_pair_made_before_fork_offers_what_a_listener_does(const char *folder)
{
    char *listener = explained(folder, 0), *pair = explained(folder, 1);
    if (strcmp(listener, pair))
        fprintf(stderr, "listener: %s\npair: %s\n", listener, pair);
    CHECK(!strcmp(listener, pair));
    tw_string_free(listener);
    tw_string_free(pair);
}

int main(int argc, char **argv)
{
    size_t worked = 0;
    /* A pair needs pidfd_open(2) to identify its peer, and valgrind 3.19 does not support that call. */
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int ways = self < 0 ? 1 : 2;
    CHECK(argc == 2 || argc == 3);
    if (self < 0)
        printf("pairs\tno pidfd_open: %s\n", strerror(errno));
    else
        close(self);
    if (argc == 3)
        large = strtoull(argv[2], NULL, 10);
    sizes[SIZES - 1] = large;
    for (size_t n = 0; n < tw_arm_count(); n++) {
        const char *arm = tw_arm_name(n);
        CHECK(*tw_arm_summary(n));
        tw_status status = tw_arm_probe(n, &error);
        if (status != TW_OK) {
            CHECK(status == TW_UNSUPPORTED && *error.message);
            printf("%s\t%s\n", arm, error.message);
            fflush(stdout);
            continue;
        }
        worked++;
        for (by_pair = 0; by_pair < ways; by_pair++) {
            every_size(argv[1], arm, by_pair);
            every_size(argv[1], arm, !by_pair);
            a_killed_sender_is_told_with_a_true_part(argv[1], arm);
            a_killed_receiver_is_told(argv[1], arm, by_pair);
        }
        by_pair = 0;
    }
    CHECK(worked >= 2);
    choices_are_told_and_nonsense_is_refused(argv[1]);
    if (ways == 2)
        a_pair_made_before_fork_offers_what_a_listener_does(argv[1]);
    return 0;
}
