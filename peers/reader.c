/* Reads standard input with read(2). With "sum" as a second argument, it also adds up all bytes, so
 * that mapped pages must really be read. Exits with 1 unless the number of bytes equals the first
 * argument. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static uint64_t buffer[1 << 15];
    uint64_t sum = 0, total = 0;
    ssize_t got;
    while ((got = read(0, buffer, sizeof buffer)) > 0) {
        for (size_t n = 0; argc > 2 && n < (size_t)got / 8; n++)
            sum += buffer[n];
        total += (uint64_t)got;
    }
    fprintf(stderr, "%s", sum == 1 ? "one\n" : "");
    return argc > 1 && total != strtoull(argv[1], NULL, 10);
}
