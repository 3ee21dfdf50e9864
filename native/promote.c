/* EMQ.PROMOTE 2 schedule pending base batch: what is due becomes claimable, earliest first (protocol §5).
 * Twin: lua/promote.lua, to which a batch with a grouped row is left before anything is written. */
#include <math.h>

#include "emq.h"

#define VERB "EMQ.PROMOTE"

/* What is due: ids, and the row's key of each, NULL for a ghost and for what lies elsewhere as well. */
struct batch {
    RedisModuleString **ids, **rows;
    size_t count, room, flat;
    bool grouped;
};

static void add(struct batch *batch, RedisModuleString *id) {
    if (batch->count == batch->room) {
        batch->room = batch->room ? 2 * batch->room : 128;
        batch->ids = RedisModule_Realloc(batch->ids, batch->room * sizeof *batch->ids);
        batch->rows = RedisModule_Realloc(batch->rows, batch->room * sizeof *batch->rows);
    }
    batch->ids[batch->count] = id;
    batch->rows[batch->count++] = NULL;
}

static void read_due(const struct queue *queue, RedisModuleString *schedule, long long most, struct batch *batch) {
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, schedule, REDISMODULE_READ);
    if (!handle) return;
    double now = (double)emq_now();
    if (RedisModule_ZsetFirstInScoreRange(handle, -INFINITY, now, 0, 0) == REDISMODULE_OK) {
        while (!RedisModule_ZsetRangeEndReached(handle) && (unsigned long long)most > batch->count) {
            add(batch, RedisModule_ZsetRangeCurrentElement(handle, NULL));
            RedisModule_ZsetRangeNext(handle);
        }
    }
    RedisModule_ZsetRangeStop(handle);
    RedisModule_CloseKey(handle);
}

/* Whether the row says that its job is in hand or dead, and it is: another client has left it on the schedule as well. */
static bool strayed(const struct queue *queue, RedisModuleString *state, RedisModuleString *id) {
    struct text place = emq_text(state);
    if (!emq_same(place, emq_word("active")) && !emq_same(place, emq_word("dead"))) return false;
    RedisModuleString *key = emq_key(queue, "", place, "");
    bool there = emq_fits(queue, key, REDISMODULE_KEYTYPE_ZSET) && emq_member(queue, key, id);
    emq_free(queue, key);
    return there;
}

static void read_rows(const struct queue *queue, struct batch *batch) {
    for (size_t i = 0; i < batch->count && !batch->grouped; i++) {
        RedisModuleString *row = emq_key(queue, "job:", emq_text(batch->ids[i]), "");
        RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, row, REDISMODULE_READ);
        if (handle && RedisModule_KeyType(handle) == REDISMODULE_KEYTYPE_HASH) {
            int grouped = 0;
            RedisModuleString *state = NULL;
            RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS | REDISMODULE_HASH_EXISTS, "group", &grouped, NULL);
            RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS, "state", &state, NULL);
            if (!state || !strayed(queue, state, batch->ids[i])) {
                batch->grouped = grouped != 0;
                batch->rows[i] = row;
                batch->flat++;
            }
            if (state) emq_free(queue, state);
        }
        if (!batch->rows[i]) emq_free(queue, row);
        if (handle) RedisModule_CloseKey(handle);
    }
}

static void move(const struct queue *queue, RedisModuleString *schedule, RedisModuleString *pending,
                 const struct batch *batch) {
    RedisModuleString *vector[2 * EMQ_SLICE];
    for (size_t first = 0; first < batch->count; first += EMQ_SLICE) {
        size_t last = batch->count - first < EMQ_SLICE ? batch->count : first + EMQ_SLICE, length = 0;
        for (size_t i = first; i < last; i++) {
            if (!batch->rows[i]) continue;
            vector[length++] = emq_words.zero;
            vector[length++] = batch->ids[i];
        }
        if (length) emq_done(RedisModule_Call(queue->ctx, "ZADD", "!sv", pending, vector, length));
        emq_done(RedisModule_Call(queue->ctx, "ZREM", "!sv", schedule, batch->ids + first, last - first));
        for (size_t i = first; i < last; i++) {
            if (batch->rows[i]) emq_set_state(queue, batch->rows[i], emq_words.pending);
        }
    }
}

static void promote(const struct queue *queue, RedisModuleString *schedule, RedisModuleString *pending, long long most) {
    if (!emq_fits(queue, schedule, REDISMODULE_KEYTYPE_ZSET) || !emq_fits(queue, pending, REDISMODULE_KEYTYPE_ZSET)) {
        RedisModule_ReplyWithError(queue->ctx, EMQ_WRONGTYPE);
        return;
    }
    struct batch batch = {NULL, NULL, 0, 0, 0, false};
    read_due(queue, schedule, most, &batch);
    read_rows(queue, &batch);
    if (batch.grouped) {
        RedisModule_ReplyWithError(queue->ctx, "EMQSTATE promote lane not native");
    } else {
        move(queue, schedule, pending, &batch);
        emq_wake(queue, (long long)batch.flat);
        RedisModule_ReplyWithLongLong(queue->ctx, (long long)batch.count);
    }
    for (size_t i = 0; i < batch.count; i++) {
        emq_free(queue, batch.ids[i]);
        if (batch.rows[i]) emq_free(queue, batch.rows[i]);
    }
    RedisModule_Free(batch.ids);
    RedisModule_Free(batch.rows);
}

int emq_promote(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 6) return RedisModule_WrongArity(ctx);
    if (!emq_same(emq_text(argv[1]), emq_word("2"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "2"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, argv[2])) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE(VERB));
    long long most = emq_natural(emq_text(argv[5]));
    if (most < 1) return RedisModule_ReplyWithError(ctx, "ERR " VERB " batch must be a positive integer");
    if (!emq_is_whole(&queue)) return RedisModule_ReplyWithError(ctx, EMQ_MOVING);
    RedisModuleString *schedule = emq_key_given(&queue, argv[2], "schedule", EMQ_NOTHING);
    RedisModuleString *pending = emq_key_given(&queue, argv[3], "pending", EMQ_NOTHING);
    if (emq_may(&queue, argv, argc, (RedisModuleString *[]){schedule, pending}, 2))
        promote(&queue, schedule, pending, most);
    emq_free(&queue, schedule);
    emq_free(&queue, pending);
    return REDISMODULE_OK;
}
