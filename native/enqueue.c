/* EMQ.ENQUEUE 2 row pending id payload: admits one flat job (protocol §5). Twin: lua/enqueue.lua. */
#include "emq.h"

#define VERB "EMQ.ENQUEUE"

static int admit(const struct queue *queue, RedisModuleString *row, RedisModuleString *pending, RedisModuleString *id,
                 RedisModuleString *payload) {
    if (emq_known(queue, row, emq_text(id))) return RedisModule_ReplyWithLongLong(queue->ctx, 0);
    if (!emq_fits(queue, pending, REDISMODULE_KEYTYPE_ZSET))
        return RedisModule_ReplyWithError(queue->ctx, EMQ_WRONGTYPE);
    emq_done(RedisModule_Call(queue->ctx, "ZADD", "!sss", pending, emq_words.zero, id));
    emq_write_row(queue, row, emq_words.pending, payload);
    emq_wake(queue, 1);
    return RedisModule_ReplyWithLongLong(queue->ctx, 1);
}

int emq_enqueue(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 6) return RedisModule_WrongArity(ctx);
    if (!emq_same(emq_text(argv[1]), emq_word("2"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "2"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, argv[2])) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE(VERB));
    struct text name = emq_text(argv[4]);
    if (!emq_is_job(name)) return RedisModule_ReplyWithError(ctx, EMQ_NOT_A_JOB);
    RedisModuleString *row = emq_key_given(&queue, argv[2], "job:", name);
    RedisModuleString *pending = emq_key_given(&queue, argv[3], "pending", EMQ_NOTHING);
    if (emq_may(&queue, argv, argc, (RedisModuleString *[]){row, pending}, 2))
        admit(&queue, row, pending, argv[4], argv[5]);
    emq_free(&queue, row);
    emq_free(&queue, pending);
    return REDISMODULE_OK;
}
