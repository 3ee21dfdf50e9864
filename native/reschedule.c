/* EMQ.RESCHEDULE 2 row schedule id in|at due: moves a scheduled job in time (protocol §5).
 * Twin: lua/reschedule.lua. */
#include "emq.h"

#define VERB "EMQ.RESCHEDULE"

int emq_reschedule(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 7) return RedisModule_WrongArity(ctx);
    RedisModuleString *row = argv[2], *schedule = argv[3], *id = argv[4];
    struct text name = emq_text(id);
    if (!emq_same(emq_text(argv[1]), emq_word("2"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "2"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, row)) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE);
    if (!emq_is_key(&queue, row, "job:", name) || !emq_is_key(&queue, schedule, "schedule", emq_word("")))
        return RedisModule_ReplyWithError(ctx, "ERR " VERB " keys must be the row of the id and schedule");
    long long due;
    switch (emq_due(&due, argv[5], argv[6])) {
        case EMQ_DUE_MODE: return RedisModule_ReplyWithError(ctx, EMQ_MODE(VERB));
        case EMQ_DUE_VALUE: return RedisModule_ReplyWithError(ctx, EMQ_DUE(VERB));
        case EMQ_DUE_SOUND: break;
    }
    if (!emq_is_job(name)) return RedisModule_ReplyWithError(ctx, EMQ_NOT_A_JOB);
    bool lives = RedisModule_KeyExists(ctx, row);
    if (!emq_fits(&queue, schedule, REDISMODULE_KEYTYPE_ZSET)) return RedisModule_ReplyWithError(ctx, EMQ_WRONGTYPE);
    bool scheduled = emq_member(&queue, schedule, id);
    if (!lives) {
        if (scheduled) emq_done(RedisModule_Call(ctx, "ZREM", "!ss", schedule, id));
        return RedisModule_ReplyWithLongLong(ctx, -1);
    }
    if (!scheduled) return RedisModule_ReplyWithError(ctx, "EMQSTATE reschedule not scheduled");
    emq_done(RedisModule_Call(ctx, "ZADD", "!scls", schedule, "XX", due, id));
    emq_wake_if_first(&queue, schedule, id);
    return RedisModule_ReplyWithLongLong(ctx, 1);
}
