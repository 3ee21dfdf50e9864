#include "host.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../emq.h"

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

/* Each text is a block of its own, so that a step beyond its end (and the NUL that servers put there) is seen. */
struct RedisModuleString {
    size_t length;
    int references;
    char *at;
};

struct RedisModuleKey {
    struct bytes name;
    RedisModuleString *held;
    int mode;
    bool iterating;
    double most;
    size_t place;
};

struct RedisModuleCallReply {
    enum store_reply kind;
    long long integer;
};

struct registered {
    char name[32];
    RedisModuleCmdFunc run;
    int arity;
};

static struct {
    struct store primary, replica;
    long long now_ms;
    bool wrote, replicated, refused, moving;
    char refusal[256];
    long long owed;
    size_t strings, keys, replies, blocks;
    struct registered commands[32];
    size_t count;
} host;

static struct bytes text_of(const RedisModuleString *string) {
    struct bytes text = {string->at, string->length};
    return text;
}

static RedisModuleString *string_of(struct bytes text) {
    RedisModuleString *made = malloc(sizeof *made);
    char *at = malloc(text.length + 1);
    if (!made || !at) abort();
    if (text.length) memcpy(at, text.at, text.length);
    at[text.length] = '\0';
    made->at = at;
    made->length = text.length;
    made->references = 1;
    host.strings++;
    return made;
}

static void release(RedisModuleString *string) {
    if (string->references < 1) store_fault("a string is freed twice");
    if (--string->references) return;
    free(string->at);
    free(string);
    host.strings--;
}

/* -- what the module calls ---------------------------------------------------------------------------------------- */

static void host_SetModuleAttribs(RedisModuleCtx *ctx, const char *name, int version, int api) {
    (void)ctx, (void)name, (void)version, (void)api;
}

static int host_IsModuleNameBusy(const char *name) {
    (void)name;
    return 0;
}

static void host_SetModuleOptions(RedisModuleCtx *ctx, int options) { (void)ctx, (void)options; }

static int host_CreateCommand(RedisModuleCtx *ctx, const char *name, RedisModuleCmdFunc run, const char *flags, int first,
                              int last, int step) {
    (void)ctx, (void)flags, (void)first, (void)last, (void)step;
    struct registered *command = host.commands + host.count++;
    if (host.count > sizeof host.commands / sizeof *host.commands) store_fault("too many commands");
    snprintf(command->name, sizeof command->name, "%s", name);
    command->run = run;
    return REDISMODULE_OK;
}

static RedisModuleCommand *host_GetCommand(RedisModuleCtx *ctx, const char *name) {
    (void)ctx, (void)name;
    return (RedisModuleCommand *)(host.commands + host.count - 1);
}

static int host_SetCommandInfo(RedisModuleCommand *command, const RedisModuleCommandInfo *info) {
    ((struct registered *)command)->arity = info->arity;
    return REDISMODULE_OK;
}

static int host_SetCommandACLCategories(RedisModuleCommand *command, const char *categories) {
    (void)command, (void)categories;
    return REDISMODULE_OK;
}

static void *block(void *made, bool had) {
    if (!made) abort();
    host.blocks += !had;
    return made;
}

static void *host_Alloc(size_t size) { return block(malloc(size), false); }

static void *host_Calloc(size_t count, size_t size) { return block(calloc(count, size), false); }

static void *host_Realloc(void *old, size_t size) { return block(realloc(old, size), old != NULL); }

static void host_Free(void *old) {
    host.blocks -= old != NULL;
    free(old);
}

static long long host_Milliseconds(void) { return host.now_ms; }

static void replied(long long more) {
    if (host.owed < 1) store_fault("a reply too many");
    host.owed += more - 1;
}

static int refuse(const char *text) {
    replied(0);
    host.refused = true;
    snprintf(host.refusal, sizeof host.refusal, "%s", text);
    return REDISMODULE_OK;
}

static int host_WrongArity(RedisModuleCtx *ctx) {
    (void)ctx;
    return refuse("ERR wrong number of arguments");
}

static int host_ReplyWithError(RedisModuleCtx *ctx, const char *text) {
    (void)ctx;
    return refuse(text);
}

static int host_ReplyWithLongLong(RedisModuleCtx *ctx, long long value) {
    (void)ctx, (void)value;
    replied(0);
    return REDISMODULE_OK;
}

