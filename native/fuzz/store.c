#include "store.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../module.h"

void store_fault(const char *what, ...) {
    va_list more;
    va_start(more, what);
    fputs("FAULT: ", stderr);
    vfprintf(stderr, what, more);
    fputc('\n', stderr);
    va_end(more);
    abort();
}

bool bytes_same(struct bytes one, struct bytes other) {
    return one.length == other.length && (one.length == 0 || memcmp(one.at, other.at, one.length) == 0);
}

struct bytes bytes_of(const char *text) {
    struct bytes bytes = {text, strlen(text)};
    return bytes;
}

static void *need(void *memory) {
    if (!memory) abort();
    return memory;
}

static char *copy(struct bytes bytes) {
    char *made = need(malloc(bytes.length + 1));
    if (bytes.length) memcpy(made, bytes.at, bytes.length);
    made[bytes.length] = '\0';
    return made;
}

static void item_free(struct item *item) {
    free(item->name);
    free(item->value);
}

static void entry_free(struct entry *entry) {
    for (size_t i = 0; i < entry->count; i++) item_free(entry->items + i);
    free(entry->items);
    free(entry->key);
    free(entry);
}

void store_clear(struct store *store) {
    for (size_t i = 0; i < store->count; i++) entry_free(store->entries[i]);
    free(store->entries);
    memset(store, 0, sizeof *store);
}

static struct bytes key_of(const struct entry *entry) {
    struct bytes key = {entry->key, entry->key_length};
    return key;
}

static size_t place_of(const struct store *store, struct bytes key) {
    for (size_t i = 0; i < store->count; i++) {
        if (bytes_same(key_of(store->entries[i]), key)) return i;
    }
    return store->count;
}

struct entry *store_find(const struct store *store, struct bytes key) {
    size_t place = place_of(store, key);
    return place < store->count ? store->entries[place] : NULL;
}

static void drop_at(struct store *store, size_t place) {
    entry_free(store->entries[place]);
    store->entries[place] = store->entries[--store->count];
}

void store_delete(struct store *store, struct bytes key) {
    size_t place = place_of(store, key);
    if (place < store->count) drop_at(store, place);
}

void store_expire(struct store *store, long long now_ms) {
    for (size_t i = 0; i < store->count;) {
        if (store->entries[i]->ends_ms && store->entries[i]->ends_ms <= now_ms) drop_at(store, i);
        else i++;
    }
}

struct entry *store_open(struct store *store, struct bytes key, int type) {
    struct entry *found = store_find(store, key);
    if (found) return found->type == type ? found : NULL;
    if (store->count == store->room) {
        store->room = store->room ? 2 * store->room : 16;
        store->entries = need(realloc(store->entries, store->room * sizeof *store->entries));
    }
    struct entry *made = need(calloc(1, sizeof *made));
    made->key = copy(key);
    made->key_length = key.length;
    made->type = type;
    store->entries[store->count++] = made;
    return made;
}

void store_settle(struct store *store, struct entry *entry) {
    if (entry->count == 0) store_delete(store, key_of(entry));
}

static struct bytes name_of(const struct item *item) {
    struct bytes name = {item->name, item->name_length};
    return name;
}

static struct bytes value_of(const struct item *item) {
    struct bytes value = {item->value, item->value_length};
    return value;
}

struct item *item_find(const struct entry *entry, struct bytes name) {
    for (size_t i = 0; i < entry->count; i++) {
        if (bytes_same(name_of(entry->items + i), name)) return entry->items + i;
    }
    return NULL;
}

void item_remove(struct entry *entry, struct item *item) {
    size_t place = (size_t)(item - entry->items);
    item_free(item);
    memmove(item, item + 1, (--entry->count - place) * sizeof *item);
}

static struct item *item_at(struct entry *entry, size_t place) {
    if (entry->count == entry->room) {
        entry->room = entry->room ? 2 * entry->room : 4;
        entry->items = need(realloc(entry->items, entry->room * sizeof *entry->items));
    }
    struct item *item = entry->items + place;
    memmove(item + 1, item, (entry->count++ - place) * sizeof *item);
    memset(item, 0, sizeof *item);
    return item;
}

void item_put(struct entry *entry, struct bytes name, struct bytes value) {
    struct item *item = item_find(entry, name);
    if (!item) {
        item = item_at(entry, entry->count);
        item->name = copy(name);
        item->name_length = name.length;
    }
    free(item->value);
    item->value = copy(value);
    item->value_length = value.length;
}

