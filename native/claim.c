/* EMQ.CLAIM 2 pending active lease n: up to n flat jobs in hand under one deadline (protocol §5, §12.2, §12.3). Twin:
 * lua/claim.lua, to which a queue with lanes to serve or a rate, and a job that is not to be run, are left before anything
 * is written. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "emq.h"

#define VERB "EMQ.CLAIM"

/* What the script sees to; a function that reads answers one of these, or NULL. */
#define LANE "EMQSTATE claim lane not native"
#define RATE "EMQSTATE claim rate not native"
#define JOB "EMQSTATE claim job not native"
#define KEY "EMQSTATE claim key not native"

/* A job that is about to be in hand, with what its reply holds. */
struct job {
    RedisModuleString *id, *row, *payload, *failures, *stalled;
    long long attempts;
};

struct claim {
    RedisModuleString *pending, *active;
    long long now, deadline, want;
    const char *why;
    struct job *jobs;
    size_t count, room;
    /* How many members of the pending set were looked at: the jobs, and the ghosts between them. */
    long long seen;
};

/* An id that every host takes: 2^63 - 1 is the last snowflake (protocol §1). */
static bool is_whole_id(struct text id) {
    if (id.length != 14 || memcmp(id.at, "JOB", 3) != 0) return false;
    for (size_t i = 3; i < 14; i++) {
        if (!isalnum((unsigned char)id.at[i]) || (unsigned char)id.at[i] > 127) return false;
    }
    return memcmp(id.at + 3, "AzL8n0Y58m7", 11) <= 0;
}

/* A counter of the row is given out as it is, 0 when it is none. */
static bool is_count(RedisModuleString *string) {
    struct text text = emq_text(string);
    for (size_t i = 0; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') return false;
    }
    return text.length >= 1 && text.length <= 15;
}

static void free_job(const struct queue *queue, struct job *job) {
    RedisModuleString *const owned[] = {job->id, job->row, job->payload, job->failures, job->stalled};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
        if (owned[i]) emq_free(queue, owned[i]);
    }
}

/* Reads a row into `job`; `lives` is false for a ghost. */
static const char *read_row(const struct queue *queue, struct job *job, bool *lives) {
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, job->row, REDISMODULE_READ);
    *lives = handle && RedisModule_KeyType(handle) == REDISMODULE_KEYTYPE_HASH;
    const char *left = NULL;
    if (*lives) {
        RedisModuleString *attempts = NULL, *state = NULL;
        int group = 0, cancel = 0;
        RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS, "payload", &job->payload, "attempts", &attempts, "failures",
                            &job->failures, "stalled", &job->stalled, "state", &state, NULL);
        RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS | REDISMODULE_HASH_EXISTS, "group", &group, "cancel", &cancel,
                            NULL);
        job->attempts = attempts ? emq_natural(emq_text(attempts)) : -1;
        bool waits = state && emq_same(emq_text(state), emq_word("pending"));
        if (attempts) emq_free(queue, attempts);
        if (state) emq_free(queue, state);
        if (!waits || group || cancel || !job->payload || job->attempts < 0 || job->attempts == EMQ_LAST ||
            !is_whole_id(emq_text(job->id)))
            left = JOB;
    }
    if (handle) RedisModule_CloseKey(handle);
    return left;
}

static const char *read_jobs(const struct queue *queue, struct claim *claim) {
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, claim->pending, REDISMODULE_READ);
    if (!handle) return NULL;
    const char *left = NULL;
    if (RedisModule_ZsetFirstInScoreRange(handle, -INFINITY, INFINITY, 0, 0) == REDISMODULE_OK) {
        while (!left && (long long)claim->count < claim->want && !RedisModule_ZsetRangeEndReached(handle)) {
            struct job job = {.id = RedisModule_ZsetRangeCurrentElement(handle, NULL)};
            bool lives;
            job.row = emq_key(queue, "job:", emq_text(job.id), "");
            left = read_row(queue, &job, &lives);
            claim->seen++;
            if (lives) {
                if (claim->count == claim->room) {
                    claim->room = claim->room ? 2 * claim->room : 16;
                    claim->jobs = RedisModule_Realloc(claim->jobs, claim->room * sizeof *claim->jobs);
                }
                claim->jobs[claim->count++] = job;
            } else {
                free_job(queue, &job);
            }
            RedisModule_ZsetRangeNext(handle);
        }
    }
    RedisModule_ZsetRangeStop(handle);
    RedisModule_CloseKey(handle);
    return left;
}

