/* Commands that the module calls or replicates, and the events it tells of. */
#include "parts.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 8192 };

/* The words that a format and what follows it say; `owned` are those whose text is ours to free. */
struct command {
    struct bytes words[WORDS];
    char *owned[WORDS];
    size_t count, owned_count;
    bool replicates, as_user;
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
    command->replicates = command->as_user = false;
    word(command, bytes_of(name));
    for (const char *at = format; *at; at++) {
        switch (*at) {
            case '!': command->replicates = true; break;
            case 'C': command->as_user = true; break;
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

RedisModuleCallReply *host_Call(RedisModuleCtx *ctx, const char *name, const char *format, ...) {
    (void)ctx;
    va_list words;
    va_start(words, format);
    read_words(&spoken, name, format, words);
    va_end(words);
    if (spoken.as_user && host.narrow) {
        free_words(&spoken);
        errno = EACCES;
        return NULL;
    }
    /* A command of ours that the user may run with these keys refuses the call by its number of keys. */
    if (strncmp(name, "EMQ.", 4) == 0 || strncmp(name, "emq.", 4) == 0) {
        if (!bytes_same(spoken.words[1], bytes_of("0"))) store_fault("%.40s calls one of ours", name);
        free_words(&spoken);
        return NULL;
    }
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

int host_Replicate(RedisModuleCtx *ctx, const char *name, const char *format, ...) {
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

int host_CallReplyType(RedisModuleCallReply *reply) {
    if (reply->kind == STORE_INTEGER) return REDISMODULE_REPLY_INTEGER;
    return reply->kind == STORE_WORD ? REDISMODULE_REPLY_STRING : REDISMODULE_REPLY_ERROR;
}

long long host_CallReplyInteger(RedisModuleCallReply *reply) {
    if (reply->kind != STORE_INTEGER) store_fault("the integer of a reply that is none");
    return reply->integer;
}

void host_FreeCallReply(RedisModuleCallReply *reply) {
    free(reply);
    host.replies--;
}

int host_NotifyKeyspaceEvent(RedisModuleCtx *ctx, int type, const char *event, RedisModuleString *key) {
    (void)ctx, (void)type;
    look_at(event, strlen(event));
    look_at(key->at, key->length);
    return REDISMODULE_OK;
}
