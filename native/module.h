/* The part of the servers' module interface that EchoMQ uses, on Redis 7.0 and later and Valkey 8 and later.
 *
 * servers answer to the `RedisModule_*` names. A pointer in OPTIONAL stays NULL where the server is too old for it.
 */
#ifndef ECHOMQ_MODULE_H
#define ECHOMQ_MODULE_H

#include <stddef.h>
#include <stdint.h>

typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleKey RedisModuleKey;
typedef struct RedisModuleCallReply RedisModuleCallReply;
typedef struct RedisModuleCommand RedisModuleCommand;

/* The first word of a context is the function that resolves all others; the rest belongs to the server. */
typedef struct RedisModuleCtx {
    int (*get_api)(const char *name, void *pointer);
} RedisModuleCtx;

typedef int (*RedisModuleCmdFunc)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

enum { REDISMODULE_OK = 0, REDISMODULE_ERR = 1 };
enum { REDISMODULE_APIVER_1 = 1 };
enum { REDISMODULE_READ = 1 << 0, REDISMODULE_WRITE = 1 << 1 };
enum { REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD = 1 << 2, VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION = 1 << 5 };
enum { REDISMODULE_CTX_FLAGS_CLUSTER = 1 << 5 };
enum { REDISMODULE_LIST_HEAD = 0, REDISMODULE_LIST_TAIL = 1 };

enum {
    REDISMODULE_KEYTYPE_EMPTY = 0,
    REDISMODULE_KEYTYPE_STRING = 1,
    REDISMODULE_KEYTYPE_LIST = 2,
    REDISMODULE_KEYTYPE_HASH = 3,
    REDISMODULE_KEYTYPE_SET = 4,
    REDISMODULE_KEYTYPE_ZSET = 5
};

enum {
    REDISMODULE_HASH_NONE = 0,
    REDISMODULE_HASH_CFIELDS = 1 << 2,
    REDISMODULE_HASH_EXISTS = 1 << 3
};

enum { REDISMODULE_REPLY_STRING = 0, REDISMODULE_REPLY_ERROR = 1, REDISMODULE_REPLY_INTEGER = 2 };

enum {
    REDISMODULE_NOTIFY_GENERIC = 1 << 2,
    REDISMODULE_NOTIFY_LIST = 1 << 4,
    REDISMODULE_NOTIFY_HASH = 1 << 6,
    REDISMODULE_NOTIFY_ZSET = 1 << 7
};

/* What the servers keep of a command besides its name; only what we fill is spelt out. */
typedef struct {
    int version;
    size_t sizeof_historyentry;
    size_t sizeof_keyspec;
    size_t sizeof_arg;
} RedisModuleCommandInfoVersion;

enum {
    REDISMODULE_CMD_KEY_RW = 1 << 1,
    REDISMODULE_CMD_KEY_ACCESS = 1 << 4,
    REDISMODULE_CMD_KEY_UPDATE = 1 << 5,
    REDISMODULE_CMD_KEY_INSERT = 1 << 6,
    REDISMODULE_CMD_KEY_DELETE = 1 << 7
};

typedef enum {
    REDISMODULE_KSPEC_BS_INVALID = 0,
    REDISMODULE_KSPEC_BS_UNKNOWN,
    REDISMODULE_KSPEC_BS_INDEX,
    REDISMODULE_KSPEC_BS_KEYWORD
} RedisModuleKeySpecBeginSearchType;

typedef enum {
    REDISMODULE_KSPEC_FK_OMITTED = 0,
    REDISMODULE_KSPEC_FK_UNKNOWN,
    REDISMODULE_KSPEC_FK_RANGE,
    REDISMODULE_KSPEC_FK_KEYNUM
} RedisModuleKeySpecFindKeysType;

typedef struct {
    const char *notes;
    uint64_t flags;
    RedisModuleKeySpecBeginSearchType begin_search_type;
    union {
        struct {
            int pos;
        } index;
        struct {
            const char *keyword;
            int startfrom;
        } keyword;
    } bs;
    RedisModuleKeySpecFindKeysType find_keys_type;
    union {
        struct {
            int lastkey;
            int keystep;
            int limit;
        } range;
        struct {
            int keynumidx;
            int firstkey;
            int keystep;
        } keynum;
    } fk;
} RedisModuleCommandKeySpec;

typedef struct {
    const RedisModuleCommandInfoVersion *version;
    const char *summary;
    const char *complexity;
    const char *since;
    void *history;
    const char *tips;
    int arity;
    RedisModuleCommandKeySpec *key_specs;
    void *args;
} RedisModuleCommandInfo;