/* What the queue lets into hands now (protocol §7). */
static const char *read_gate(const struct queue *queue, struct claim *claim) {
    RedisModuleString *meta = emq_key_named(queue, "meta"), *ceiling = NULL;
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, meta, REDISMODULE_READ);
    const char *left = NULL;
    if (handle) {
        int paused = 0, rate = 0;
        if (RedisModule_KeyType(handle) == REDISMODULE_KEYTYPE_HASH) {
            RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS | REDISMODULE_HASH_EXISTS, "paused", &paused, "max", &rate,
                                NULL);
            RedisModule_HashGet(handle, REDISMODULE_HASH_CFIELDS, "concurrency", &ceiling, NULL);
        } else {
            left = KEY;
        }
        RedisModule_CloseKey(handle);
        if (paused) {
            claim->want = 0;
            claim->why = "paused";
        } else if (rate) {
            left = RATE;
        }
    }
    if (ceiling) {
        long long most = emq_natural(emq_text(ceiling));
        size_t in_hand;
        int type = emq_type(queue, claim->active, &in_hand);
        if (most < 0 || (type != REDISMODULE_KEYTYPE_ZSET && type != REDISMODULE_KEYTYPE_EMPTY)) left = KEY;
        else if (most > 0 && claim->want > 0 && most - (long long)in_hand < claim->want) {
            claim->want = most > (long long)in_hand ? most - (long long)in_hand : 0;
            claim->why = "ceiling";
        }
        emq_free(queue, ceiling);
    }
    emq_free(queue, meta);
    return left;
}

/* The next instant worth trying, by the earliest of a schedule; false when the key is no schedule. */
static bool read_next(const struct queue *queue, const char *name, long long *next) {
    RedisModuleString *key = emq_key_named(queue, name);
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, key, REDISMODULE_READ);
    bool sound = true;
    if (handle) {
        sound = RedisModule_KeyType(handle) == REDISMODULE_KEYTYPE_ZSET;
        if (sound && RedisModule_ZsetFirstInScoreRange(handle, -INFINITY, INFINITY, 0, 0) == REDISMODULE_OK &&
            !RedisModule_ZsetRangeEndReached(handle)) {
            double score;
            emq_free(queue, RedisModule_ZsetRangeCurrentElement(handle, &score));
            score = ceil(score) > 0 ? ceil(score) : 0;
            if (score <= (double)EMQ_LAST && (*next < 0 || (long long)score < *next)) *next = (long long)score;
        }
        if (sound) RedisModule_ZsetRangeStop(handle);
        RedisModule_CloseKey(handle);
    }
    emq_free(queue, key);
    return sound;
}

static bool fits_named(const struct queue *queue, const char *name, int type) {
    RedisModuleString *key = emq_key_named(queue, name);
    bool fits = emq_fits(queue, key, type);
    emq_free(queue, key);
    return fits;
}

static void take(const struct queue *queue, struct claim *claim) {
    if (claim->seen)
        emq_done(RedisModule_Call(queue->ctx, "ZREMRANGEBYRANK", "!scl", claim->pending, "0", claim->seen - 1));
    RedisModuleString *deadline = RedisModule_CreateStringFromLongLong(queue->ctx, claim->deadline), *vector[2 * EMQ_SLICE];
    size_t length = 0;
    for (size_t i = 0; i < claim->count; i++) {
        struct job *job = claim->jobs + i;
        job->attempts++;
        emq_set_active(queue, job->row, job->attempts);
        vector[length++] = deadline;
        vector[length++] = job->id;
        if (length == 2 * EMQ_SLICE || i + 1 == claim->count) {
            emq_done(RedisModule_Call(queue->ctx, "ZADD", "!sv", claim->active, vector, length));
            length = 0;
        }
    }
    emq_free(queue, deadline);
}

static void reply_count(const struct queue *queue, RedisModuleString *count) {
    if (count && is_count(count)) RedisModule_ReplyWithString(queue->ctx, count);
    else RedisModule_ReplyWithLongLong(queue->ctx, 0);
}

