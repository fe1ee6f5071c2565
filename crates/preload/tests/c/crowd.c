// Copies in threads, in a forked child with its own threads, and again in the parent. This file
// makes exactly CROWD_CALLS calls of memcpy and as many of memset.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, CALLS = 10000, SIZE = 1500 };

static void *work(void *argument) {
    unsigned char from[SIZE], to[SIZE];
    for (int i = 0; i < CALLS; i++) {
        memset(from, i + *(int *)argument, SIZE);
        memcpy(to, from, SIZE);
        if (to[0] != to[SIZE - 1] || to[SIZE / 2] != (unsigned char)(i + *(int *)argument))
            return argument;
    }
    return NULL;
}

static int crowd(void) {
    pthread_t threads[THREADS];
    int numbers[THREADS], wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, work, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong |= result != NULL;
    }
    return wrong;
}

int main(void) {
    int wrong = crowd(), status = 1;
    pid_t child = fork();
    if (child == 0) _exit(crowd());
    waitpid(child, &status, 0);
    wrong |= status != 0;
    puts(wrong ? "wrong" : "right");
    return wrong;
}
