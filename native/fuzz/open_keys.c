/* What the module reads and writes through an open key. */
#include "parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int host_KeyExists(RedisModuleCtx *ctx, RedisModuleString *key) {
    (void)ctx;
    return store_find(&host.primary, text_of(key)) != NULL;
}

RedisModuleKey *host_OpenKey(RedisModuleCtx *ctx, RedisModuleString *name, int mode) {
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

void host_CloseKey(RedisModuleKey *key) {
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

int host_KeyType(RedisModuleKey *key) {
    const struct entry *entry = store_find(&host.primary, key->name);
    return entry ? entry->type : REDISMODULE_KEYTYPE_EMPTY;
}

size_t host_ValueLength(RedisModuleKey *key) {
    const struct entry *entry = store_find(&host.primary, key->name);
    if (!entry) return 0;
    return entry->type == REDISMODULE_KEYTYPE_STRING ? entry->items[0].value_length : entry->count;
}

static void needs_write(const RedisModuleKey *key) {
    if (!(key->mode & REDISMODULE_WRITE)) store_fault("%.60s is written and was opened to be read", key->name.at);
    host.wrote = true;
}

int host_DeleteKey(RedisModuleKey *key) {
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

int host_HashGet(RedisModuleKey *key, int flags, ...) {
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

int host_HashSet(RedisModuleKey *key, int flags, ...) {
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

int host_ZsetAdd(RedisModuleKey *key, double score, RedisModuleString *member, int *flags) {
    if (flags && *flags) store_fault("ZsetAdd with flags");
    if (isnan(score)) store_fault("a score that is no number");
    needs_write(key);
    entry_of(key, REDISMODULE_KEYTYPE_ZSET);
    item_score(store_open(&host.primary, key->name, REDISMODULE_KEYTYPE_ZSET), text_of(member), score);
    return REDISMODULE_OK;
}

int host_ZsetScore(RedisModuleKey *key, RedisModuleString *member, double *score) {
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

int host_ZsetFirstInScoreRange(RedisModuleKey *key, double least, double most, int without_least,
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

RedisModuleString *host_ZsetRangeCurrentElement(RedisModuleKey *key, double *score) {
    const struct item *item = under(key);
    if (!item) store_fault("the element behind the last");
    struct bytes name = {item->name, item->name_length};
    if (score) *score = item->score;
    return string_of(name);
}

int host_ZsetRangeEndReached(RedisModuleKey *key) { return under(key) == NULL; }

int host_ZsetRangeNext(RedisModuleKey *key) {
    if (!under(key)) return 0;
    key->place++;
    return under(key) != NULL;
}

void host_ZsetRangeStop(RedisModuleKey *key) { key->iterating = false; }

RedisModuleString *host_ListGet(RedisModuleKey *key, long index) {
    const struct entry *entry = entry_of(key, REDISMODULE_KEYTYPE_LIST);
    if (!entry || index < 0 || (size_t)index >= entry->count) return NULL;
    struct bytes value = {entry->items[index].value, entry->items[index].value_length};
    return string_of(value);
}
