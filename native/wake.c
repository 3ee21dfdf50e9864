/* Tokens for parked consumers (protocol §12.2). A token is a hint: where the list holds another type, nobody is woken
 * and nothing else is harmed. */
#include <math.h>

#include "emq.h"

enum { MOST = 64 };

void emq_wake(const struct queue *queue, long long n) {
    if (n < 1) return;
    RedisModuleString *wake = emq_key_named(queue, "wake");
    size_t length;
    int type = emq_type(queue, wake, &length);
    bool fits = type == REDISMODULE_KEYTYPE_LIST || type == REDISMODULE_KEYTYPE_EMPTY;
    if (fits && length < MOST) {
        RedisModuleString *tokens[MOST];
        size_t count = MOST - length;
        if ((unsigned long long)n < count) count = (size_t)n;
        for (size_t i = 0; i < count; i++) tokens[i] = emq_words.token;
        emq_done(RedisModule_Call(queue->ctx, "LPUSH", "!sv", wake, tokens, count));
    }
    emq_free(queue, wake);
}

void emq_wake_if_first(const struct queue *queue, RedisModuleString *schedule, const RedisModuleString *id) {
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, schedule, REDISMODULE_READ);
    if (!handle) return;
    bool first = false;
    if (RedisModule_ZsetFirstInScoreRange(handle, -INFINITY, INFINITY, 0, 0) == REDISMODULE_OK &&
        !RedisModule_ZsetRangeEndReached(handle)) {
        RedisModuleString *earliest = RedisModule_ZsetRangeCurrentElement(handle, NULL);
        first = emq_same(emq_text(earliest), emq_text(id));
        emq_free(queue, earliest);
    }
    RedisModule_ZsetRangeStop(handle);
    RedisModule_CloseKey(handle);
    if (first) emq_wake(queue, 1);
}
