/* Tests how a process waits or ends: without its main thread, by a signal, or in an exit hook. Also tests a signal handler that runs
 * during a wait, and a fork in a thread. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "process.h"

static tw_error error;

/* The two ends of a channel within one process, one for each thread. These variables also keep ends that stay open reachable for the
 * leak check. */
static tw_link *links[2];
static tw_producer *producer;
static tw_consumer *consumer;
/* Volatile, because no code reads it, but the leak check must find the pointer. */
static tw_consumer *volatile inherited;
static int stays_open, waits_for_a_signal;

static void *send_one(void *unused)
{
    OK(tw_producer_open(&links[0], NULL, GUARD, &producer, &error));
    OK(tw_producer_send(producer, "once", 4, GUARD, &error));
    OK(tw_producer_drain(producer, GUARD, &error));
    if (!stays_open)
        tw_producer_close(producer);
    return unused;
}

static void *receive_one(void *unused)
{
    const void *message;
    size_t length;
    int is_armed;
    OK(tw_consumer_open(&links[1], NULL, GUARD, &consumer, &error));
    OK(tw_consumer_receive(consumer, GUARD, &message, &length, &error));
    OK(tw_consumer_release(consumer, &error));
    /* Arming an end starts one more helper thread. */
    OK(tw_consumer_arm(consumer, &is_armed, &error));
    if (!stays_open)
        tw_consumer_close(consumer);
    while (waits_for_a_signal)
        pause();
    return unused;
}

/* Starts a process with a channel. Its main thread ends at once. */
static pid_t leave(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        pthread_t threads[2];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        OK(tw_link_pair(&links[0], &links[1], &error));
        CHECK(pthread_create(&threads[0], NULL, send_one, NULL) == 0);
        CHECK(pthread_create(&threads[1], NULL, receive_one, NULL) == 0);
        pthread_exit(NULL);
    }
    return child;
}

static void the_last_thread_ends_the_process(void)
{
    for (stays_open = 0; stays_open < 2; stays_open++)
        ended_well(leave());
}

static void a_signal_ends_what_the_main_thread_left(void)
{
    const int signals[] = { SIGTERM, SIGINT };
    waits_for_a_signal = 1;
    for (size_t n = 0; n < 2; n++) {
        int status;
        pid_t child = leave();
        CHECK(kill(child, signals[n]) == 0);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signals[n]);
    }
    waits_for_a_signal = 0;
}

static void *wait_for_term(void *set)
{
    int signal;
    CHECK(sigwait(set, &signal) == 0);
    return signal == SIGTERM ? set : NULL;
}