static void reply(const struct queue *queue, const struct claim *claim, long long next) {
    RedisModuleCtx *ctx = queue->ctx;
    RedisModule_ReplyWithArray(ctx, 3 + 6 * (long)claim->count);
    RedisModule_ReplyWithLongLong(ctx, claim->now);
    RedisModule_ReplyWithStringBuffer(ctx, claim->why, strlen(claim->why));
    RedisModule_ReplyWithLongLong(ctx, next);
    for (size_t i = 0; i < claim->count; i++) {
        const struct job *job = claim->jobs + i;
        RedisModule_ReplyWithString(ctx, job->id);
        RedisModule_ReplyWithString(ctx, job->payload);
        RedisModule_ReplyWithLongLong(ctx, job->attempts);
        reply_count(queue, job->failures);
        reply_count(queue, job->stalled);
        RedisModule_ReplyWithStringBuffer(ctx, "", 0);
    }
}

/* Reads everything, then writes and answers; or says what it leaves to the script, with nothing written. */
static const char *claim_jobs(const struct queue *queue, struct claim *claim) {
    long long next = -1;
    const char *left = read_gate(queue, claim);
    if (left) return left;
    if (!read_next(queue, "schedule", &next) || !read_next(queue, "repeat", &next) || !read_next(queue, "cron", &next))
        return KEY;
    if (claim->want > 0) {
        RedisModuleString *ring = emq_key_named(queue, "ring");
        bool lanes = RedisModule_KeyExists(queue->ctx, ring);
        emq_free(queue, ring);
        if (lanes) return LANE;
        if (!fits_named(queue, "dead", REDISMODULE_KEYTYPE_ZSET) ||
            !emq_fits(queue, claim->active, REDISMODULE_KEYTYPE_ZSET) ||
            !emq_fits(queue, claim->pending, REDISMODULE_KEYTYPE_ZSET))
            return KEY;
        left = read_jobs(queue, claim);
        if (left) return left;
        take(queue, claim);
        if ((long long)claim->count < claim->want) claim->why = "empty";
    }
    if (claim->count == 0) {
        RedisModuleString *wake = emq_key_named(queue, "wake");
        emq_done(RedisModule_Call(queue->ctx, "DEL", "!s", wake));
        emq_free(queue, wake);
    }
    reply(queue, claim, next);
    return NULL;
}

int emq_claim(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 6) return RedisModule_WrongArity(ctx);
    if (!emq_same(emq_text(argv[1]), emq_word("2"))) return RedisModule_ReplyWithError(ctx, EMQ_KEYS(VERB, "2"));
    struct queue queue;
    if (!emq_queue(&queue, ctx, argv[2])) return RedisModule_ReplyWithError(ctx, EMQ_NO_BASE(VERB));
    struct claim claim = {.why = "", .now = emq_now()};
    long long lease = emq_natural(emq_text(argv[4]));
    claim.deadline = claim.now + lease;
    claim.want = emq_natural(emq_text(argv[5]));
    if (lease < 1 || claim.deadline > EMQ_LAST)
        return RedisModule_ReplyWithError(ctx, "ERR " VERB " lease must be a positive integer");
    if (claim.want < 1) return RedisModule_ReplyWithError(ctx, "ERR " VERB " n must be a positive integer");
    if (!emq_is_whole(&queue)) return RedisModule_ReplyWithError(ctx, EMQ_MOVING);
    claim.pending = emq_key_given(&queue, argv[2], "pending", EMQ_NOTHING);
    claim.active = emq_key_given(&queue, argv[3], "active", EMQ_NOTHING);
    if (emq_may(&queue, argv, argc, (RedisModuleString *[]){claim.pending, claim.active}, 2)) {
        const char *left = claim_jobs(&queue, &claim);
        if (left) RedisModule_ReplyWithError(ctx, left);
    }
    for (size_t i = 0; i < claim.count; i++) free_job(&queue, claim.jobs + i);
    RedisModule_Free(claim.jobs);
    emq_free(&queue, claim.pending);
    emq_free(&queue, claim.active);
    return REDISMODULE_OK;
}
