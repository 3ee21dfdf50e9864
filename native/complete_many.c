/* EMQ.COMPLETEMANY 1 active id token result ttl...: retires jobs in one call (protocol §5, §12.3). Twin:
 * lua/complete_many.lua, to which a call with a job of a lane or a flow, with a deduplication key, that waits to be
 * claimed again, or whose row may be a key of another job is left before anything is written. */
#include <string.h>

#include "emq.h"

#define VERB "EMQ.COMPLETEMANY"
#define STALE "EMQSTALE complete token mismatch"
#define NOT_ACTIVE "EMQSTATE complete not active"

enum verdict { GONE, GHOST, IS_STALE, IS_NOT_ACTIVE, RETIRED };

/* One job of the call: its four arguments, and what is to become of it. */
struct job {
    RedisModuleString *id, *token, *result, *ttl, *row;
    enum verdict verdict;
};

/* Reads what the row says; false when the script has to see to it. */
static bool read_row(const struct queue *queue, struct job *job, bool leased) {
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, job->row, REDISMODULE_READ);
    bool lives = handle && RedisModule_KeyType(handle) == REDISMODULE_KEYTYPE_HASH;
    bool ours = true;
    if (lives) {
        int group = 0, parent = 0, dedup = 0;
        RedisModuleString *attempts = NULL;
        RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS, "attempts", &attempts, NULL);
        RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS | REDISMODULE_HASH_EXISTS, "group", &group, "parent", &parent,
                            "dedup", &dedup, NULL);
        /* The row of `X:result` is where the result of X goes: the order of the writes would tell. */
        if (memchr(emq_text(job->id).at, ':', emq_text(job->id).length)) ours = false;
        else if (!attempts || !emq_same(emq_text(attempts), emq_text(job->token))) job->verdict = IS_STALE;
        else if (group || (leased && (parent || dedup))) ours = false;
        else job->verdict = leased ? RETIRED : IS_NOT_ACTIVE;
        if (attempts) emq_free(queue, attempts);
    } else {
        job->verdict = leased ? GHOST : GONE;
    }
    if (handle) RedisModule_CloseKey(handle);
    return ours;
}

/* Whether a subkey of a job's row exists. */
static bool has(const struct queue *queue, const struct job *job, const char *tail) {
    RedisModuleString *key = emq_key(queue, "job:", emq_text(job->id), tail);
    bool exists = RedisModule_KeyExists(queue->ctx, key);
    emq_free(queue, key);
    return exists;
}

static bool read_all(const struct queue *queue, RedisModuleString *active, RedisModuleString *pending, struct job *jobs,
                     size_t count) {
    RedisModuleKey *leases = RedisModule_OpenKey(queue->ctx, active, REDISMODULE_READ);
    bool ours = true, fits = emq_fits(queue, pending, REDISMODULE_KEYTYPE_ZSET);
    for (size_t i = 0; ours && i < count; i++) {
        struct job *job = jobs + i;
        double deadline;
        bool leased = leases && RedisModule_ZsetScore(leases, job->id, &deadline) == REDISMODULE_OK;
        job->row = emq_key(queue, "job:", emq_text(job->id), "");
        ours = read_row(queue, job, leased);
        if (job->verdict == RETIRED && has(queue, job, ":dependencies")) ours = false;
        if (job->verdict == IS_NOT_ACTIVE && (!fits || emq_member(queue, pending, job->id))) ours = false;
    }
    if (leases) RedisModule_CloseKey(leases);
    return ours;
}

/* Deletes a key; false when there was none. */
static bool drop(const struct queue *queue, RedisModuleString *key) {
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, key, REDISMODULE_READ | REDISMODULE_WRITE);
    bool there = handle && RedisModule_KeyType(handle) != REDISMODULE_KEYTYPE_EMPTY;
    if (there) RedisModule_DeleteKey(handle);
    if (handle) RedisModule_CloseKey(handle);
    if (there) RedisModule_NotifyKeyspaceEvent(queue->ctx, REDISMODULE_NOTIFY_GENERIC, "del", key);
    return there;
}

/* What a slice of the call is to write, as vectors. */
struct writes {
    RedisModuleString *dropped[3 * EMQ_SLICE], *out[EMQ_SLICE];
    size_t dropped_count, out_count, told_length;
    char *told;
};

static void drop_subkey(const struct queue *queue, const struct job *job, const char *tail, struct writes *writes) {
    RedisModuleString *key = emq_key(queue, "job:", emq_text(job->id), tail);
    if (RedisModule_KeyExists(queue->ctx, key) && drop(queue, key)) writes->dropped[writes->dropped_count++] = key;
    else emq_free(queue, key);
}

/* Whoever waits for results is told once for a slice: the ids with a space between. */
static void note_told(struct writes *writes, struct text id) {
    writes->told = RedisModule_Realloc(writes->told, writes->told_length + id.length + 1);
    if (writes->told_length) writes->told[writes->told_length++] = ' ';
    memcpy(writes->told + writes->told_length, id.at, id.length);
    writes->told_length += id.length;
}

