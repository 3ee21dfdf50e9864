/* EMQ.SCHEDULE 2 row schedule id payload in|at due: admits one job to run later, fenced by its id (protocol §5).
 * Twin: lua/schedule.lua. */
#include "emq.h"

#define VERB "EMQ.SCHEDULE"

static int admit(const struct queue *queue, RedisModuleString *row, RedisModuleString *schedule, RedisModuleString *id,
                 RedisModuleString *payload, long long due) {
    if (emq_known(queue, row, emq_text(id))) return RedisModule_ReplyWithLongLong(queue->ctx, 0);
    if (!emq_fits(queue, schedule, REDISMODULE_KEYTYPE_ZSET))
        return RedisModule_ReplyWithError(queue->ctx, EMQ_WRONGTYPE);
    emq_done(RedisModule_Call(queue->ctx, "ZADD", "!sls", schedule, due, id));
    emq_write_row(queue, row, emq_words.scheduled, payload);
    emq_wake_if_first(queue, schedule, id);
    return RedisModule_ReplyWithLongLong(queue->ctx, 1);
}

int emq_schedule(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 8) return RedisModule_WrongArity(ctx);
    if (!emq_same(emq_text(argv[1]), emq_word("2"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "2"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, argv[2])) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE(VERB));
    long long due;
    const char *wrong = emq_due(&due, argv + 6, EMQ_MODE(VERB), EMQ_DUE(VERB));
    if (wrong) return RedisModule_ReplyWithError(ctx, wrong);
    struct text name = emq_text(argv[4]);
    if (!emq_is_job(name)) return RedisModule_ReplyWithError(ctx, EMQ_NOT_A_JOB);
    RedisModuleString *row = emq_key_given(&queue, argv[2], "job:", name);
    RedisModuleString *schedule = emq_key_given(&queue, argv[3], "schedule", EMQ_NOTHING);
    if (emq_may(&queue, argv, argc, (RedisModuleString *[]){row, schedule}, 2))
        admit(&queue, row, schedule, argv[4], argv[5], due);
    emq_free(&queue, row);
    emq_free(&queue, schedule);
    return REDISMODULE_OK;
}
