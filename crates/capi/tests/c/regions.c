/* Creates regions, sends them to another process, seals them, unmaps them and maps them again. */
#include "process.h"

enum { LENGTH = 10000 };
static tw_error error;
static const char *const kinds[] = { "memfd", "posix", "sysv" };

/* Maps a region, given by a descriptor or by a segment's id, and inverts every byte. */
static void turn_over(tw_link *link, const void *script)
{
    int fd, id;
    size_t length, count = 1;
    tw_region *region;
    OK(tw_link_receive(link, &id, sizeof id, &length, &fd, &count, GUARD, &error));
    CHECK(length == sizeof id);
    if (count)
        OK(tw_region_of_fd(fd, LENGTH, TW_WRITE, &region, &error));
    else
        OK(tw_region_of_segment(id, 0, TW_WRITE, &region, &error));
    unsigned char *bytes = tw_region_data(region);
    CHECK(tw_region_length(region) == LENGTH && holds(bytes, LENGTH, 1));
    for (size_t n = 0; n < LENGTH; n++)
        bytes[n] = (unsigned char)~bytes[n];
    tw_region_close(region);
    OK(tw_link_send(link, "done", 4, NULL, 0, GUARD, &error));
    tw_link_close(link);
    if (count)
        close(fd);
    (void)script;
}

static void is_shared_with_another_process(const char *folder, tw_region_kind kind)
{
    tw_region *region;
    tw_link *link;
    char said[8];
    size_t length;
    tw_status status = tw_region_create(kind, LENGTH, &region, &error);
    if (status == TW_SYSTEM && (error.os_error == ENOSYS || error.os_error == EPERM || error.os_error == ENOSPC)) {
        printf("%s\t%s\n", kinds[kind], error.message);
        fflush(stdout);
        return;
    }
    CHECK(status == TW_OK);
    int fd = tw_region_fd(region), id = tw_region_segment(region);
    CHECK((fd >= 0) == (kind != TW_SYSV) && (id >= 0) == (kind == TW_SYSV));
    CHECK(tw_region_length(region) == LENGTH && (uintptr_t)tw_region_data(region) % 4096 == 0);
    for (size_t n = 0; n < LENGTH; n++)
        CHECK(((unsigned char *)tw_region_data(region))[n] == 0);
    status = tw_region_populate(region, &error);
    CHECK(status == TW_OK || status == TW_UNSUPPORTED);
    fill(tw_region_data(region), LENGTH, 1);
    pid_t child = other(folder, turn_over, NULL, &link);
    OK(tw_link_send(link, &id, sizeof id, &fd, fd >= 0, GUARD, &error));
    OK(tw_link_receive(link, said, sizeof said, &length, NULL, NULL, GUARD, &error));
    CHECK(length == 4);
    tw_link_close(link);
    ended_well(child);
    for (size_t n = 0; n < LENGTH; n++)
        CHECK(((unsigned char *)tw_region_data(region))[n] == (unsigned char)~(31 ^ (n * 7) ^ (n >> 8)));
    /* A region keeps its contents while it is unmapped. */
    CHECK(tw_region_map(region, TW_WRITE, &error) == TW_USAGE);
    OK(tw_region_unmap(region, &error));
    CHECK(!tw_region_data(region) && tw_region_unmap(region, &error) == TW_USAGE);
    CHECK(tw_region_populate(region, &error) == TW_USAGE);
    OK(tw_region_map(region, TW_WRITE, &error));
    CHECK(((unsigned char *)tw_region_data(region))[3] == (unsigned char)~(31 ^ (3 * 7)));
    if (kind == TW_SYSV) {
        CHECK(tw_region_seal(region, TW_SEAL_SIZE, &error) == TW_UNSUPPORTED);
        OK(tw_region_remove(region, &error));
    } else {
        CHECK(tw_region_remove(region, &error) == TW_USAGE);
    }
    tw_region_close(region);
    if (kind == TW_SYSV)
        CHECK(tw_region_of_segment(id, 0, TW_WRITE, &region, &error) == TW_SYSTEM && !region && error.os_error);
}