static int host_ReplyWithArray(RedisModuleCtx *ctx, long length) {
    (void)ctx;
    if (length < 0) store_fault("an array of %ld", length);
    replied(length);
    return REDISMODULE_OK;
}

static volatile char sink;

static void look_at(const char *at, size_t length) {
    for (size_t i = 0; i < length; i++) sink = at[i];
}

static int host_ReplyWithStringBuffer(RedisModuleCtx *ctx, const char *at, size_t length) {
    (void)ctx;
    look_at(at, length);
    replied(0);
    return REDISMODULE_OK;
}

static int host_ReplyWithString(RedisModuleCtx *ctx, RedisModuleString *string) {
    return host_ReplyWithStringBuffer(ctx, string->at, string->length);
}

static RedisModuleString *host_CreateString(RedisModuleCtx *ctx, const char *at, size_t length) {
    (void)ctx;
    struct bytes text = {at, length};
    return string_of(text);
}

static RedisModuleString *host_CreateStringFromLongLong(RedisModuleCtx *ctx, long long value) {
    (void)ctx;
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    return string_of(bytes_of(text));
}

static void host_FreeString(RedisModuleCtx *ctx, RedisModuleString *string) {
    (void)ctx;
    release(string);
}

static RedisModuleString *host_HoldString(RedisModuleCtx *ctx, RedisModuleString *string) {
    (void)ctx;
    string->references++;
    return string;
}

static const char *host_StringPtrLen(const RedisModuleString *string, size_t *length) {
    if (length) *length = string->length;
    return string->at;
}

static int host_KeyExists(RedisModuleCtx *ctx, RedisModuleString *key) {
    (void)ctx;
    return store_find(&host.primary, text_of(key)) != NULL;
}

static RedisModuleKey *host_OpenKey(RedisModuleCtx *ctx, RedisModuleString *name, int mode) {
    (void)ctx;
    if (!store_find(&host.primary, text_of(name)) && !(mode & REDISMODULE_WRITE)) return NULL;
    RedisModuleKey *key = calloc(1, sizeof *key);
    if (!key) abort();
    key->held = host_HoldString(ctx, name);
    key->name = text_of(name);
    key->mode = mode;
    host.keys++;
    return key;
}

static void host_CloseKey(RedisModuleKey *key) {
    if (key->iterating) store_fault("a key is closed while it is iterated over");
    release(key->held);
    free(key);
    host.keys--;
}

/* What a key holds, NULL for nothing; of another type it is a fault. */
static struct entry *entry_of(const RedisModuleKey *key, int type) {
    struct entry *entry = store_find(&host.primary, key->name);
    if (entry && entry->type != type) store_fault("%.60s is read as another type than it is", key->name.at);
    return entry;
}

static int host_KeyType(RedisModuleKey *key) {
    const struct entry *entry = store_find(&host.primary, key->name);
    return entry ? entry->type : REDISMODULE_KEYTYPE_EMPTY;
}

static size_t host_ValueLength(RedisModuleKey *key) {
    const struct entry *entry = store_find(&host.primary, key->name);
    if (!entry) return 0;
    return entry->type == REDISMODULE_KEYTYPE_STRING ? entry->items[0].value_length : entry->count;
}

static void needs_write(const RedisModuleKey *key) {
    if (!(key->mode & REDISMODULE_WRITE)) store_fault("%.60s is written and was opened to be read", key->name.at);
    host.wrote = true;
}

static int host_DeleteKey(RedisModuleKey *key) {
    needs_write(key);
    store_delete(&host.primary, key->name);
    return REDISMODULE_OK;
}

static struct bytes next_field(va_list *words, int flags) {
    if (flags & REDISMODULE_HASH_CFIELDS) {
        const char *name = va_arg(*words, const char *);
        struct bytes field = {name, name ? strlen(name) : 0};
        return field;
    }
    RedisModuleString *name = va_arg(*words, RedisModuleString *);
    struct bytes field = {NULL, 0};
    return name ? text_of(name) : field;
}

