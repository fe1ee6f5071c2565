/* Tests that a sender chooses its arm by a profile and reports the reason:
 *   chosen FOLDER PROFILE ARM    PROFILE must prefer ARM, and ARM must work here */
#include "process.h"

static tw_error error;

static void receive_one(tw_link *link, const void *script)
{
    tw_receiver *receiver;
    tw_buffer *buffer;
    char *json;
    OK(tw_receiver_open(&link, NULL, &receiver, &error));
    OK(tw_receiver_receive_new(receiver, &buffer, &error));
    CHECK(tw_buffer_length(buffer) == 5 && !memcmp(tw_buffer_data(buffer), "hello", 5));
    OK(tw_receiver_explain_json(receiver, &json, &error));
    CHECK(strstr(json, tw_receiver_arm(receiver)) && !strstr(json, "\"choice\""));
    tw_string_free(json);
    tw_buffer_free(buffer);
    tw_receiver_close(receiver);
    (void)script;
}

/* Opens a sender with these options, frees the profile, and sends. Returns the arm. Its reason must contain `why`. */
static const char *send_with(const char *folder, const tw_bulk_options *options, tw_profile *profile, const char *why)
{
    tw_link *link;
    tw_sender *sender;
    char *json;
    pid_t child = other(folder, receive_one, NULL, &link);
    OK(tw_sender_open(&link, options, &sender, &error));
    tw_profile_free(profile);
    const char *arm = tw_sender_arm(sender);
    OK(tw_sender_explain_json(sender, &json, &error));
    CHECK(strstr(json, "\"choice\"") && strstr(json, why));
    CHECK(!strstr(json, "\"evidence\":null") == (profile && !options->arm));
    tw_string_free(json);
    OK(tw_sender_send(sender, "hello", 5, &error));
    tw_sender_close(sender);
    ended_well(child);
    return arm;
}

static tw_profile *loaded(const char *path)
{
    tw_profile *profile;
    OK(tw_profile_load(path, &profile, &error));
    CHECK(profile);
    return profile;
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    const char *folder = argv[1], *preferred = argv[3];
    tw_bulk_options options = TW_BULK_OPTIONS_INIT;
    const char *usual = send_with(folder, &options, NULL, "not measured");

    tw_profile *profile = loaded(argv[2]);
    options.profile = profile;
    CHECK(!strcmp(send_with(folder, &options, profile, "measured 2026-11-22: 0.50x "), preferred));

    /* An arm in the options has priority over the profile. */
    options.profile = profile = loaded(argv[2]);
    options.arm = usual;
    CHECK(!strcmp(send_with(folder, &options, profile, "requested"), usual));

    /* A program built before the field `profile` was added passes a smaller size. The library must not read the field. */
    options.size = offsetof(tw_bulk_options, profile);
    options.arm = NULL;
    options.profile = (const tw_profile *)(uintptr_t)1;
    CHECK(!strcmp(send_with(folder, &options, NULL, "not measured"), usual));
    return 0;
}
