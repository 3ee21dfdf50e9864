/* EMQ.DELAY 3 row active schedule id token in|at due: a job in hand goes back to the schedule; no attempt, failure or
 * lapse is spent (protocol §5). Twin: lua/delay.lua, to which a grouped row and a cancelled one are left before anything
 * is written. */
#include "emq.h"

#define VERB "EMQ.DELAY"

struct row {
    bool lives, grouped, cancelled;
    RedisModuleString *attempts;
};

static struct row read_row(const struct queue *queue, RedisModuleString *key) {
    struct row row = {false, false, false, NULL};
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, key, REDISMODULE_READ);
    if (!handle) return row;
    if (RedisModule_KeyType(handle) == REDISMODULE_KEYTYPE_HASH) {
        int grouped = 0, cancelled = 0;
        RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS, "attempts", &row.attempts, NULL);
        RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS | REDISMODULE_HASH_EXISTS, "group", &grouped, "cancel",
                            &cancelled, NULL);
        row.lives = true;
        row.grouped = grouped != 0;
        row.cancelled = cancelled != 0;
    }
    RedisModule_CloseKey(handle);
    return row;
}

/* The keys and arguments of one call. */
struct delay {
    RedisModuleString *row, *active, *schedule, *id, *token;
    long long due;
};

static const char *refusal(const struct queue *queue, const struct delay *call, const struct row *row) {
    bool active_fits = emq_fits(queue, call->active, REDISMODULE_KEYTYPE_ZSET);
    if (!row->lives) return active_fits ? "EMQSTALE job gone" : EMQ_WRONGTYPE;
    if (!row->attempts || !emq_same(emq_text(row->attempts), emq_text(call->token)))
        return "EMQSTALE delay token mismatch";
    if (!active_fits) return EMQ_WRONGTYPE;
    if (!emq_member(queue, call->active, call->id)) return "EMQSTATE delay not active";
    if (!emq_fits(queue, call->schedule, REDISMODULE_KEYTYPE_ZSET)) return EMQ_WRONGTYPE;
    if (row->grouped) return "EMQSTATE delay lane not native";
    return row->cancelled ? "EMQSTATE delay job not native" : NULL;
}

static void move(const struct queue *queue, const struct delay *call) {
    RedisModuleCtx *ctx = queue->ctx;
    RedisModuleString *lock = emq_key(queue, "job:", emq_text(call->id), ":lock");
    emq_done(RedisModule_Call(ctx, "ZREM", "!ss", call->active, call->id));
    emq_done(RedisModule_Call(ctx, "DEL", "!s", lock));
    emq_done(RedisModule_Call(ctx, "HDEL", "!sc", call->row, "lock"));
    emq_set_state(queue, call->row, emq_words.scheduled);
    emq_done(RedisModule_Call(ctx, "ZADD", "!sls", call->schedule, call->due, call->id));
    emq_free(queue, lock);
}

static void delay(const struct queue *queue, const struct delay *call) {
    struct row row = read_row(queue, call->row);
    const char *wrong = refusal(queue, call, &row);
    if (!wrong) {
        move(queue, call);
        emq_wake_freed(queue, 1);
        emq_wake_if_first(queue, call->schedule, call->id);
        RedisModule_ReplyWithLongLong(queue->ctx, 1);
    } else {
        /* An id in hand without a row is a ghost. */
        if (!row.lives && emq_fits(queue, call->active, REDISMODULE_KEYTYPE_ZSET) &&
            emq_member(queue, call->active, call->id))
            emq_done(RedisModule_Call(queue->ctx, "ZREM", "!ss", call->active, call->id));
        RedisModule_ReplyWithError(queue->ctx, wrong);
    }
    if (row.attempts) emq_free(queue, row.attempts);
}

int emq_delay(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 9) return RedisModule_WrongArity(ctx);
    if (!emq_same(emq_text(argv[1]), emq_word("3"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "3"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, argv[2])) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE(VERB));
    long long due;
    const char *wrong = emq_due(&due, argv + 7, EMQ_MODE(VERB), EMQ_DUE(VERB));
    if (wrong) return RedisModule_ReplyWithError(ctx, wrong);
    struct text name = emq_text(argv[5]);
    if (!emq_is_job(name)) return RedisModule_ReplyWithError(ctx, EMQ_NOT_A_JOB);
    struct delay call = {.id = argv[5], .token = argv[6], .due = due};
    call.row = emq_key_given(&queue, argv[2], "job:", name);
    call.active = emq_key_given(&queue, argv[3], "active", EMQ_NOTHING);
    call.schedule = emq_key_given(&queue, argv[4], "schedule", EMQ_NOTHING);
    if (emq_may(&queue, argv, argc, (RedisModuleString *[]){call.row, call.active, call.schedule}, 3))
        delay(&queue, &call);
    emq_free(&queue, call.row);
    emq_free(&queue, call.active);
    emq_free(&queue, call.schedule);
    return REDISMODULE_OK;
}