/* F(result, name, parameters) for every function that each of our servers has. */
#define MODULE_FUNCTIONS(F)                                                                                          \
    F(void, SetModuleAttribs, (RedisModuleCtx *, const char *, int, int))                                            \
    F(int, IsModuleNameBusy, (const char *))                                                                         \
    F(void, SetModuleOptions, (RedisModuleCtx *, int))                                                               \
    F(int, CreateCommand, (RedisModuleCtx *, const char *, RedisModuleCmdFunc, const char *, int, int, int))         \
    F(RedisModuleCommand *, GetCommand, (RedisModuleCtx *, const char *))                                            \
    F(int, SetCommandInfo, (RedisModuleCommand *, const RedisModuleCommandInfo *))                                   \
    F(void *, Alloc, (size_t))                                                                                       \
    F(void *, Calloc, (size_t, size_t))                                                                              \
    F(void *, Realloc, (void *, size_t))                                                                             \
    F(void, Free, (void *))                                                                                          \
    F(long long, Milliseconds, (void))                                                                               \
    F(int, WrongArity, (RedisModuleCtx *))                                                                           \
    F(int, ReplyWithLongLong, (RedisModuleCtx *, long long))                                                         \
    F(int, ReplyWithError, (RedisModuleCtx *, const char *))                                                         \
    F(int, ReplyWithArray, (RedisModuleCtx *, long))                                                                 \
    F(int, ReplyWithStringBuffer, (RedisModuleCtx *, const char *, size_t))                                          \
    F(int, ReplyWithString, (RedisModuleCtx *, RedisModuleString *))                                                 \
    F(RedisModuleString *, CreateString, (RedisModuleCtx *, const char *, size_t))                                   \
    F(RedisModuleString *, CreateStringFromLongLong, (RedisModuleCtx *, long long))                                  \
    F(void, FreeString, (RedisModuleCtx *, RedisModuleString *))                                                     \
    F(RedisModuleString *, HoldString, (RedisModuleCtx *, RedisModuleString *))                                      \
    F(const char *, StringPtrLen, (const RedisModuleString *, size_t *))                                             \
    F(int, KeyExists, (RedisModuleCtx *, RedisModuleString *))                                                       \
    F(RedisModuleKey *, OpenKey, (RedisModuleCtx *, RedisModuleString *, int))                                       \
    F(void, CloseKey, (RedisModuleKey *))                                                                            \
    F(int, KeyType, (RedisModuleKey *))                                                                              \
    F(size_t, ValueLength, (RedisModuleKey *))                                                                       \
    F(int, DeleteKey, (RedisModuleKey *))                                                                            \
    F(int, HashGet, (RedisModuleKey *, int, ...))                                                                    \
    F(int, HashSet, (RedisModuleKey *, int, ...))                                                                    \
    F(int, ZsetAdd, (RedisModuleKey *, double, RedisModuleString *, int *))                                          \
    F(int, ZsetScore, (RedisModuleKey *, RedisModuleString *, double *))                                             \
    F(int, ZsetFirstInScoreRange, (RedisModuleKey *, double, double, int, int))                                      \
    F(RedisModuleString *, ZsetRangeCurrentElement, (RedisModuleKey *, double *))                                    \
    F(int, ZsetRangeNext, (RedisModuleKey *))                                                                        \
    F(int, ZsetRangeEndReached, (RedisModuleKey *))                                                                  \
    F(void, ZsetRangeStop, (RedisModuleKey *))                                                                       \
    F(RedisModuleString *, ListGet, (RedisModuleKey *, long))                                                        \
    F(RedisModuleCallReply *, Call, (RedisModuleCtx *, const char *, const char *, ...))                             \
    F(int, CallReplyType, (RedisModuleCallReply *))                                                                  \
    F(long long, CallReplyInteger, (RedisModuleCallReply *))                                                         \
    F(void, FreeCallReply, (RedisModuleCallReply *))                                                                 \
    F(int, Replicate, (RedisModuleCtx *, const char *, const char *, ...))                                           \
    F(int, NotifyKeyspaceEvent, (RedisModuleCtx *, int, const char *, RedisModuleString *))

/* The same for what only newer servers have. */
#define MODULE_OPTIONAL(F)                                                                                           \
    F(int, SetCommandACLCategories, (RedisModuleCommand *, const char *))                                            \
    F(long long, CachedMicroseconds, (void))

#define MODULE_DECLARE(result, name, parameters) extern result(*RedisModule_##name) parameters;
MODULE_FUNCTIONS(MODULE_DECLARE)
MODULE_OPTIONAL(MODULE_DECLARE)


#endif