void item_push(struct entry *entry, struct bytes value, bool head) {
    struct item *item = item_at(entry, head ? 0 : entry->count);
    item->name = copy(bytes_of(""));
    item->value = copy(value);
    item->value_length = value.length;
}

/* Whether a member of that score and name comes after `item`. */
static bool is_after(const struct item *item, double score, struct bytes name) {
    if (item->score != score) return item->score < score;
    size_t shorter = item->name_length < name.length ? item->name_length : name.length;
    int order = shorter ? memcmp(item->name, name.at, shorter) : 0;
    return order < 0 || (order == 0 && item->name_length < name.length);
}

void item_score(struct entry *entry, struct bytes name, double score) {
    struct item *old = item_find(entry, name);
    if (old) item_remove(entry, old);
    size_t low = 0, high = entry->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (is_after(entry->items + middle, score, name)) low = middle + 1;
        else high = middle;
    }
    struct item *item = item_at(entry, low);
    item->name = copy(name);
    item->name_length = name.length;
    item->score = score;
}

static bool same_item(const struct item *one, const struct item *other) {
    return one->score == other->score && bytes_same(value_of(one), value_of(other));
}

static bool same_entry(const struct entry *one, const struct entry *other) {
    if (one->type != other->type || one->count != other->count || one->ends_ms != other->ends_ms) return false;
    for (size_t i = 0; i < one->count; i++) {
        const struct item *mine = one->items + i, *theirs = other->items + i;
        if (one->type != REDISMODULE_KEYTYPE_LIST) theirs = item_find(other, name_of(mine));
        if (!theirs || !same_item(mine, theirs)) return false;
    }
    return true;
}

bool store_same(const struct store *one, const struct store *other) {
    if (one->count != other->count) return false;
    for (size_t i = 0; i < one->count; i++) {
        const struct entry *found = store_find(other, key_of(one->entries[i]));
        if (!found || !same_entry(one->entries[i], found)) return false;
    }
    return true;
}

/* A number of a command, which the module has written itself. */
static double number_of(struct bytes word) {
    char *end;
    double value = strtod(word.at, &end);
    if (word.length == 0 || end != word.at + word.length) store_fault("no number: %.40s", word.at);
    return value;
}

static bool integer_of(struct bytes word, long long *value) {
    char *end;
    *value = strtoll(word.at, &end, 10);
    return word.length && end == word.at + word.length && word.at[0] != ' ';
}

static long long zadd(struct entry *entry, const struct bytes *words, size_t count) {
    bool only_there = count && bytes_same(words[0], bytes_of("XX"));
    size_t first = only_there ? 1 : 0;
    if ((count - first) % 2 || count == first) store_fault("ZADD of %zu words", count);
    long long added = 0;
    for (size_t i = first; i < count; i += 2) {
        bool there = item_find(entry, words[i + 1]) != NULL;
        if (there || !only_there) item_score(entry, words[i + 1], number_of(words[i]));
        added += !there;
    }
    return added;
}

static long long remove_all(struct entry *entry, const struct bytes *words, size_t count) {
    long long removed = 0;
    for (size_t i = 0; i < count; i++) {
        struct item *item = item_find(entry, words[i]);
        if (item) item_remove(entry, item);
        removed += item != NULL;
    }
    return removed;
}

static long long remove_by_rank(struct entry *entry, long long first, long long last) {
    if (first < 0 || last < first) store_fault("ranks %lld to %lld", first, last);
    long long removed = 0;
    while ((size_t)first < entry->count && removed <= last - first) {
        item_remove(entry, entry->items + first);
        removed++;
    }
    return removed;
}

static long long hset(struct entry *entry, const struct bytes *words, size_t count) {
    if (!count || count % 2) store_fault("HSET of %zu words", count);
    for (size_t i = 0; i < count; i += 2) item_put(entry, words[i], words[i + 1]);
    return 0;
}

static enum store_reply hincrby(struct entry *entry, const struct bytes *words, long long *sum) {
    struct item *item = item_find(entry, words[0]);
    long long value = 0, by;
    if (item && !integer_of(value_of(item), &value)) return STORE_NO_INTEGER;
    if (!integer_of(words[1], &by) || __builtin_add_overflow(value, by, sum)) return STORE_NO_INTEGER;
    char text[32];
    snprintf(text, sizeof text, "%lld", *sum);
    item_put(entry, words[0], bytes_of(text));
    return STORE_INTEGER;
}

