/* EMQ.SCHEDULE 2 row schedule id payload in|at due: admits one job to run later, fenced by its id (protocol §5).
 * Twin: lua/schedule.lua. */
#include "emq.h"

#define VERB "EMQ.SCHEDULE"

/* A duplicate has a row, or a finished job's result still lives. */
static bool known(const struct queue *queue, RedisModuleString *row, struct text id) {
    if (RedisModule_KeyExists(queue->ctx, row)) return true;
    RedisModuleString *result = emq_key(queue, "job:", id, ":result");
    bool lives = RedisModule_KeyExists(queue->ctx, result);
    emq_free(queue, result);
    return lives;
}

int emq_schedule(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 8) return RedisModule_WrongArity(ctx);
    RedisModuleString *row = argv[2], *schedule = argv[3], *id = argv[4], *payload = argv[5];
    struct text name = emq_text(id);
    if (!emq_same(emq_text(argv[1]), emq_word("2"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "2"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, row)) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE);
    if (!emq_is_key(&queue, row, "job:", name) || !emq_is_key(&queue, schedule, "schedule", emq_word("")))
        return RedisModule_ReplyWithError(ctx, "ERR " VERB " keys must be the row of the id and schedule");
    long long due;
    switch (emq_due(&due, argv[6], argv[7])) {
        case EMQ_DUE_MODE: return RedisModule_ReplyWithError(ctx, EMQ_MODE(VERB));
        case EMQ_DUE_VALUE: return RedisModule_ReplyWithError(ctx, EMQ_DUE(VERB));
        case EMQ_DUE_SOUND: break;
    }
    if (!emq_is_job(name)) return RedisModule_ReplyWithError(ctx, EMQ_NOT_A_JOB);
    if (known(&queue, row, name)) return RedisModule_ReplyWithLongLong(ctx, 0);
    if (!emq_fits(&queue, schedule, REDISMODULE_KEYTYPE_ZSET)) return RedisModule_ReplyWithError(ctx, EMQ_WRONGTYPE);
    emq_done(RedisModule_Call(ctx, "ZADD", "!sls", schedule, due, id));
    emq_done(RedisModule_Call(ctx, "HSET", "!scccccs", row, "state", "scheduled", "attempts", "0", "payload", payload));
    emq_wake_if_first(&queue, schedule, id);
    return RedisModule_ReplyWithLongLong(ctx, 1);
}
