/* What the commands share: the shape of a call, its queue and keys, numbers, and wake tokens (protocol §4, §5, §12). */
#ifndef ECHOMQ_EMQ_H
#define ECHOMQ_EMQ_H

#include <stdbool.h>

#include "module.h"

#define EMQ_WRONGTYPE "WRONGTYPE Operation against a key holding the wrong kind of value"
#define EMQ_MOVING "TRYAGAIN Multiple keys request during rehashing of slot"
#define EMQ_FORBIDDEN "NOPERM No permissions to access a key"
#define EMQ_NO_BASE(verb) "ERR " verb " first key must begin with emq:{queue}:"
#define EMQ_NOT_A_JOB "EMQKIND job id must be JOB-namespaced"
#define EMQ_KEYS(verb, count) "ERR " verb " number of keys must be " count
#define EMQ_MODE(verb) "ERR " verb " mode must be in or at"
#define EMQ_DUE(verb) "ERR " verb " due must be a non-negative integer"

/* The longest time or count: scores are doubles (protocol §4). */
#define EMQ_LAST 9007199254740991LL

/* How many members a vector of a command has at most (protocol §5). The fuzzer's build makes it few, so that it comes
 * beyond. */
#ifndef EMQ_SLICE
#define EMQ_SLICE 1000
#endif

/* Bytes that belong to somebody else. */
struct text {
    const char *at;
    size_t length;
};

/* The queue that a call's first key names; `base` is that key up to and including `}:`. `strays` says that the call
 * names a key that is another than the one it goes by. */
struct queue {
    RedisModuleCtx *ctx;
    struct text base;
    bool strays;
};

/* text.c */
struct text emq_text(const RedisModuleString *string);
struct text emq_word(const char *word);
extern const struct text EMQ_NOTHING;
bool emq_same(struct text one, struct text other);
/* The number that a canonical decimal from 0 to 2^53 - 1 says, or -1. */
long long emq_natural(struct text text);

/* call.c: what is checked before anything is read. */
bool emq_queue(struct queue *queue, RedisModuleCtx *ctx, const RedisModuleString *first_key);
bool emq_is_job(struct text id);
/* The instant that `TIME` would tell a script in this place, in Unix ms: where the server holds it still for a
 * transaction or a script, it stands still here. */
long long emq_now(void);
/* The run-at that `in|at value`, two arguments of a call, means. Gives what it is refused with, NULL when it is sound. */
const char *emq_due(long long *run_at_ms, RedisModuleString **mode, const char *no_mode, const char *no_due);

/* keys.c: `base part id tail`, to be freed with emq_free. A command goes by its first key's queue and its id alone, as
 * the scripts do: `given`, the key that a caller names for it, is only taken when it is the same. */
RedisModuleString *emq_key_given(struct queue *queue, RedisModuleString *given, const char *part, struct text id);
/* Whether the user may touch the `count` keys that the call goes by; replies with the refusal when not. The server has
 * checked those that were given, so it is only asked again where one of them strays. */
bool emq_may(const struct queue *queue, RedisModuleString **argv, int argc, RedisModuleString *const *keys, int count);
RedisModuleString *emq_key(const struct queue *queue, const char *part, struct text id, const char *tail);
RedisModuleString *emq_key_named(const struct queue *queue, const char *name);
void emq_free(const struct queue *queue, RedisModuleString *string);
/* The type and the length of what a key holds. */
int emq_type(const struct queue *queue, RedisModuleString *key, size_t *length);
/* Whether a key holds that type, or nothing. */
bool emq_fits(const struct queue *queue, RedisModuleString *key, int type);
/* Whether a set holds a member; the key is known to fit. */
bool emq_member(const struct queue *queue, RedisModuleString *key, RedisModuleString *member);
/* Whether this node has all keys of the queue: not while a cluster moves its slot, where the rest is on another node and
 * looks like nothing here. */
extern bool emq_clustered;
bool emq_is_whole(const struct queue *queue);
/* Ends a write that cannot fail: its reply is of no interest. */
void emq_done(RedisModuleCallReply *reply);

/* wake.c: `n` tokens while fewer than 64 lie there; one when `id` is now the earliest of the schedule (§12.2). */
void emq_wake(const struct queue *queue, long long n);
void emq_wake_if_first(const struct queue *queue, RedisModuleString *schedule, const RedisModuleString *id);

/* ceiling.c: the tokens that are due after `freed` jobs left hand (§7). */
void emq_wake_freed(const struct queue *queue, long long freed);

/* row.c: texts that are written over and over, made once. */
struct words {
    RedisModuleString *state, *attempts, *payload, *pending, *active, *scheduled, *zero, *token;
};
extern struct words emq_words;
void emq_make_words(void);
/* Sets fields of a row that is a hash. */
void emq_set_state(const struct queue *queue, RedisModuleString *row, RedisModuleString *state);
void emq_set_active(const struct queue *queue, RedisModuleString *row, long long attempts);
/* Writes the row of a new job. */
void emq_write_row(const struct queue *queue, RedisModuleString *row, RedisModuleString *state, RedisModuleString *payload);
/* Whether an admission is a duplicate: the id has a row, or a finished job's result still lives. */
bool emq_known(const struct queue *queue, RedisModuleString *row, struct text id);

/* One command a file. */
int emq_schedule(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int emq_reschedule(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int emq_promote(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int emq_delay(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int emq_enqueue(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int emq_enqueue_many(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int emq_claim(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int emq_complete_many(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
