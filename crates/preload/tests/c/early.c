// A library whose resolver copies: the loader calls it before the object preloaded in front of this
// one has been relocated, let alone started.
#include <string.h>

static unsigned char seen[64];

static int no(void) { return 0; }
static int yes(void) { return 1; }

static int (*resolve(void))(void) {
    unsigned char from[64];
    memset(from, 3, sizeof from);
    memcpy(seen, from, sizeof seen);
    memmove(seen + 1, seen, 63);
    return seen[63] == 3 && seen[0] == 3 ? yes : no;
}

// Static: the loader resolves it after the calls of this library are bound.
static int copied_early(void) __attribute__((ifunc("resolve")));
int call_copied_early(void) { return copied_early(); }