static void set(struct store *store, const struct bytes *words, size_t count, long long now_ms) {
    store_delete(store, words[0]);
    struct entry *entry = store_open(store, words[0], REDISMODULE_KEYTYPE_STRING);
    item_put(entry, bytes_of(""), words[1]);
    if (count == 2) return;
    long long span;
    if (count != 4 || !bytes_same(words[2], bytes_of("PX")) || !integer_of(words[3], &span) || span < 1)
        store_fault("SET with an end that is none");
    if (__builtin_add_overflow(now_ms, span, &entry->ends_ms)) store_fault("SET beyond the end of time");
}

static long long delete_all(struct store *store, const struct bytes *words, size_t count) {
    size_t before = store->count;
    for (size_t i = 0; i < count; i++) store_delete(store, words[i]);
    return (long long)(before - store->count);
}

static int type_for(struct bytes name) {
    static const struct {
        const char *name;
        int type;
    } types[] = {
        {"ZADD", REDISMODULE_KEYTYPE_ZSET}, {"ZREM", REDISMODULE_KEYTYPE_ZSET},
        {"ZREMRANGEBYRANK", REDISMODULE_KEYTYPE_ZSET}, {"HSET", REDISMODULE_KEYTYPE_HASH},
        {"HDEL", REDISMODULE_KEYTYPE_HASH}, {"HINCRBY", REDISMODULE_KEYTYPE_HASH},
        {"LPUSH", REDISMODULE_KEYTYPE_LIST}, {"RPUSH", REDISMODULE_KEYTYPE_LIST},
        {"SADD", REDISMODULE_KEYTYPE_SET}, {"SISMEMBER", REDISMODULE_KEYTYPE_SET},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (bytes_same(name, bytes_of(types[i].name))) return types[i].type;
    }
    store_fault("a command that no server of ours is asked for: %.40s", name.at);
}

enum store_reply store_call(struct store *store, const struct bytes *words, size_t count, long long now_ms,
                            long long *integer, bool *wrote) {
    if (count < 2) store_fault("a command of %zu words", count);
    struct bytes name = words[0];
    *integer = 0;
    *wrote = true;
    if (bytes_same(name, bytes_of("DEL"))) {
        *integer = delete_all(store, words + 1, count - 1);
        *wrote = *integer > 0;
        return STORE_INTEGER;
    }
    if (bytes_same(name, bytes_of("SET"))) {
        if (count < 3) store_fault("SET of %zu words", count);
        set(store, words + 1, count - 1, now_ms);
        return STORE_WORD;
    }
    if (bytes_same(name, bytes_of("EXISTS"))) {
        for (size_t i = 1; i < count; i++) *integer += store_find(store, words[i]) != NULL;
        *wrote = false;
        return STORE_INTEGER;
    }
    if (bytes_same(name, bytes_of("PUBLISH"))) {
        *wrote = false;
        return STORE_INTEGER;
    }
    if (count < 3) store_fault("%.40s of %zu words", name.at, count);
    struct entry *entry = store_open(store, words[1], type_for(name));
    if (!entry) {
        *wrote = false;
        return STORE_WRONGTYPE;
    }
    enum store_reply reply = STORE_INTEGER;
    const struct bytes *rest = words + 2;
    size_t more = count - 2;
    if (bytes_same(name, bytes_of("ZADD"))) *integer = zadd(entry, rest, more);
    else if (bytes_same(name, bytes_of("HSET"))) *integer = hset(entry, rest, more);
    else if (bytes_same(name, bytes_of("HINCRBY"))) reply = more == 2 ? hincrby(entry, rest, integer) : STORE_NO_INTEGER;
    else if (bytes_same(name, bytes_of("ZREMRANGEBYRANK")))
        *wrote = (*integer = remove_by_rank(entry, (long long)number_of(rest[0]), (long long)number_of(rest[1]))) > 0;
    else if (bytes_same(name, bytes_of("ZREM")) || bytes_same(name, bytes_of("HDEL")))
        *wrote = (*integer = remove_all(entry, rest, more)) > 0;
    else if (bytes_same(name, bytes_of("SISMEMBER"))) {
        *integer = item_find(entry, rest[0]) != NULL;
        *wrote = false;
    } else if (bytes_same(name, bytes_of("SADD"))) {
        for (size_t i = 0; i < more; i++) item_put(entry, rest[i], bytes_of(""));
    } else {
        for (size_t i = 0; i < more; i++) item_push(entry, rest[i], bytes_same(name, bytes_of("LPUSH")));
    }
    if (reply != STORE_INTEGER) *wrote = false;
    store_settle(store, entry);
    return reply;
}
