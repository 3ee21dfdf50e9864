/* A keyspace in memory: as much of a server as the module's commands write to, with types checked as a server does. */
#ifndef ECHOMQ_FUZZ_STORE_H
#define ECHOMQ_FUZZ_STORE_H

#include <stdbool.h>
#include <stddef.h>

struct bytes {
    const char *at;
    size_t length;
};

/* A member with its score, a field with its value, an element of a list. */
struct item {
    char *name, *value;
    size_t name_length, value_length;
    double score;
};

/* `type` is one of REDISMODULE_KEYTYPE_*; a string is one item with a value. */
struct entry {
    char *key;
    size_t key_length;
    int type;
    struct item *items;
    size_t count, room;
    long long ends_ms;
};

struct store {
    struct entry **entries;
    size_t count, room;
};

_Noreturn void store_fault(const char *what, ...);

bool bytes_same(struct bytes one, struct bytes other);
struct bytes bytes_of(const char *text);

void store_clear(struct store *store);
struct entry *store_find(const struct store *store, struct bytes key);
void store_delete(struct store *store, struct bytes key);
/* Deletes what has ended. */
void store_expire(struct store *store, long long now_ms);
bool store_same(const struct store *one, const struct store *other);
/* The entry of that type, made when there is none; NULL when it is of another. */
struct entry *store_open(struct store *store, struct bytes key, int type);
/* Deletes an entry without items. */
void store_settle(struct store *store, struct entry *entry);

struct item *item_find(const struct entry *entry, struct bytes name);
void item_remove(struct entry *entry, struct item *item);
void item_put(struct entry *entry, struct bytes name, struct bytes value);
void item_score(struct entry *entry, struct bytes name, double score);
void item_push(struct entry *entry, struct bytes value, bool head);

/* What a command answers. */
enum store_reply { STORE_INTEGER, STORE_WORD, STORE_WRONGTYPE, STORE_NO_INTEGER };

/* Runs one of the few commands that the module calls; anything else is a fault. */
enum store_reply store_call(struct store *store, const struct bytes *words, size_t count, long long now_ms,
                            long long *integer, bool *wrote);

#endif
