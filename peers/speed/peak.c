/* Runs a command, and appends the peak memory of its largest process to a file, in KiB. A script cannot measure this itself: a process
 * that starts another one passes on its own peak. Usage: peak FILE COMMAND [ARGUMENT ...] */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int status;
    struct rusage usage;
    FILE *file;
    if (argc < 3)
        return 2;
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) != child)
        return 1;
    file = fopen(argv[1], "a");
    if (!file || fprintf(file, "%ld\n", usage.ru_maxrss) < 0 || fclose(file) != 0)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
