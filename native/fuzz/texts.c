/* Texts, and what a command replies. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes text_of(const RedisModuleString *string) {
    struct bytes text = {string->at, string->length};
    return text;
}

RedisModuleString *string_of(struct bytes text) {
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

void release(RedisModuleString *string) {
    if (string->references < 1) store_fault("a string is freed twice");
    if (--string->references) return;
    free(string->at);
    free(string);
    host.strings--;
}

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

int host_WrongArity(RedisModuleCtx *ctx) {
    (void)ctx;
    return refuse("ERR wrong number of arguments");
}

int host_ReplyWithError(RedisModuleCtx *ctx, const char *text) {
    (void)ctx;
    return refuse(text);
}

int host_ReplyWithLongLong(RedisModuleCtx *ctx, long long value) {
    (void)ctx, (void)value;
    replied(0);
    return REDISMODULE_OK;
}

int host_ReplyWithArray(RedisModuleCtx *ctx, long length) {
    (void)ctx;
    if (length < 0) store_fault("an array of %ld", length);
    replied(length);
    return REDISMODULE_OK;
}

static volatile char sink;

void look_at(const char *at, size_t length) {
    for (size_t i = 0; i < length; i++) sink = at[i];
}

int host_ReplyWithStringBuffer(RedisModuleCtx *ctx, const char *at, size_t length) {
    (void)ctx;
    look_at(at, length);
    replied(0);
    return REDISMODULE_OK;
}

int host_ReplyWithString(RedisModuleCtx *ctx, RedisModuleString *string) {
    return host_ReplyWithStringBuffer(ctx, string->at, string->length);
}

RedisModuleString *host_CreateString(RedisModuleCtx *ctx, const char *at, size_t length) {
    (void)ctx;
    struct bytes text = {at, length};
    return string_of(text);
}

RedisModuleString *host_CreateStringFromLongLong(RedisModuleCtx *ctx, long long value) {
    (void)ctx;
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    return string_of(bytes_of(text));
}

void host_FreeString(RedisModuleCtx *ctx, RedisModuleString *string) {
    (void)ctx;
    release(string);
}

RedisModuleString *host_HoldString(RedisModuleCtx *ctx, RedisModuleString *string) {
    (void)ctx;
    string->references++;
    return string;
}

const char *host_StringPtrLen(const RedisModuleString *string, size_t *length) {
    if (length) *length = string->length;
    return string->at;
}
