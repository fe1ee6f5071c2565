/* Processes whose main thread has left: each must end with its last thread, and by the signals that it does not block. */
#include <pthread.h>
#include <sys/wait.h>

#include "process.h"

static tw_error error;

/* The ends of a channel of one process, one for each thread. Those left open are still reachable here. */
static tw_link *links[2];
static tw_producer *producer;
static tw_consumer *consumer;
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
    /* An armed end has another helper thread. */
    OK(tw_consumer_arm(consumer, &is_armed, &error));
    if (!stays_open)
        tw_consumer_close(consumer);
    while (waits_for_a_signal)
        pause();
    return unused;
}

/* A process with a channel, whose main thread leaves at once. */
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

/* The helper threads must not take a signal that every thread of the program blocks. */
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

int main(void)
{
    /* A guard: the children end with this process. They cannot guard themselves, as SIGALRM may not reach them. */
    alarm(300);
    the_last_thread_ends_the_process();
    a_signal_ends_what_the_main_thread_left();
    a_signal_that_is_waited_for_ends_nothing();
    return 0;
}
