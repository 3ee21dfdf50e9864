/* One input of the fuzzer: a sequence of commands of the module, well formed and not, with writes of other clients and
 * steps of the clock between them. Every choice is a byte; a word is one of a list or any bytes at all. */
#include <stdint.h>
#include <string.h>

#include "host.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NOW = 1800000, MOST = 96, TEXTS = 128 };
#define BASE "emq:{q}:"

struct input {
    const uint8_t *at;
    size_t left;
};

static uint8_t take(struct input *input) {
    if (!input->left) return 0;
    input->left--;
    return *input->at++;
}

/* The words of one command; their bytes lie in `texts`. */
static struct {
    struct bytes words[TEXTS];
    size_t count;
    char texts[1 << 14];
    size_t length;
} line;

static void begin(const char *name) {
    line.length = 0;
    line.count = 1;
    line.words[0] = bytes_of(name);
}

static void push(struct bytes word) {
    if (line.count < TEXTS) line.words[line.count++] = word;
}

static void push_text(const char *text) { push(bytes_of(text)); }

/* Bytes that live until the next command begins. */
static struct bytes keep(const char *head, const void *tail, size_t tail_length) {
    size_t head_length = strlen(head);
    struct bytes made = {line.texts + line.length, head_length + tail_length};
    if (line.length + made.length + 1 > sizeof line.texts) return bytes_of(head);
    memcpy(line.texts + line.length, head, head_length);
    if (tail_length) memcpy(line.texts + line.length + head_length, tail, tail_length);
    line.length += made.length + 1;
    line.texts[line.length - 1] = '\0';
    return made;
}

static struct bytes any_bytes(struct input *input) {
    size_t length = take(input) % 40;
    if (length > input->left) length = input->left;
    struct bytes made = keep("", input->at, length);
    input->at += length;
    input->left -= length;
    return made;
}

#define LIST(...) ((const char *const[]){__VA_ARGS__}), sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

/* One of a list, or now and then any bytes. */
static struct bytes one_of(struct input *input, const char *const *list, size_t count) {
    uint8_t choice = take(input);
    if (choice >= 0xF0) return any_bytes(input);
    return bytes_of(list[choice % count]);
}

/* A job's id about as long as the buffer in which keys are put together. */
static struct bytes long_id(struct input *input) {
    char filling[320];
    memset(filling, 'x', sizeof filling);
    return keep("JOB", filling, 200u + take(input) % 100u);
}

static struct bytes id_of(struct input *input) {
    if (input->left && *input->at >= 0xEC && *input->at < 0xF0) return take(input), long_id(input);
    return one_of(input, LIST("JOB00000000001", "JOB00000000002", "JOB00000000003", "JOB00000000004", "JOB00000000005",
                              "JOB00000000006", "JOB00000000007", "JOB00000000008", "JOB00000000009", "JOBAzL8n0Y58m8",
                              "JOB", "USR00000000001"));
}

static struct bytes number_of(struct input *input) {
    return one_of(input, LIST("0", "1", "1", "5", "1000", "3600000", "1799999", "1800000", "1800001", "9007199254740991",
                              "9007199254740992", "9223372036854775808", "05", "+5", " 5", "1e3", "-1", ""));
}

static struct bytes token_of(struct input *input) {
    return one_of(input, LIST("1", "1", "1", "1", "2", "2", "3", "0", "01", ""));
}

static struct bytes payload_of(struct input *input) { return one_of(input, LIST("p", "", "7", "payload of a job")); }

static struct bytes key_of(struct input *input, const char *part, struct bytes id) {
    uint8_t choice = take(input);
    if (choice >= 0xF8) return any_bytes(input);
    if (choice >= 0xF4)
        return one_of(input, LIST("emq:{q}", "emq:{}:pending", "emq:{q}:", "emq:{other}:schedule", "emq:{q}:active", "x"));
    return keep(part, id.at, id.length);
}

/* The commands: their keys, and a letter an argument: id, token, payload, mode, number, base; what stands behind a star
 * comes again and again. */
