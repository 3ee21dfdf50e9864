/* EMQ.RESCHEDULE 2 row schedule id in|at due: moves a scheduled job in time (protocol §5).
 * Twin: lua/reschedule.lua. */
#include "emq.h"

#define VERB "EMQ.RESCHEDULE"

static int move(const struct queue *queue, RedisModuleString *row, RedisModuleString *schedule, RedisModuleString *id,
                long long due) {
    bool lives = RedisModule_KeyExists(queue->ctx, row);
    if (!emq_fits(queue, schedule, REDISMODULE_KEYTYPE_ZSET))
        return RedisModule_ReplyWithError(queue->ctx, EMQ_WRONGTYPE);
    bool scheduled = emq_member(queue, schedule, id);
    if (!lives) {
        if (scheduled) emq_done(RedisModule_Call(queue->ctx, "ZREM", "!ss", schedule, id));
        return RedisModule_ReplyWithLongLong(queue->ctx, -1);
    }
    if (!scheduled) return RedisModule_ReplyWithError(queue->ctx, "EMQSTATE reschedule not scheduled");
    emq_done(RedisModule_Call(queue->ctx, "ZADD", "!scls", schedule, "XX", due, id));
    emq_wake_if_first(queue, schedule, id);
    return RedisModule_ReplyWithLongLong(queue->ctx, 1);
}

int emq_reschedule(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 7) return RedisModule_WrongArity(ctx);
    if (!emq_same(emq_text(argv[1]), emq_word("2"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "2"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, argv[2])) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE(VERB));
    long long due;
    const char *wrong = emq_due(&due, argv + 5, EMQ_MODE(VERB), EMQ_DUE(VERB));
    if (wrong) return RedisModule_ReplyWithError(ctx, wrong);
    struct text name = emq_text(argv[4]);
    if (!emq_is_job(name)) return RedisModule_ReplyWithError(ctx, EMQ_NOT_A_JOB);
    RedisModuleString *row = emq_key_given(&queue, argv[2], "job:", name);
    RedisModuleString *schedule = emq_key_given(&queue, argv[3], "schedule", EMQ_NOTHING);
    if (emq_may(&queue, argv, argc, (RedisModuleString *[]){row, schedule}, 2))
        move(&queue, row, schedule, argv[4], due);
    emq_free(&queue, row);
    emq_free(&queue, schedule);
    return REDISMODULE_OK;
}
