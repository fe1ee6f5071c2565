/* Moves, plans and copies through the C ABI, with interruptions and failures, and checks every
 * byte. */
#include "check.h"

static void fill(int fd, size_t length)
{
    unsigned char block[4096];
    for (size_t at = 0; at < length; at += sizeof block) {
        size_t part = length - at < sizeof block ? length - at : sizeof block;
        for (size_t n = 0; n < part; n++)
            block[n] = (unsigned char)((at + n) * 31 + ((at + n) >> 12));
        CHECK(pwrite(fd, block, part, (off_t)at) == (ssize_t)part);
    }
}

static int same(int a, int b, size_t length)
{
    unsigned char left[4096], right[4096];
    for (size_t at = 0; at < length;) {
        size_t part = length - at < sizeof left ? length - at : sizeof left;
        if (pread(a, left, part, (off_t)at) != (ssize_t)part || pread(b, right, part, (off_t)at) != (ssize_t)part)
            return 0;
        if (memcmp(left, right, part))
            return 0;
        at += part;
    }
    return 1;
}

static int stop_at_once(uint64_t moved, void *user)
{
    *(uint64_t *)user = moved + 1;
    return 1;
}

static void every_mechanism_that_can(int source, size_t length)
{
    for (size_t n = 0; n < tw_mechanism_count(); n++) {
        tw_transfer_options options = TW_TRANSFER_OPTIONS_INIT;
        tw_report report;
        tw_error error;
        FILE *file = tmpfile();
        int sink = fileno(file);
        options.method = tw_mechanism_name(n);
        tw_status status = tw_transfer(source, sink, TW_ALL, &options, &report, &error);
        CHECK(status == TW_OK || status == TW_UNSUPPORTED);
        if (status == TW_OK) {
            CHECK(report.bytes == length && report.lost == 0);
            CHECK(same(source, sink, length));
        } else {
            CHECK(error.status == TW_UNSUPPORTED && *error.message);
        }
        fclose(file);
    }
    CHECK(!tw_mechanism_name(tw_mechanism_count()) && !tw_mechanism_summary(tw_mechanism_count()));
}

static void a_pipe_and_a_length(int source)
{
    int ends[2];
    unsigned char got[8192];
    tw_report report;
    CHECK(pipe(ends) == 0);
    CHECK(tw_transfer(source, ends[1], 5000, NULL, &report, NULL) == TW_OK);
    CHECK(report.bytes == 5000 && *report.mechanism);
    CHECK(read(ends[0], got, sizeof got) == 5000);
    for (size_t n = 0; n < 5000; n++)
        CHECK(got[n] == (unsigned char)(n * 31 + (n >> 12)));
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    tw_error error;
    CHECK(tw_transfer(source, ends[1], TW_ALL, NULL, NULL, &error) == TW_PARTIAL);
    CHECK(error.os_error == EPIPE && error.moved == 0 && strstr(error.message, "EPIPE"));
    close(ends[1]);
}

static void nonsense_is_refused(int source)
{
    tw_transfer_options options = TW_TRANSFER_OPTIONS_INIT;
    tw_error error;
    char *json = NULL;
    CHECK(tw_transfer(-1, source, 1, NULL, NULL, &error) == TW_USAGE && strstr(error.message, "source"));
    CHECK(tw_transfer(source, 9999, 1, NULL, NULL, &error) == TW_USAGE && error.os_error == EBADF);
    options.method = "teleport";
    CHECK(tw_transfer(source, source, 1, &options, NULL, &error) == TW_USAGE && strstr(error.message, "read-write"));
    options.method = NULL;
    options.needs = 64;
    CHECK(tw_plan_json(source, source, 1, &options, &json, &error) == TW_USAGE && !json);
    options.needs = TW_DEFAULT_NEEDS;
    options.size = 8;
    CHECK(tw_transfer(source, source, 1, &options, NULL, NULL) == TW_USAGE);
    tw_report report;
    memset(&report, 0xee, sizeof report);
    CHECK(tw_copy(NULL, "x", NULL, &report, &error) == TW_USAGE && strstr(error.message, "NULL"));
    CHECK(report.bytes == 0 && report.wall_ns == 0 && !*report.mechanism);
    memset(&report, 0xee, sizeof report);
    CHECK(tw_transfer(-1, source, 1, NULL, &report, NULL) == TW_USAGE && report.bytes == 0 && !*report.mechanism);
    CHECK(tw_mechanisms_json(NULL, &error) == TW_USAGE);
    /* After a failure, an output pointer is NULL, whatever it was before. */
    json = (char *)&report;
    CHECK(tw_probe_json("teleport", NULL, &json, &error) == TW_USAGE && !json);
    json = (char *)&report;
    CHECK(tw_plan_json(-1, source, 1, NULL, &json, &error) == TW_USAGE && !json);
}

