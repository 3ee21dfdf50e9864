/* Admission of a flat row (protocol §3, §5). Twin: lua/lib/admit.lua. */
#include "emq.h"

bool emq_known(const struct queue *queue, RedisModuleString *row, struct text id) {
    if (RedisModule_KeyExists(queue->ctx, row)) return true;
    RedisModuleString *result = emq_key(queue, "job:", id, ":result");
    bool lives = RedisModule_KeyExists(queue->ctx, result);
    emq_free(queue, result);
    return lives;
}

void emq_write_row(const struct queue *queue, RedisModuleString *row, const char *state, RedisModuleString *payload) {
    emq_done(RedisModule_Call(queue->ctx, "HSET", "!scccccs", row, "state", state, "attempts", "0", "payload", payload));
}
