/* What the parts of the host share: its state, the module interface's own types, and texts. */
#ifndef ECHOMQ_FUZZ_PARTS_H
#define ECHOMQ_FUZZ_PARTS_H

#include "../module.h"
#include "store.h"

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

struct host {
    struct store primary, replica;
    long long now_ms;
    bool wrote, replicated, refused, moving, narrow;
    char refusal[256];
    long long owed;
    size_t strings, keys, replies, blocks;
    struct registered commands[32];
    size_t count;
};

extern struct host host;

struct bytes text_of(const RedisModuleString *string);
/* A new text with a copy of `text`, held once. */
RedisModuleString *string_of(struct bytes text);
/* Lets go of a text; the last hold frees it. */
void release(RedisModuleString *string);
/* Reads every byte, as a server would that sends or stores them. */
void look_at(const char *at, size_t length);

#define HOST_DECLARES(result, called, parameters) result host_##called parameters;
MODULE_FUNCTIONS(HOST_DECLARES)
MODULE_OPTIONAL(HOST_DECLARES)

#endif
