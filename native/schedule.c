/* EMQ.SCHEDULE 2 row schedule id payload in|at due: admits one job to run later, fenced by its id (protocol §5).
 * Twin: lua/schedule.lua. */
#include "emq.h"

#define VERB "EMQ.SCHEDULE"

static int admit(const struct queue *queue, RedisModuleString **argv, long long due) {
    struct text name = emq_text(argv[4]);
    RedisModuleString *row = emq_key_given(queue, argv[2], "job:", name), *id = argv[4];
    RedisModuleString *schedule = emq_key_given(queue, argv[3], "schedule", EMQ_NOTHING);
    if (emq_known(queue, row, name)) {
        RedisModule_ReplyWithLongLong(queue->ctx, 0);
    } else if (!emq_fits(queue, schedule, REDISMODULE_KEYTYPE_ZSET)) {
        RedisModule_ReplyWithError(queue->ctx, EMQ_WRONGTYPE);
    } else {
        emq_done(RedisModule_Call(queue->ctx, "ZADD", "!sls", schedule, due, id));
        emq_write_row(queue, row, emq_words.scheduled, argv[5]);
        emq_wake_if_first(queue, schedule, id);
        RedisModule_ReplyWithLongLong(queue->ctx, 1);
    }
    emq_free(queue, row);
    emq_free(queue, schedule);
    return REDISMODULE_OK;
}

int emq_schedule(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 8) return RedisModule_WrongArity(ctx);
    if (!emq_same(emq_text(argv[1]), emq_word("2"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "2"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, argv[2])) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE(VERB));
    long long due;
    const char *wrong = emq_due(&due, argv + 6, EMQ_MODE(VERB), EMQ_DUE(VERB));
    if (wrong) return RedisModule_ReplyWithError(ctx, wrong);
    if (!emq_is_job(emq_text(argv[4]))) return RedisModule_ReplyWithError(ctx, EMQ_NOT_A_JOB);
    return admit(&queue, argv, due);
}
