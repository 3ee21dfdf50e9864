/* What is checked before anything is read: the queue, the kind, the due (protocol §5). */
#include <string.h>

#include "emq.h"

/* Lua's `^(emq:{[^}]+}:)`. */
bool emq_queue(struct queue *queue, RedisModuleCtx *ctx, const RedisModuleString *first_key) {
    static const char head[] = "emq:{";
    const size_t prefix = sizeof head - 1;
    struct text key = emq_text(first_key);
    queue->ctx = ctx;
    queue->strays = false;
    if (key.length <= prefix || memcmp(key.at, head, prefix) != 0) return false;
    const char *end = memchr(key.at + prefix, '}', key.length - prefix);
    if (!end || end == key.at + prefix) return false;
    queue->base.at = key.at;
    queue->base.length = (size_t)(end - key.at) + 2;
    return queue->base.length <= key.length && end[1] == ':';
}

bool emq_is_job(struct text id) {
    return id.length >= 3 && memcmp(id.at, "JOB", 3) == 0 && !memchr(id.at, '\0', id.length);
}

long long emq_now(void) {
    return RedisModule_CachedMicroseconds ? RedisModule_CachedMicroseconds() / 1000 : RedisModule_Milliseconds();
}

const char *emq_due(long long *run_at_ms, RedisModuleString **mode, const char *no_mode, const char *no_due) {
    struct text word = emq_text(mode[0]);
    bool from_now = emq_same(word, emq_word("in"));
    if (!from_now && !emq_same(word, emq_word("at"))) return no_mode;
    long long due = emq_natural(emq_text(mode[1]));
    if (due < 0) return no_due;
    if (from_now) due += emq_now();
    if (due > EMQ_LAST) return no_due;
    *run_at_ms = due;
    return NULL;
}