static int host_HashGet(RedisModuleKey *key, int flags, ...) {
    const struct entry *entry = entry_of(key, REDISMODULE_KEYTYPE_HASH);
    va_list words;
    va_start(words, flags);
    for (struct bytes field = next_field(&words, flags); field.at; field = next_field(&words, flags)) {
        const struct item *item = entry ? item_find(entry, field) : NULL;
        if (flags & REDISMODULE_HASH_EXISTS) {
            *va_arg(words, int *) = item != NULL;
        } else {
            struct bytes value = {item ? item->value : "", item ? item->value_length : 0};
            *va_arg(words, RedisModuleString **) = item ? string_of(value) : NULL;
        }
    }
    va_end(words);
    return REDISMODULE_OK;
}

static int host_HashSet(RedisModuleKey *key, int flags, ...) {
    needs_write(key);
    entry_of(key, REDISMODULE_KEYTYPE_HASH);
    struct entry *entry = store_open(&host.primary, key->name, REDISMODULE_KEYTYPE_HASH);
    va_list words;
    va_start(words, flags);
    int changed = 0;
    for (struct bytes field = next_field(&words, flags); field.at; field = next_field(&words, flags)) {
        changed += item_find(entry, field) != NULL;
        item_put(entry, field, text_of(va_arg(words, RedisModuleString *)));
    }
    va_end(words);
    return changed;
}

static int host_ZsetAdd(RedisModuleKey *key, double score, RedisModuleString *member, int *flags) {
    if (flags && *flags) store_fault("ZsetAdd with flags");
    if (isnan(score)) store_fault("a score that is no number");
    needs_write(key);
    entry_of(key, REDISMODULE_KEYTYPE_ZSET);
    item_score(store_open(&host.primary, key->name, REDISMODULE_KEYTYPE_ZSET), text_of(member), score);
    return REDISMODULE_OK;
}

static int host_ZsetScore(RedisModuleKey *key, RedisModuleString *member, double *score) {
    const struct entry *entry = entry_of(key, REDISMODULE_KEYTYPE_ZSET);
    const struct item *item = entry ? item_find(entry, text_of(member)) : NULL;
    if (item) *score = item->score;
    return item ? REDISMODULE_OK : REDISMODULE_ERR;
}

static const struct item *under(const RedisModuleKey *key) {
    const struct entry *entry = entry_of(key, REDISMODULE_KEYTYPE_ZSET);
    if (!key->iterating) store_fault("an iteration that has not begun, or has ended");
    if (!entry || key->place >= entry->count || entry->items[key->place].score > key->most) return NULL;
    return entry->items + key->place;
}

static int host_ZsetFirstInScoreRange(RedisModuleKey *key, double least, double most, int without_least,
                                      int without_most) {
    const struct entry *entry = entry_of(key, REDISMODULE_KEYTYPE_ZSET);
    if (key->iterating) store_fault("an iteration that begins before the last has ended");
    if (without_least || without_most) store_fault("a range without its ends");
    if (!entry) return REDISMODULE_ERR;
    key->iterating = true;
    key->most = most;
    key->place = 0;
    while (key->place < entry->count && entry->items[key->place].score < least) key->place++;
    return REDISMODULE_OK;
}

static RedisModuleString *host_ZsetRangeCurrentElement(RedisModuleKey *key, double *score) {
    const struct item *item = under(key);
    if (!item) store_fault("the element behind the last");
    struct bytes name = {item->name, item->name_length};
    if (score) *score = item->score;
    return string_of(name);
}

static int host_ZsetRangeEndReached(RedisModuleKey *key) { return under(key) == NULL; }

static int host_ZsetRangeNext(RedisModuleKey *key) {
    if (!under(key)) return 0;
    key->place++;
    return under(key) != NULL;
}

static void host_ZsetRangeStop(RedisModuleKey *key) { key->iterating = false; }

static RedisModuleString *host_ListGet(RedisModuleKey *key, long index) {
    const struct entry *entry = entry_of(key, REDISMODULE_KEYTYPE_LIST);
    if (!entry || index < 0 || (size_t)index >= entry->count) return NULL;
    struct bytes value = {entry->items[index].value, entry->items[index].value_length};
    return string_of(value);
}

enum { WORDS = 8192 };

/* The words that a format and what follows it say; `owned` are those whose text is ours to free. */
struct command {
    struct bytes words[WORDS];
    char *owned[WORDS];
    size_t count, owned_count;
    bool replicates;
};

static void word(struct command *command, struct bytes text) {
    if (command->count == WORDS) store_fault("a command of more than %d words", WORDS);
    command->words[command->count++] = text;
}