static const struct {
    const char *name, *keys[3], *arguments;
} COMMANDS[] = {
    {"emq.schedule", {BASE "job:", BASE "schedule", NULL}, "ipmn"},
    {"emq.reschedule", {BASE "job:", BASE "schedule", NULL}, "imn"},
    {"emq.promote", {BASE "schedule", BASE "pending", NULL}, "bn"},
    {"emq.delay", {BASE "job:", BASE "active", BASE "schedule"}, "itmn"},
    {"emq.enqueue", {BASE "job:", BASE "pending", NULL}, "ip"},
    {"emq.enqueuemany", {BASE "pending", NULL, NULL}, "*ip"},
    {"emq.claim", {BASE "pending", BASE "active", NULL}, "nn"},
    {"emq.completemany", {BASE "active", NULL, NULL}, "*itpn"},
};
enum { COUNT = sizeof COMMANDS / sizeof *COMMANDS };

static void argument(struct input *input, char letter, struct bytes id) {
    switch (letter) {
        case 'i': push(id); break;
        case 't': push(token_of(input)); break;
        case 'p': push(payload_of(input)); break;
        case 'm': push(one_of(input, LIST("at", "in", "at", "in", "at", "on", ""))); break;
        case 'n': push(number_of(input)); break;
        default: push_text(BASE);
    }
}

static void command(struct input *input, size_t which) {
    uint8_t shape = take(input);
    begin(COMMANDS[which].name);
    struct bytes id = id_of(input);
    size_t parts = 0;
    while (parts < 3 && COMMANDS[which].keys[parts]) parts++;
    char count[2] = {(char)('0' + parts), '\0'};
    push(shape >= 0xF8 ? one_of(input, LIST("0", "1", "2", "3", "02", "")) : keep(count, "", 0));
    for (size_t i = 0; i < parts; i++) {
        bool row = strcmp(COMMANDS[which].keys[i], BASE "job:") == 0;
        push(key_of(input, COMMANDS[which].keys[i], row ? id : bytes_of("")));
    }
    const char *letters = COMMANDS[which].arguments;
    size_t times = *letters == '*' ? 1 + take(input) % 12u : 1;
    for (size_t n = 0; n < times; n++) {
        if (n) id = id_of(input);
        for (const char *letter = letters + (*letters == '*'); *letter; letter++) argument(input, *letter, id);
    }
    if (shape < 8 && line.count > 1) line.count -= 1;
    else if (shape < 12) push(any_bytes(input));
    else if (shape < 14) line.count = 1 + shape % 3u;
    host_run(line.words, line.count);
}

static struct bytes place_of(struct input *input) {
    return one_of(input, LIST(BASE "pending", BASE "active", BASE "schedule", BASE "wake", BASE "meta", BASE "ring",
                              BASE "paused", BASE "glimit", BASE "gactive", BASE "dead", BASE "repeat", BASE "cron",
                              BASE "metrics:completed", BASE "g:LAN00000000001:pending"));
}

static struct bytes row_of(struct input *input) {
    struct bytes id = id_of(input);
    return keep(BASE "job:", id.at, id.length);
}

static struct bytes subkey_of(struct input *input) {
    struct bytes row = row_of(input);
    const char *tail = ((const char *const[]){":result", ":logs", ":lock", ":dependencies"})[take(input) % 4u];
    char whole[256];
    if (row.length > 200) return row;
    memcpy(whole, row.at, row.length);
    memcpy(whole + row.length, tail, strlen(tail));
    return keep("", whole, row.length + strlen(tail));
}

static struct bytes value_of(struct input *input) {
    return one_of(input, LIST("1", "0", "2", "3", "", " 2 ", "0x2", "inf", "nan", "-1", "9007199254740991",
                              "9007199254740990", "LAN00000000001", "JOB00000000002", "active", "pending", "1e400"));
}

static struct bytes field_of(struct input *input) {
    return one_of(input, LIST("attempts", "payload", "state", "group", "parent", "dedup", "cancel", "failures", "stalled",
                              "concurrency", "paused", "max", "LAN00000000001", "count", "lock"));
}

static struct bytes score_of(struct input *input) {
    static const char *const scores[] = {"0", "1", "1800000", "1800001", "-1", "1.5", "inf", "-inf", "9007199254740991",
                                         "9007199254740992", "1e300"};
    return bytes_of(scores[take(input) % (sizeof scores / sizeof *scores)]);
}