/* If every thread of the program blocks a signal, the helper threads must not receive it either. */
static void a_signal_that_is_waited_for_ends_nothing(void)
{
    pthread_t waiting;
    void *got;
    sigset_t term, before;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    CHECK(pthread_sigmask(SIG_BLOCK, &term, &before) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        pthread_t threads[2];
        stays_open = 1;
        OK(tw_link_pair(&links[0], &links[1], &error));
        CHECK(pthread_create(&threads[0], NULL, send_one, NULL) == 0);
        CHECK(pthread_create(&threads[1], NULL, receive_one, NULL) == 0);
        for (int n = 0; n < 2; n++)
            CHECK(pthread_join(threads[n], NULL) == 0);
        CHECK(pthread_create(&waiting, NULL, wait_for_term, &term) == 0);
        CHECK(kill(getpid(), SIGTERM) == 0);
        CHECK(pthread_join(waiting, &got) == 0 && got);
        _exit(0);
    }
    ended_well(child);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

static atomic_int handled, refused;

/* A signal handler that runs during the waiting call. The library must reject its use of the consumer. */
static void receive_again(int unused)
{
    const void *message;
    size_t length;
    tw_error inner;
    (void)unused;
    handled++;
    refused += tw_consumer_receive(consumer, TW_NOW, &message, &length, &inner) == TW_USAGE;
}

static void *open_producer(void *unused)
{
    tw_error own;
    CHECK(tw_producer_open(&links[0], NULL, GUARD, &producer, &own) == TW_OK);
    return unused;
}

/* Opening an end waits for the other end, so each end is opened by a thread of its own. */
static void open_both(void)
{
    pthread_t opening;
    OK(tw_link_pair(&links[0], &links[1], &error));
    CHECK(pthread_create(&opening, NULL, open_producer, NULL) == 0);
    OK(tw_consumer_open(&links[1], NULL, GUARD, &consumer, &error));
    CHECK(pthread_join(opening, NULL) == 0);
}

static void close_both(void)
{
    tw_producer_close(producer);
    tw_consumer_close(consumer);
}

static void *interrupt_and_send(void *waiting)
{
    const struct timespec moment = { 0, 20 * 1000 * 1000 };
    tw_error own;
    /* On a busy machine, the first signals may arrive before the other thread receives. */
    for (int n = 0; n < 5 || !refused; n++) {
        nanosleep(&moment, NULL);
        CHECK(pthread_kill(*(pthread_t *)waiting, SIGUSR1) == 0);
    }
    nanosleep(&moment, NULL);
    CHECK(tw_producer_send(producer, "after", 5, GUARD, &own) == TW_OK);
    return NULL;
}

static void a_handler_interrupts_no_wait_and_may_not_use_its_end(void)
{
    pthread_t self = pthread_self(), sending;
    struct sigaction action, before;
    const void *message;
    size_t length;
    open_both();
    memset(&action, 0, sizeof action);
    action.sa_handler = receive_again; /* without SA_RESTART */
    CHECK(sigaction(SIGUSR1, &action, &before) == 0);
    CHECK(pthread_create(&sending, NULL, interrupt_and_send, &self) == 0);
    OK(tw_consumer_receive(consumer, GUARD, &message, &length, &error));
    CHECK(length == 5 && memcmp(message, "after", 5) == 0);
    CHECK(pthread_join(sending, NULL) == 0);
    CHECK(handled > 0 && refused > 0);
    OK(tw_consumer_release(consumer, &error));
    CHECK(sigaction(SIGUSR1, &before, NULL) == 0);
    close_both();
}

static void send_last(void)
{
    OK(tw_producer_send(producer, "last", 4, GUARD, &error));
    tw_producer_close(producer);
}

static void say_goodbye_at_exit(tw_link *link, const void *unused)
{
    (void)unused;
    OK(tw_producer_open(&link, NULL, GUARD, &producer, &error));
    CHECK(atexit(send_last) == 0);
    exit(0);
}

static void an_exit_hook_sends_the_last_message(void)
{
    tw_link *link;
    const void *message;
    size_t length;
    pid_t child = other_by_pair(say_goodbye_at_exit, NULL, &link);
    OK(tw_consumer_open(&link, NULL, GUARD, &consumer, &error));
    OK(tw_consumer_receive(consumer, GUARD, &message, &length, &error));
    CHECK(length == 4 && memcmp(message, "last", 4) == 0);
    OK(tw_consumer_release(consumer, &error));
    CHECK(tw_consumer_receive(consumer, GUARD, &message, &length, &error) == TW_CLOSED && error.moved == 1);
    tw_consumer_close(consumer);
    ended_well(child);
}

static void *wait_for_one(void *unused)
{
    const void *message;
    size_t length;
    tw_error own;
    CHECK(tw_consumer_receive(consumer, GUARD, &message, &length, &own) == TW_OK);
    CHECK(length == 6 && memcmp(message, "parent", 6) == 0);
    CHECK(tw_consumer_release(consumer, &own) == TW_OK);
    return unused;
}

static void *fork_and_send(void *unused)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        int is_armed;
        CHECK(tw_producer_send(producer, "child", 5, TW_NOW, &error) == TW_NOT_PERMITTED);
        CHECK(tw_producer_arm(producer, 1, &is_armed, &error) == TW_NOT_PERMITTED);
        tw_producer_close(producer);
        /* The consumer waits in another thread, which the child does not have. The child can therefore not close it, and only keeps the
         * pointer. */
        inherited = consumer;
        /* The child can use a channel that it creates itself. */
        open_both();
        OK(tw_producer_send(producer, "own", 3, GUARD, &error));
        close_both();
        _exit(0);
    }
    ended_well(child);
    OK(tw_producer_send(producer, "parent", 6, GUARD, &error));
    return unused;
}

static void a_fork_in_a_thread_disturbs_no_wait_of_another(void)
{
    pthread_t waiting, forking;
    open_both();
    CHECK(pthread_create(&waiting, NULL, wait_for_one, NULL) == 0);
    CHECK(pthread_create(&forking, NULL, fork_and_send, NULL) == 0);
    CHECK(pthread_join(forking, NULL) == 0);
    CHECK(pthread_join(waiting, NULL) == 0);
    close_both();
}

int main(void)
{
    /* Limits the duration of the test: the children end with this process. They cannot use alarm(2) themselves, because SIGALRM may not
     * reach them. */
    alarm(300);
    the_last_thread_ends_the_process();
    a_signal_ends_what_the_main_thread_left();
    a_signal_that_is_waited_for_ends_nothing();
    a_handler_interrupts_no_wait_and_may_not_use_its_end();
    an_exit_hook_sends_the_last_message();
    a_fork_in_a_thread_disturbs_no_wait_of_another();
    return 0;
}
