/* EMQ.DELAY 3 row active schedule id token in|at due: a job in hand goes back to the schedule; no attempt, failure or
 * lapse is spent (protocol §5). Twin: lua/delay.lua, to which a grouped row is left before anything is written. */
#include "emq.h"

#define VERB "EMQ.DELAY"

struct row {
    bool lives, grouped;
    RedisModuleString *attempts;
};

static struct row read_row(const struct queue *queue, RedisModuleString *key) {
    struct row row = {false, false, NULL};
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, key, REDISMODULE_READ);
    if (!handle) return row;
    if (RedisModule_KeyType(handle) == REDISMODULE_KEYTYPE_HASH) {
        int grouped = 0;
        RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS, "attempts", &row.attempts, NULL);
        RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS | REDISMODULE_HASH_EXISTS, "group", &grouped, NULL);
        row.lives = true;
        row.grouped = grouped != 0;
    }
    RedisModule_CloseKey(handle);
    return row;
}

static const char *refusal(const struct queue *queue, RedisModuleString **argv, const struct row *row) {
    bool active_fits = emq_fits(queue, argv[3], REDISMODULE_KEYTYPE_ZSET);
    if (!row->lives) return active_fits ? "EMQSTALE job gone" : EMQ_WRONGTYPE;
    if (!row->attempts || !emq_same(emq_text(row->attempts), emq_text(argv[6])))
        return "EMQSTALE delay token mismatch";
    if (!active_fits) return EMQ_WRONGTYPE;
    if (!emq_member(queue, argv[3], argv[5])) return "EMQSTATE delay not active";
    if (!emq_fits(queue, argv[4], REDISMODULE_KEYTYPE_ZSET)) return EMQ_WRONGTYPE;
    return row->grouped ? "EMQSTATE delay lane not native" : NULL;
}

static void move(const struct queue *queue, RedisModuleString **argv, long long due) {
    RedisModuleString *row = argv[2], *active = argv[3], *schedule = argv[4], *id = argv[5];
    RedisModuleString *lock = emq_key(queue, "job:", emq_text(id), ":lock");
    emq_done(RedisModule_Call(queue->ctx, "ZREM", "!ss", active, id));
    emq_done(RedisModule_Call(queue->ctx, "DEL", "!s", lock));
    emq_done(RedisModule_Call(queue->ctx, "HDEL", "!sc", row, "lock"));
    emq_done(RedisModule_Call(queue->ctx, "HSET", "!scc", row, "state", "scheduled"));
    emq_done(RedisModule_Call(queue->ctx, "ZADD", "!sls", schedule, due, id));
    emq_free(queue, lock);
}

int emq_delay(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 9) return RedisModule_WrongArity(ctx);
    RedisModuleString *active = argv[3], *schedule = argv[4], *id = argv[5];
    struct text name = emq_text(id);
    if (!emq_same(emq_text(argv[1]), emq_word("3"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "3"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, argv[2])) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE);
    if (!emq_is_key(&queue, argv[2], "job:", name) || !emq_is_key(&queue, active, "active", emq_word("")) ||
        !emq_is_key(&queue, schedule, "schedule", emq_word("")))
        return RedisModule_ReplyWithError(ctx, "ERR " VERB " keys must be the row of the id, active and schedule");
    long long due;
    switch (emq_due(&due, argv[7], argv[8])) {
        case EMQ_DUE_MODE: return RedisModule_ReplyWithError(ctx, EMQ_MODE(VERB));
        case EMQ_DUE_VALUE: return RedisModule_ReplyWithError(ctx, EMQ_DUE(VERB));
        case EMQ_DUE_SOUND: break;
    }
    if (!emq_is_job(name)) return RedisModule_ReplyWithError(ctx, EMQ_NOT_A_JOB);
    struct row row = read_row(&queue, argv[2]);
    const char *wrong = refusal(&queue, argv, &row);
    if (!wrong) {
        move(&queue, argv, due);
        emq_wake_freed(&queue, 1);
        emq_wake_if_first(&queue, schedule, id);
        RedisModule_ReplyWithLongLong(ctx, 1);
    } else {
        if (!row.lives && emq_member(&queue, active, id)) emq_done(RedisModule_Call(ctx, "ZREM", "!ss", active, id));
        RedisModule_ReplyWithError(ctx, wrong);
    }
    if (row.attempts) emq_free(&queue, row.attempts);
    return REDISMODULE_OK;
}
