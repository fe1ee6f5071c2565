// Compares every function that the preload object exports with simple loops. Compiled without
// built-ins, so that every call is a real one. "overflow N" calls the Nth checked function, which
// must abort.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8192, ROOM = MOST + 512 };
static unsigned char source[ROOM], sink[ROOM], expected[ROOM];

void *__memcpy_chk(void *, const void *, size_t, size_t);
void *__memmove_chk(void *, const void *, size_t, size_t);
void *__mempcpy_chk(void *, const void *, size_t, size_t);
void *__memset_chk(void *, int, size_t, size_t);
void *mempcpy(void *, const void *, size_t);

static void naive(unsigned char *to, const unsigned char *from, size_t n) {
    if (to <= from)
        for (size_t i = 0; i < n; i++) to[i] = from[i];
    else
        while (n--) to[n] = from[n];
}

static void check(const char *what, size_t n, size_t to, size_t from) {
    for (size_t i = 0; i < ROOM; i++)
        if (sink[i] != expected[i]) {
            printf("%s of %zu bytes from +%zu to +%zu: byte %zu\n", what, n, from, to, i);
            exit(1);
        }
}

static void reset(void) {
    for (size_t i = 0; i < ROOM; i++) {
        source[i] = (unsigned char)(i * 131 + (i >> 8) * 7 + 1);
        sink[i] = expected[i] = (unsigned char)(255 - i);
    }
}

static void returned(const char *what, void *got, void *wanted) {
    if (got != wanted) {
        printf("%s returned %p for %p\n", what, got, wanted);
        exit(1);
    }
}

static void copies(size_t n, size_t to, size_t from) {
    naive(expected + to, source + from, n);
    returned("memcpy", memcpy(sink + to, source + from, n), sink + to);
    check("memcpy", n, to, from);
    naive(expected + to, source + from + 1, n);
    returned("mempcpy", mempcpy(sink + to, source + from + 1, n), sink + to + n);
    check("mempcpy", n, to, from + 1);
    naive(expected + to, source + from, n);
    returned("chk", __memcpy_chk(sink + to, source + from, n, n), sink + to);
    returned("chk", __mempcpy_chk(sink + to, source + from, n, n + 1), sink + to + n);
    check("checked copy", n, to, from);
}

static void moves(size_t n, size_t to, size_t from) {
    naive(expected + to, expected + from, n);
    returned("memmove", memmove(sink + to, sink + from, n), sink + to);
    check("memmove", n, to, from);
    naive(expected + from, expected + to, n);
    returned("chk", __memmove_chk(sink + from, sink + to, n, n), sink + from);
    check("checked memmove", n, from, to);
}

static void sets(size_t n, size_t to) {
    for (size_t i = 0; i < n; i++) expected[to + i] = (unsigned char)n;
    // memset uses only the low byte.
    returned("memset", memset(sink + to, (int)(n | 0x7f00), n), sink + to);
    check("memset", n, to, 0);
    for (size_t i = 0; i < n; i++) expected[to + i] = 0x5a;
    returned("chk", __memset_chk(sink + to, 0x5a, n, (size_t)-1), sink + to);
    check("checked memset", n, to, 0);
}

static void overflow(int which) {
    switch (which) {
    case 0: __memcpy_chk(sink, source, 9, 8); break;
    case 1: __mempcpy_chk(sink, source, 9, 8); break;
    case 2: __memmove_chk(sink, source, 9, 8); break;
    case 3: __memset_chk(sink, 1, 9, 8); break;
    }
    puts("still here");
    exit(1);
}

int main(int argc, char **argv) {
    static const size_t places[][2] = {{0, 0}, {1, 0}, {0, 63}, {33, 7}, {64, 129}};
    reset();
    if (argc == 3) overflow(atoi(argv[2]));
    // The comparison takes most of the time. So all sizes below 700 are tested, then every 61st.
    for (size_t n = 0; n <= MOST; n = n < 700 ? n + 1 : n + 61) {
        const size_t *place = places[n % 5];
        copies(n, place[0], place[1]);
        moves(n, place[0] + 1 + n % 67, place[1]);
        moves(n, place[1], place[0]);
        sets(n, place[0]);
        if (n % 97 == 0) reset();
    }
    for (size_t n = 0; n <= MOST; n++) {
        size_t to = n % 64, from = n * 7 % 64;
        memcpy(sink + to, source + from, n);
        memmove(sink + from, sink + to, n);
        if (memcmp(sink + from, source + from, n) != 0) {
            printf("copied and moved %zu bytes from +%zu by +%zu\n", n, from, to);
            return 1;
        }
    }
    puts("right");
    return 0;
}