static void seals_hold_against_everybody(void)
{
    tw_region *region, *view;
    OK(tw_region_create(TW_MEMFD, LENGTH, &region, &error));
    int fd = tw_region_fd(region);
    fill(tw_region_data(region), LENGTH, 2);
    CHECK(!tw_region_is_sealed(region, TW_SEAL_SIZE) && !tw_region_is_sealed(NULL, TW_SEAL_SIZE));
    OK(tw_region_seal(region, TW_SEAL_SIZE, &error));
    CHECK(tw_region_is_sealed(region, TW_SEAL_SIZE) && ftruncate(fd, 1) == -1 && errno == EPERM);
    CHECK(tw_region_seal(region, TW_SEAL_WRITE, &error) == TW_SYSTEM && error.os_error == EBUSY);
    CHECK(strstr(error.message, "unmap"));
    CHECK(tw_region_seal(region, 128, &error) == TW_USAGE);
    tw_status status = tw_region_seal(region, TW_SEAL_WRITERS, &error);
    CHECK(status == TW_OK || error.os_error == EINVAL);
    if (status == TW_OK) {
        /* The existing mapping stays writable, but no new mapping can be. */
        fill(tw_region_data(region), LENGTH, 3);
        CHECK(tw_region_of_fd(fd, 0, TW_WRITE, &view, &error) == TW_SYSTEM && error.os_error == EPERM && !view);
        fill(tw_region_data(region), LENGTH, 2);
    }
    OK(tw_region_unmap(region, &error));
    OK(tw_region_seal(region, TW_SEAL_WRITE | TW_SEAL_SEALS, &error));
    CHECK(tw_region_is_sealed(region, TW_SEAL_SIZE | TW_SEAL_WRITE | TW_SEAL_SEALS));
    CHECK(tw_region_map(region, TW_WRITE, &error) == TW_SYSTEM);
    /* Before Linux 6.7, memory with a write seal can be mapped only with TW_COPY_ON_WRITE. */
    if (tw_region_map(region, TW_READ, &error) != TW_OK)
        OK(tw_region_map(region, TW_COPY_ON_WRITE, &error));
    OK(tw_region_of_fd(fd, 5000, TW_COPY_ON_WRITE, &view, &error));
    CHECK(tw_region_length(view) == 5000 && holds(tw_region_data(view), 5000, 2));
    memset(tw_region_data(view), 0xee, 5000);
    CHECK(holds(tw_region_data(region), LENGTH, 2));
    tw_region_close(view);
    tw_region_close(region);
    OK(tw_region_create(TW_POSIX, LENGTH, &region, &error));
    CHECK(tw_region_seal(region, TW_SEAL_SIZE, &error) == TW_SYSTEM && error.os_error);
    tw_region_close(region);
}

static void lengths_and_arguments_are_checked(void)
{
    tw_region *region;
    FILE *file = tmpfile();
    int ends[2];
    CHECK(tw_region_of_fd(fileno(file), 0, TW_READ, &region, &error) == TW_USAGE && strstr(error.message, "0 bytes"));
    CHECK(ftruncate(fileno(file), 100) == 0);
    CHECK(tw_region_of_fd(fileno(file), 101, TW_READ, &region, &error) == TW_TOO_LARGE && strstr(error.message, "100"));
    OK(tw_region_of_fd(fileno(file), 0, TW_WRITE, &region, &error));
    CHECK(tw_region_length(region) == 100);
    memcpy(tw_region_data(region), "mapped", 6);
    tw_region_close(region);
    char text[6];
    CHECK(pread(fileno(file), text, 6, 0) == 6 && !memcmp(text, "mapped", 6));
    fclose(file);
    CHECK(pipe(ends) == 0);
    CHECK(tw_region_of_fd(ends[0], 0, TW_READ, &region, &error) != TW_OK && !region);
    for (int n = 0; n < 2; n++)
        close(ends[n]);
    CHECK(tw_region_of_fd(-1, 0, TW_READ, &region, &error) == TW_USAGE);
    CHECK(tw_region_of_fd(9999, 0, TW_READ, &region, &error) == TW_USAGE && error.os_error == EBADF);
    CHECK(tw_region_create(TW_MEMFD, 0, &region, &error) == TW_USAGE && !region);
    CHECK(tw_region_create((tw_region_kind)9, 1, &region, &error) == TW_USAGE);
    CHECK(tw_region_create(TW_MEMFD, SIZE_MAX, &region, &error) != TW_OK && !region);
    CHECK(tw_region_create(TW_MEMFD, 1, NULL, &error) == TW_USAGE);
    CHECK(tw_region_unmap(NULL, &error) == TW_USAGE && tw_region_map(NULL, TW_READ, &error) == TW_USAGE);
    CHECK(!tw_region_data(NULL) && !tw_region_length(NULL) && tw_region_fd(NULL) == -1 && tw_region_segment(NULL) == -1);
    tw_region_close(NULL);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    for (int kind = TW_MEMFD; kind <= TW_SYSV; kind++)
        is_shared_with_another_process(argv[1], (tw_region_kind)kind);
    seals_hold_against_everybody();
    lengths_and_arguments_are_checked();
    return 0;
}
