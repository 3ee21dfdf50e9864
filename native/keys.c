/* The keys of a queue (protocol §2), and what they hold. */
#include <errno.h>
#include <string.h>

#include "emq.h"

RedisModuleString *emq_key(const struct queue *queue, const char *part, struct text id, const char *tail) {
    const size_t part_length = strlen(part), tail_length = strlen(tail);
    const size_t length = queue->base.length + part_length + id.length + tail_length;
    char small[256];
    char *buffer = length <= sizeof small ? small : RedisModule_Alloc(length);
    char *end = buffer;
    memcpy(end, queue->base.at, queue->base.length);
    end += queue->base.length;
    memcpy(end, part, part_length);
    end += part_length;
    memcpy(end, id.at, id.length);
    end += id.length;
    memcpy(end, tail, tail_length);
    RedisModuleString *key = RedisModule_CreateString(queue->ctx, buffer, length);
    if (buffer != small) RedisModule_Free(buffer);
    return key;
}

static bool is_key(const struct queue *queue, const RedisModuleString *key, const char *part, struct text id) {
    struct text given = emq_text(key);
    size_t length = strlen(part);
    if (given.length != queue->base.length + length + id.length) return false;
    return memcmp(given.at, queue->base.at, queue->base.length) == 0 &&
           memcmp(given.at + queue->base.length, part, length) == 0 &&
           memcmp(given.at + queue->base.length + length, id.at, id.length) == 0;
}

RedisModuleString *emq_key_given(struct queue *queue, RedisModuleString *given, const char *part, struct text id) {
    if (is_key(queue, given, part, id)) return RedisModule_HoldString(queue->ctx, given);
    queue->strays = true;
    return emq_key(queue, part, id, "");
}

/* The server is asked for the same command with the right keys, as this user. Should it let the call through, the
 * command refuses it at once, by its number of keys. */
bool emq_may(const struct queue *queue, RedisModuleString **argv, int argc, RedisModuleString *const *keys, int count) {
    if (!queue->strays) return true;
    enum { MOST = 8 };
    RedisModuleString *words[MOST];
    for (int i = 0; i < MOST; i++) words[i] = i >= 1 && i <= count ? keys[i - 1] : emq_words.zero;
    errno = 0;
    emq_done(RedisModule_Call(queue->ctx, emq_text(argv[0]).at, "Cv", words, (size_t)(argc <= MOST ? argc - 1 : MOST)));
    if (errno != EACCES) return true;
    RedisModule_ReplyWithError(queue->ctx, EMQ_FORBIDDEN);
    return false;
}

RedisModuleString *emq_key_named(const struct queue *queue, const char *name) {
    return emq_key(queue, name, EMQ_NOTHING, "");
}

void emq_free(const struct queue *queue, RedisModuleString *string) { RedisModule_FreeString(queue->ctx, string); }

int emq_type(const struct queue *queue, RedisModuleString *key, size_t *length) {
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, key, REDISMODULE_READ);
    if (!handle) {
        *length = 0;
        return REDISMODULE_KEYTYPE_EMPTY;
    }
    int type = RedisModule_KeyType(handle);
    *length = RedisModule_ValueLength(handle);
    RedisModule_CloseKey(handle);
    return type;
}

bool emq_fits(const struct queue *queue, RedisModuleString *key, int type) {
    size_t length;
    int found = emq_type(queue, key, &length);
    return found == type || found == REDISMODULE_KEYTYPE_EMPTY;
}

bool emq_member(const struct queue *queue, RedisModuleString *key, RedisModuleString *member) {
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, key, REDISMODULE_READ);
    double score;
    bool found = handle && RedisModule_ZsetScore(handle, member, &score) == REDISMODULE_OK;
    if (handle) RedisModule_CloseKey(handle);
    return found;
}

bool emq_clustered;

/* The server lets a call to two keys that are not there through only where the slot is at rest: here the row and the
 * result of the empty id. */
bool emq_is_whole(const struct queue *queue) {
    if (!emq_clustered) return true;
    RedisModuleString *row = emq_key_named(queue, "job:"), *result = emq_key_named(queue, "job::result");
    RedisModuleCallReply *reply = RedisModule_Call(queue->ctx, "EXISTS", "ss", row, result);
    emq_free(queue, row);
    emq_free(queue, result);
    emq_done(reply);
    return reply != NULL;
}

void emq_done(RedisModuleCallReply *reply) {
    if (reply) RedisModule_FreeCallReply(reply);
}
