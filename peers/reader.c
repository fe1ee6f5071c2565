/* Reads standard input with read(2). Exits with 1 unless the number of bytes equals the argument. */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static char buffer[1 << 18];
    uint64_t total = 0;
    ssize_t got;
    while ((got = read(0, buffer, sizeof buffer)) > 0)
        total += (uint64_t)got;
    return argc < 2 || total != strtoull(argv[1], NULL, 10);
}