/* A write of another client: sound or not. */
static void write_of_another(struct input *input) {
    switch (take(input) % 10) {
        case 0: begin("ZADD"), push(place_of(input)), push(score_of(input)), push(id_of(input)); break;
        case 1: begin("HSET"), push(row_of(input)), push(field_of(input)), push(value_of(input)); break;
        case 2: begin("HDEL"), push(row_of(input)), push(field_of(input)); break;
        case 3: begin("HSET"), push(place_of(input)), push(field_of(input)), push(value_of(input)); break;
        case 4: begin("SET"), push(take(input) % 2 ? subkey_of(input) : row_of(input)), push(value_of(input)); break;
        case 5: begin("SET"), push(place_of(input)), push(value_of(input)); break;
        case 6: begin("DEL"), push(take(input) % 2 ? place_of(input) : row_of(input)); break;
        case 7: begin("RPUSH"), push(place_of(input)), push(value_of(input)); break;
        case 8: begin("SADD"), push(place_of(input)), push(value_of(input)); break;
        default: begin("ZREM"), push(place_of(input)), push(id_of(input));
    }
    host_write(line.words, line.count);
}

static void tokens(struct input *input) {
    begin("LPUSH");
    push_text(BASE "wake");
    for (size_t n = take(input) % 70u + 1; n; n--) push_text("1");
    host_write(line.words, line.count);
}

static void write_words(const char *const *words, size_t count) {
    begin(words[0]);
    for (size_t i = 1; i < count; i++) push_text(words[i]);
    host_write(line.words, line.count);
}

static void run_words(const char *const *words, size_t count) {
    begin(words[0]);
    for (size_t i = 1; i < count; i++) push_text(words[i]);
    host_run(line.words, line.count);
}

/* What it takes many choices to come to: jobs in hand and others that wait, below a ceiling, beside a lane. */
static void scene(struct input *input) {
    uint8_t which = take(input);
    if (which & 1)
        run_words(LIST("emq.enqueuemany", "1", BASE "pending", "JOB00000000001", "p", "JOB00000000002", "p",
                       "JOB00000000003", "p", "JOB00000000004", "p", "JOB00000000005", "p", "JOB00000000006", "p"));
    if (which & 2) run_words(LIST("emq.claim", "2", BASE "pending", BASE "active", "3600000", "3"));
    if (which & 4) {
        begin("HSET"), push_text(BASE "meta"), push_text("concurrency"), push(value_of(input));
        host_write(line.words, line.count);
    }
    if (which & 8) {
        write_words(LIST("ZADD", BASE "g:LAN00000000001:pending", "0", "JOB00000000008", "0", "JOB00000000009"));
        write_words(LIST("HSET", BASE "job:JOB00000000008", "group", "LAN00000000001", "attempts", "0"));
        write_words(LIST("RPUSH", BASE "ring", "LAN00000000001"));
    }
    if (which & 16) {
        begin("HSET"), push_text(BASE "glimit"), push_text("LAN00000000001"), push(value_of(input));
        host_write(line.words, line.count);
        begin("HSET"), push_text(BASE "gactive"), push_text("LAN00000000001"), push(value_of(input));
        host_write(line.words, line.count);
    }
    if (which & 32) write_words(LIST("SADD", BASE "paused", "LAN00000000001"));
}

static void step(struct input *input, long long *now) {
    uint8_t kind = take(input);
    if (kind < 0xA0) {
        command(input, kind % COUNT);
    } else if (kind < 0xE0) {
        write_of_another(input);
    } else if (kind < 0xE8) {
        tokens(input);
    } else if (kind < 0xF8) {
        scene(input);
    } else if (kind < 0xFA) {
        uint8_t more = take(input);
        host_cluster(kind & 1, more & 1);
        host_narrow(more & 2);
    } else {
        *now += ((const long long[]){1, 1000, 3600000, -5})[kind % 4];
        host_clock(*now);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    host_load();
    if (host_commands() != COUNT) store_fault("the module has %zu commands, %d are fuzzed", host_commands(), COUNT);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input = {data, size};
    long long now = NOW;
    host_reset(now);
    for (size_t i = 0; i < MOST && input.left; i++) step(&input, &now);
    host_reset(now);
    return 0;
}
