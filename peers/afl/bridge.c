/* A usual method of fuzzing Java with AFL++: a fork-server target in C sends each test case over a TCP connection to a JVM,
 * and receives its whole coverage map. Here the connection and the JVM live as long as the fuzzer, which is the fastest
 * variant.
 *   bridge PORT                                          (built by `run`) */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONTROL 198
#define STATUS 199
#define MAP 65536

static int all(int fd, void *bytes, size_t length, int in)
{
    for (char *at = bytes; length > 0;) {
        ssize_t got = in ? read(fd, at, length) : write(fd, at, length);
        if (got <= 0)
            return -1;
        at += got;
        length -= (size_t)got;
    }
    return 0;
}

int main(int count, char **words)
{
    const char *id = getenv("__AFL_SHM_ID"), *cases = getenv("__AFL_SHM_FUZZ_ID");
    if (count != 2 || !id || !cases) {
        fprintf(stderr, "usage: bridge PORT, under afl-fuzz\n");
        return 2;
    }
    uint8_t *map = shmat(atoi(id), NULL, 0), *input = shmat(atoi(cases), NULL, 0);
    int on = 1, jvm = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[1])),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    setsockopt(jvm, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (map == (void *)-1 || input == (void *)-1 || connect(jvm, (void *)&there, sizeof there)) {
        perror("bridge");
        return 2;
    }
    uint32_t word = 0x80000001u | 0x40000000u | (MAP - 1) << 1 | 0x01000000u;
    if (all(STATUS, &word, 4, 0) || all(CONTROL, &word, 4, 1))
        return 2;
    while (all(CONTROL, &word, 4, 1) == 0) {
        uint32_t pid = (uint32_t)getpid(), length = *(uint32_t *)input;
        uint8_t status;
        if (all(STATUS, &pid, 4, 0) || all(jvm, input, 4 + length, 0) || all(jvm, &status, 1, 1)
            || all(jvm, map, MAP, 1))
            return 2;
        word = status;
        if (all(STATUS, &word, 4, 0))
            return 0;
    }
    return 0;
}