static void plans_and_probes_are_json(const char *folder, int source)
{
    char *json = NULL;
    FILE *file = tmpfile();
    CHECK(tw_plan_json(source, fileno(file), TW_ALL, NULL, &json, NULL) == TW_OK);
    CHECK(json[0] == '{' && strstr(json, "\"verdicts\"") && strstr(json, "read-write"));
    tw_string_free(json);
    CHECK(tw_mechanisms_json(&json, NULL) == TW_OK && strstr(json, "copy_file_range"));
    tw_string_free(json);
    CHECK(tw_probe_json("read-write", NULL, &json, NULL) == TW_OK);
    CHECK(json[0] == '[' && strstr(json, "\"works\":true"));
    tw_string_free(json);
    /* A path may contain any bytes, even invalid UTF-8. */
    char path[4096];
    snprintf(path, sizeof path, "%s/\377", folder);
    CHECK(mkdir(path, 0700) == 0);
    CHECK(tw_probe_json("copy-file-range", path, &json, NULL) == TW_OK && !strstr(json, "ENOENT"));
    tw_string_free(json);
    CHECK(rmdir(path) == 0);
    tw_string_free(NULL);
    fclose(file);
}

static void files_are_copied_whole(const char *folder, int source, size_t length)
{
    char from[4096], to[4096];
    tw_report report;
    tw_error error;
    snprintf(from, sizeof from, "/proc/self/fd/%d", source);
    snprintf(to, sizeof to, "%s/copy", folder);
    tw_transfer_options options = TW_TRANSFER_OPTIONS_INIT;
    options.needs |= TW_DURABLE;
    CHECK(tw_copy(from, to, &options, &report, &error) == TW_OK);
    CHECK(report.bytes == length);
    int copy = open(to, O_RDONLY);
    CHECK(copy >= 0 && same(source, copy, length));
    close(copy);
    CHECK(unlink(to) == 0);
    CHECK(tw_copy("/no/such/file", to, NULL, NULL, &error) != TW_OK && strstr(error.message, "/no/such/file"));
    CHECK(access(to, F_OK) != 0);
    options.method = "null";
    CHECK(tw_copy(from, to, &options, NULL, &error) == TW_UNSUPPORTED && access(to, F_OK) != 0);
    char nowhere[4200];
    snprintf(nowhere, sizeof nowhere, "%s/no/such", to);
    CHECK(tw_copy(from, nowhere, NULL, &report, &error) == TW_SYSTEM && error.os_error == ENOENT);
    CHECK(report.bytes == 0);
}

static void who_watches_may_stop(size_t length)
{
    uint64_t seen = 0;
    tw_transfer_options options = TW_TRANSFER_OPTIONS_INIT;
    tw_report report;
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    options.progress = stop_at_once;
    options.user = &seen;
    tw_error error;
    CHECK(tw_transfer(zero, null, TW_ALL, &options, &report, &error) == TW_STOPPED);
    CHECK(seen > 0 && error.moved == report.bytes && length > 0);
    close(zero);
    close(null);
}

static void profiles(const char *folder)
{
    char path[4096];
    tw_profile *profile = NULL;
    tw_error error;
    snprintf(path, sizeof path, "%s/none.json", folder);
    CHECK(tw_profile_load(path, &profile, &error) == TW_OK && !profile);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs("{", file) >= 0 && fclose(file) == 0);
    profile = (tw_profile *)path;
    CHECK(tw_profile_load(path, &profile, &error) == TW_USAGE && !profile && strstr(error.message, "none.json"));
    profile = (tw_profile *)path;
    CHECK(tw_profile_load(folder, &profile, &error) == TW_SYSTEM && !profile && error.os_error == EISDIR);
    tw_profile_free(NULL);
    CHECK(unlink(path) == 0);
}

int main(int argc, char **argv)
{
    const size_t length = 3 * 1024 * 1024 + 7;
    CHECK(argc == 2);
    FILE *file = tmpfile();
    int source = fileno(file);
    fill(source, length);
    CHECK(strchr(tw_version(), '.'));
    every_mechanism_that_can(source, length);
    a_pipe_and_a_length(source);
    nonsense_is_refused(source);
    plans_and_probes_are_json(argv[1], source);
    files_are_copied_whole(argv[1], source, length);
    who_watches_may_stop(length);
    profiles(argv[1]);
    fclose(file);
    return 0;
}
