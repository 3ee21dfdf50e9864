/* EMQ.ENQUEUEMANY 1 pending id payload...: admits flat jobs in one call, each as EMQ.ENQUEUE would (protocol §5, §12.3).
 * Twin: lua/enqueue_many.lua. */
#include "emq.h"

#define VERB "EMQ.ENQUEUEMANY"

static void admit(const struct queue *queue, RedisModuleString *pending, RedisModuleString **jobs, int count) {
    RedisModuleString *vector[2 * EMQ_SLICE];
    size_t length = 0;
    long long admitted = 0;
    RedisModule_ReplyWithArray(queue->ctx, count);
    for (int i = 0; i < count; i++) {
        RedisModuleString *id = jobs[2 * i];
        RedisModuleString *row = emq_key(queue, "job:", emq_text(id), "");
        bool known = emq_known(queue, row, emq_text(id));
        if (!known) {
            emq_write_row(queue, row, emq_words.pending, jobs[2 * i + 1]);
            vector[length++] = emq_words.zero;
            vector[length++] = id;
            admitted++;
        }
        emq_free(queue, row);
        RedisModule_ReplyWithLongLong(queue->ctx, !known);
        if (length == 2 * EMQ_SLICE || (length && i == count - 1)) {
            emq_done(RedisModule_Call(queue->ctx, "ZADD", "!sv", pending, vector, length));
            length = 0;
        }
    }
    emq_wake(queue, admitted);
}

int emq_enqueue_many(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 5 || (argc - 3) % 2 != 0) return RedisModule_WrongArity(ctx);
    if (!emq_same(emq_text(argv[1]), emq_word("1"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "1"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, argv[2])) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE(VERB));
    for (int i = 3; i < argc; i += 2) {
        if (!emq_is_job(emq_text(argv[i]))) return RedisModule_ReplyWithError(ctx, EMQ_NOT_A_JOB);
    }
    if (!emq_is_whole(&queue)) return RedisModule_ReplyWithError(ctx, EMQ_MOVING);
    RedisModuleString *pending = emq_key_given(&queue, argv[2], "pending", EMQ_NOTHING);
    if (emq_may(&queue, argv, argc, &pending, 1)) {
        if (emq_fits(&queue, pending, REDISMODULE_KEYTYPE_ZSET)) admit(&queue, pending, argv + 3, (argc - 3) / 2);
        else RedisModule_ReplyWithError(ctx, EMQ_WRONGTYPE);
    }
    emq_free(&queue, pending);
    return REDISMODULE_OK;
}