static void word_of_number(struct command *command, long long value) {
    char *text = malloc(32);
    if (!text) abort();
    snprintf(text, 32, "%lld", value);
    command->owned[command->owned_count++] = text;
    word(command, bytes_of(text));
}

static void read_words(struct command *command, const char *name, const char *format, va_list words) {
    memset(command, 0, offsetof(struct command, words));
    command->count = command->owned_count = 0;
    command->replicates = false;
    word(command, bytes_of(name));
    for (const char *at = format; *at; at++) {
        switch (*at) {
            case '!': command->replicates = true; break;
            case 'c': word(command, bytes_of(va_arg(words, const char *))); break;
            case 's': word(command, text_of(va_arg(words, RedisModuleString *))); break;
            case 'l': word_of_number(command, va_arg(words, long long)); break;
            case 'b': {
                struct bytes text = {va_arg(words, const char *), 0};
                text.length = va_arg(words, size_t);
                look_at(text.at, text.length);
                word(command, text);
                break;
            }
            case 'v': {
                RedisModuleString **vector = va_arg(words, RedisModuleString **);
                size_t length = va_arg(words, size_t);
                for (size_t i = 0; i < length; i++) word(command, text_of(vector[i]));
                break;
            }
            default: store_fault("format %s", format);
        }
    }
}

static void free_words(struct command *command) {
    for (size_t i = 0; i < command->owned_count; i++) free(command->owned[i]);
}

static struct command spoken;

/* What may fail without harm: a counter of another type or value, a lane's pause of another type. */
static void may_fail(struct bytes name, enum store_reply reply) {
    if (reply == STORE_INTEGER || reply == STORE_WORD) return;
    if (!bytes_same(name, bytes_of("HINCRBY")) && !bytes_same(name, bytes_of("SISMEMBER")))
        store_fault("%.40s fails, and was not to", name.at);
}

static RedisModuleCallReply *host_Call(RedisModuleCtx *ctx, const char *name, const char *format, ...) {
    (void)ctx;
    va_list words;
    va_start(words, format);
    read_words(&spoken, name, format, words);
    va_end(words);
    if (host.moving && bytes_same(spoken.words[0], bytes_of("EXISTS"))) {
        free_words(&spoken);
        return NULL;
    }
    RedisModuleCallReply *reply = calloc(1, sizeof *reply);
    if (!reply) abort();
    host.replies++;
    bool wrote;
    reply->kind = store_call(&host.primary, spoken.words, spoken.count, host.now_ms, &reply->integer, &wrote);
    may_fail(spoken.words[0], reply->kind);
    host.wrote |= wrote;
    if (spoken.replicates && wrote) {
        host.replicated = true;
        long long integer;
        store_call(&host.replica, spoken.words, spoken.count, host.now_ms, &integer, &wrote);
    }
    free_words(&spoken);
    return reply;
}

static int host_Replicate(RedisModuleCtx *ctx, const char *name, const char *format, ...) {
    (void)ctx;
    va_list words;
    va_start(words, format);
    read_words(&spoken, name, format, words);
    va_end(words);
    long long integer;
    bool wrote;
    enum store_reply reply =
        store_call(&host.replica, spoken.words, spoken.count, host.now_ms, &integer, &wrote);
    if (reply != STORE_INTEGER && reply != STORE_WORD) store_fault("%.40s fails on a replica", name);
    host.replicated = true;
    free_words(&spoken);
    return REDISMODULE_OK;
}

static int host_CallReplyType(RedisModuleCallReply *reply) {
    if (reply->kind == STORE_INTEGER) return REDISMODULE_REPLY_INTEGER;
    return reply->kind == STORE_WORD ? REDISMODULE_REPLY_STRING : REDISMODULE_REPLY_ERROR;
}

static long long host_CallReplyInteger(RedisModuleCallReply *reply) {
    if (reply->kind != STORE_INTEGER) store_fault("the integer of a reply that is none");
    return reply->integer;
}

static void host_FreeCallReply(RedisModuleCallReply *reply) {
    free(reply);
    host.replies--;
}

static int host_NotifyKeyspaceEvent(RedisModuleCtx *ctx, int type, const char *event, RedisModuleString *key) {
    (void)ctx, (void)type;
    look_at(event, strlen(event));
    look_at(key->at, key->length);
    return REDISMODULE_OK;
}

