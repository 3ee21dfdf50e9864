/* The row (protocol §3): what admission, claims and moves write to it, past RM_Call, which costs a tenth more.
 *
 * Each writes as HSET would: one event for those who listen to the keyspace, one HSET for replicas and files.
 */
#include "emq.h"

struct words emq_words;

void emq_make_words(void) {
    static const struct {
        RedisModuleString **place;
        struct text text;
    } words[] = {
        {&emq_words.state, {"state", 5}},       {&emq_words.attempts, {"attempts", 8}}, {&emq_words.payload, {"payload", 7}},
        {&emq_words.pending, {"pending", 7}},   {&emq_words.active, {"active", 6}},     {&emq_words.zero, {"0", 1}},
        {&emq_words.scheduled, {"scheduled", 9}}, {&emq_words.token, {"1", 1}},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        *words[i].place = RedisModule_CreateString(NULL, words[i].text.at, words[i].text.length);
}

static RedisModuleKey *open_row(const struct queue *queue, RedisModuleString *row) {
    return RedisModule_OpenKey(queue->ctx, row, REDISMODULE_READ | REDISMODULE_WRITE);
}

static void close_row(const struct queue *queue, RedisModuleString *row, RedisModuleKey *handle) {
    RedisModule_CloseKey(handle);
    RedisModule_NotifyKeyspaceEvent(queue->ctx, REDISMODULE_NOTIFY_HASH, "hset", row);
}

void emq_set_state(const struct queue *queue, RedisModuleString *row, RedisModuleString *state) {
    RedisModuleKey *handle = open_row(queue, row);
    RedisModule_HashSet(handle, REDISMODULE_HASH_NONE, emq_words.state, state, NULL);
    close_row(queue, row, handle);
    RedisModule_Replicate(queue->ctx, "HSET", "sss", row, emq_words.state, state);
}

void emq_set_active(const struct queue *queue, RedisModuleString *row, long long attempts) {
    const struct words *w = &emq_words;
    RedisModuleString *count = RedisModule_CreateStringFromLongLong(queue->ctx, attempts);
    RedisModuleKey *handle = open_row(queue, row);
    RedisModule_HashSet(handle, REDISMODULE_HASH_NONE, w->state, w->active, w->attempts, count, NULL);
    close_row(queue, row, handle);
    RedisModule_Replicate(queue->ctx, "HSET", "sssss", row, w->state, w->active, w->attempts, count);
    emq_free(queue, count);
}

void emq_write_row(const struct queue *queue, RedisModuleString *row, RedisModuleString *state, RedisModuleString *payload) {
    const struct words *w = &emq_words;
    RedisModuleKey *handle = open_row(queue, row);
    RedisModule_HashSet(handle, REDISMODULE_HASH_NONE, w->state, state, w->attempts, w->zero, w->payload, payload, NULL);
    close_row(queue, row, handle);
    RedisModule_Replicate(queue->ctx, "HSET", "sssssss", row, w->state, state, w->attempts, w->zero, w->payload, payload);
}

bool emq_known(const struct queue *queue, RedisModuleString *row, struct text id) {
    if (RedisModule_KeyExists(queue->ctx, row)) return true;
    RedisModuleString *result = emq_key(queue, "job:", id, ":result");
    bool lives = RedisModule_KeyExists(queue->ctx, result);
    emq_free(queue, result);
    return lives;
}
