// A library with an IFUNC resolver that copies. The loader calls the resolver before it relocates
// or starts the preloaded object.
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

// Static, so that the loader calls the resolver after it has bound the calls of this library.
static int copied_early(void) __attribute__((ifunc("resolve")));
int call_copied_early(void) { return copied_early(); }
