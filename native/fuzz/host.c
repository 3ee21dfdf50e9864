#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../emq.h"
#include "parts.h"

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

struct host host;

void host_SetModuleAttribs(RedisModuleCtx *ctx, const char *name, int version, int api) {
    (void)ctx, (void)name, (void)version, (void)api;
}

int host_IsModuleNameBusy(const char *name) {
    (void)name;
    return 0;
}

void host_SetModuleOptions(RedisModuleCtx *ctx, int options) { (void)ctx, (void)options; }

int host_CreateCommand(RedisModuleCtx *ctx, const char *name, RedisModuleCmdFunc run, const char *flags, int first,
                       int last, int step) {
    (void)ctx, (void)flags, (void)first, (void)last, (void)step;
    struct registered *command = host.commands + host.count++;
    if (host.count > sizeof host.commands / sizeof *host.commands) store_fault("too many commands");
    snprintf(command->name, sizeof command->name, "%s", name);
    command->run = run;
    return REDISMODULE_OK;
}

RedisModuleCommand *host_GetCommand(RedisModuleCtx *ctx, const char *name) {
    (void)ctx, (void)name;
    return (RedisModuleCommand *)(host.commands + host.count - 1);
}

int host_SetCommandInfo(RedisModuleCommand *command, const RedisModuleCommandInfo *info) {
    ((struct registered *)command)->arity = info->arity;
    return REDISMODULE_OK;
}

int host_SetCommandACLCategories(RedisModuleCommand *command, const char *categories) {
    (void)command, (void)categories;
    return REDISMODULE_OK;
}

static void *block(void *made, bool had) {
    if (!made) abort();
    host.blocks += !had;
    return made;
}

void *host_Alloc(size_t size) { return block(malloc(size), false); }

void *host_Calloc(size_t count, size_t size) { return block(calloc(count, size), false); }

void *host_Realloc(void *old, size_t size) { return block(realloc(old, size), old != NULL); }

void host_Free(void *old) {
    host.blocks -= old != NULL;
    free(old);
}

long long host_Milliseconds(void) { return host.now_ms; }

long long host_CachedMicroseconds(void) { return host.now_ms * 1000; }

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
    host_narrow(false);
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

void host_narrow(bool narrow) { host.narrow = narrow; }

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