/* -- the host's own ----------------------------------------------------------------------------------------------- */

typedef void (*function)(void);

static int get_api(const char *name, void *pointer) {
#define HOST_GIVES(result, called, parameters)                                 \
    if (strcmp(name, "RedisModule_" #called) == 0) {                           \
        result(*given) parameters = host_##called;                             \
        memcpy(pointer, &given, sizeof given);                                 \
        return REDISMODULE_OK;                                                 \
    }
    MODULE_FUNCTIONS(HOST_GIVES)
    MODULE_OPTIONAL(HOST_GIVES)
    return REDISMODULE_ERR;
}

static RedisModuleCtx context = {get_api};

static size_t kept_strings;

void host_load(void) {
    if (RedisModule_OnLoad(&context, NULL, 0) != REDISMODULE_OK) store_fault("the module does not load");
    kept_strings = host.strings;
}

void host_reset(long long now_ms) {
    store_clear(&host.primary);
    store_clear(&host.replica);
    host.now_ms = now_ms;
    host_cluster(false, false);
}

void host_clock(long long now_ms) {
    host.now_ms = now_ms;
    store_expire(&host.primary, now_ms);
    store_expire(&host.replica, now_ms);
}

void host_cluster(bool clustered, bool moving) {
    emq_clustered = clustered;
    host.moving = moving;
}

void host_write(const struct bytes *words, size_t count) {
    long long integer;
    bool wrote;
    store_call(&host.primary, words, count, host.now_ms, &integer, &wrote);
    store_call(&host.replica, words, count, host.now_ms, &integer, &wrote);
}

size_t host_commands(void) { return host.count; }

static size_t tokens_of(struct bytes base) {
    char name[512];
    if (base.length + 4 > sizeof name) return 0;
    memcpy(name, base.at, base.length);
    memcpy(name + base.length, "wake", 4);
    struct bytes key = {name, base.length + 4};
    const struct entry *wake = store_find(&host.primary, key);
    return wake && wake->type == REDISMODULE_KEYTYPE_LIST ? wake->count : 0;
}

static void hold_to(const char *name, size_t tokens_before, size_t tokens) {
    if (host.owed) store_fault("%s: %lld replies are missing", name, host.owed);
    if (host.strings != kept_strings) store_fault("%s: %zu strings are kept", name, host.strings - kept_strings);
    if (host.keys) store_fault("%s: %zu keys stay open", name, host.keys);
    if (host.replies) store_fault("%s: %zu replies are kept", name, host.replies);
    if (host.blocks) store_fault("%s: %zu blocks of memory are kept", name, host.blocks);
    if (host.refused && host.wrote && strcmp(host.refusal, "EMQSTALE job gone") != 0)
        store_fault("%s refuses with '%s' and has written", name, host.refusal);
    if (tokens > 64 && tokens > tokens_before) store_fault("%s: %zu wake tokens", name, tokens);
    if ((host.wrote || host.replicated) && !store_same(&host.primary, &host.replica))
        store_fault("%s: a replica holds something else", name);
}

void host_run(const struct bytes *words, size_t count) {
    const struct registered *command = NULL;
    for (size_t i = 0; i < host.count; i++) {
        if (bytes_same(words[0], bytes_of(host.commands[i].name))) command = host.commands + i;
    }
    if (!command) store_fault("%.40s is no command", words[0].at);
    /* What a server refuses by itself. */
    if (command->arity > 0 ? count != (size_t)command->arity : count < (size_t)-command->arity) return;
    RedisModuleString **argv = malloc(count * sizeof *argv);
    if (!argv) abort();
    size_t strings = host.strings;
    for (size_t i = 0; i < count; i++) argv[i] = string_of(words[i]);
    kept_strings += count;
    host.wrote = host.replicated = host.refused = false;
    host.owed = 1;
    struct bytes base = bytes_of("emq:{q}:");
    size_t tokens = tokens_of(base);
    command->run(&context, argv, (int)count);
    hold_to(command->name, tokens, tokens_of(base));
    for (size_t i = 0; i < count; i++) {
        if (argv[i]->references != 1) store_fault("%s keeps its argument %zu", command->name, i);
        release(argv[i]);
    }
    kept_strings -= count;
    if (host.strings != strings) store_fault("%s: strings are lost", command->name);
    free(argv);
}