static void retire(const struct queue *queue, struct job *job, struct writes *writes) {
    RedisModuleString *row = job->row;
    job->row = NULL;
    writes->dropped[writes->dropped_count++] = row;
    writes->out[writes->out_count++] = job->id;
    drop_subkey(queue, job, ":logs", writes);
    drop_subkey(queue, job, ":lock", writes);
    if (!emq_same(emq_text(job->ttl), emq_word("0"))) {
        RedisModuleString *result = emq_key(queue, "job:", emq_text(job->id), ":result");
        emq_done(RedisModule_Call(queue->ctx, "SET", "!sscs", result, job->result, "PX", job->ttl));
        emq_free(queue, result);
        note_told(writes, emq_text(job->id));
    }
}

static void finish(const struct queue *queue, RedisModuleString *active, struct writes *writes, long long retired) {
    RedisModuleCtx *ctx = queue->ctx;
    if (writes->out_count) emq_done(RedisModule_Call(ctx, "ZREM", "!sv", active, writes->out, writes->out_count));
    if (!retired) return;
    RedisModule_Replicate(ctx, "DEL", "v", writes->dropped, writes->dropped_count);
    for (size_t i = 0; i < writes->dropped_count; i++) emq_free(queue, writes->dropped[i]);
    RedisModuleString *metrics = emq_key_named(queue, "metrics:completed");
    /* A counter of another type is no reason to refuse: the reply is not looked at. */
    emq_done(RedisModule_Call(ctx, "HINCRBY", "!scl", metrics, "count", retired));
    emq_free(queue, metrics);
    emq_wake_freed(queue, retired);
    if (writes->told) {
        RedisModuleString *channel = emq_key_named(queue, "results");
        /* As the user, who may not be allowed to: then nobody is told. */
        emq_done(RedisModule_Call(ctx, "PUBLISH", "!Csb", channel, writes->told, writes->told_length));
        emq_free(queue, channel);
        RedisModule_Free(writes->told);
    }
}

static void write_slice(const struct queue *queue, RedisModuleString *active, struct job *jobs, size_t count) {
    struct writes writes;
    writes.dropped_count = writes.out_count = writes.told_length = 0;
    writes.told = NULL;
    long long retired = 0;
    for (size_t i = 0; i < count; i++) {
        struct job *job = jobs + i;
        enum verdict verdict = job->verdict;
        /* An id that comes again after it was retired is gone. */
        bool first = verdict == RETIRED ? drop(queue, job->row) : RedisModule_KeyExists(queue->ctx, job->row);
        if (!first && verdict != GHOST) verdict = GONE;
        switch (verdict) {
            case GHOST: writes.out[writes.out_count++] = job->id; /* fall through */
            case GONE: RedisModule_ReplyWithLongLong(queue->ctx, 0); break;
            case IS_STALE: RedisModule_ReplyWithStringBuffer(queue->ctx, STALE, sizeof STALE - 1); break;
            case IS_NOT_ACTIVE: RedisModule_ReplyWithStringBuffer(queue->ctx, NOT_ACTIVE, sizeof NOT_ACTIVE - 1); break;
            case RETIRED:
                retire(queue, job, &writes);
                retired++;
                RedisModule_ReplyWithLongLong(queue->ctx, 1);
                break;
        }
    }
    finish(queue, active, &writes, retired);
}

static void complete(const struct queue *queue, RedisModuleString *active, RedisModuleString **words, size_t count) {
    struct job *jobs = RedisModule_Calloc(count, sizeof *jobs);
    for (size_t i = 0; i < count; i++) {
        jobs[i].id = words[4 * i];
        jobs[i].token = words[4 * i + 1];
        jobs[i].result = words[4 * i + 2];
        jobs[i].ttl = words[4 * i + 3];
    }
    RedisModuleString *pending = emq_key_named(queue, "pending");
    if (read_all(queue, active, pending, jobs, count)) {
        RedisModule_ReplyWithArray(queue->ctx, (long)count);
        for (size_t first = 0; first < count; first += EMQ_SLICE)
            write_slice(queue, active, jobs + first, count - first < EMQ_SLICE ? count - first : EMQ_SLICE);
    } else {
        RedisModule_ReplyWithError(queue->ctx, "EMQSTATE complete job not native");
    }
    for (size_t i = 0; i < count; i++) {
        if (jobs[i].row) emq_free(queue, jobs[i].row);
    }
    emq_free(queue, pending);
    RedisModule_Free(jobs);
}

int emq_complete_many(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 7 || (argc - 3) % 4 != 0) return RedisModule_WrongArity(ctx);
    if (!emq_same(emq_text(argv[1]), emq_word("1"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "1"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, argv[2])) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE(VERB));
    for (int i = 6; i < argc; i += 4) {
        if (emq_natural(emq_text(argv[i])) < 0)
            return RedisModule_ReplyWithError(ctx, "ERR " VERB " ttl must be a non-negative integer");
    }
    for (int i = 3; i < argc; i += 4) {
        if (!emq_is_job(emq_text(argv[i]))) return RedisModule_ReplyWithError(ctx, EMQ_NOT_A_JOB);
    }
    if (!emq_is_whole(&queue)) return RedisModule_ReplyWithError(ctx, EMQ_MOVING);
    RedisModuleString *active = emq_key_given(&queue, argv[2], "active", EMQ_NOTHING);
    if (emq_may(&queue, argv, argc, &active, 1)) {
        if (emq_fits(&queue, active, REDISMODULE_KEYTYPE_ZSET)) complete(&queue, active, argv + 3, (size_t)(argc - 3) / 4);
        else RedisModule_ReplyWithError(ctx, EMQ_WRONGTYPE);
    }
    emq_free(&queue, active);
    return REDISMODULE_OK;
}
