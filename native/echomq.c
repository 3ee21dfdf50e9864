/* The module's door: resolves the interface and registers the commands with their flags, keys and categories. */
#include "emq.h"

#define MODULE_DEFINE(result, name, parameters) result(*RedisModule_##name) parameters;
MODULE_FUNCTIONS(MODULE_DEFINE)
MODULE_OPTIONAL(MODULE_DEFINE)

struct command {
    const char *name, *flags, *categories, *summary, *complexity;
    RedisModuleCmdFunc run;
    int arity, keys;
};

/* Names are lower case, as the servers write their own in what they refuse. A call is `name numkeys key...`. */
static const struct command COMMANDS[] = {
    {"emq.schedule", "write deny-oom fast", "write fast sortedset hash list", "Admits one job to run later, fenced by its id",
     "O(log(N)) with N jobs on the schedule", emq_schedule, 8, 2},
    {"emq.reschedule", "write fast", "write fast sortedset list", "Moves a scheduled job in time",
     "O(log(N)) with N jobs on the schedule", emq_reschedule, 7, 2},
    {"emq.promote", "write", "write slow sortedset hash list", "Makes what is due claimable, earliest first",
     "O(B*log(N)) with a batch of B and N jobs on the schedule", emq_promote, 6, 2},
    {"emq.delay", "write fast", "write fast sortedset hash list", "Puts a job in hand back on the schedule",
     "O(log(N)) with N jobs on the schedule", emq_delay, 9, 3},
    {"emq.enqueue", "write deny-oom fast", "write fast sortedset hash list", "Admits one job", "O(log(N)) with N jobs pending",
     emq_enqueue, 6, 2},
    {"emq.enqueuemany", "write deny-oom", "write slow sortedset hash list", "Admits jobs in one call",
     "O(M*log(N)) for M jobs with N jobs pending", emq_enqueue_many, -5, 1},
    {"emq.claim", "write", "write slow sortedset hash list", "Takes jobs in hand", "O(M*log(N)) for M jobs with N in hand",
     emq_claim, 6, 2},
    {"emq.completemany", "write", "write slow sortedset hash string", "Retires jobs in hand",
     "O(M*log(N)) for M jobs with N in hand", emq_complete_many, -7, 1},
};

/* Fills the pointers; false when the server lacks one that is needed. */
static bool resolve(RedisModuleCtx *ctx) {
    bool whole = true;
#define MODULE_NEEDED(result, name, parameters) \
    if (ctx->get_api("RedisModule_" #name, &RedisModule_##name) != REDISMODULE_OK) whole = false;
#define MODULE_WANTED(result, name, parameters) ctx->get_api("RedisModule_" #name, &RedisModule_##name);
    MODULE_FUNCTIONS(MODULE_NEEDED)
    MODULE_OPTIONAL(MODULE_WANTED)
    return whole;
}

static bool is_valkey(RedisModuleCtx *ctx) {
    void (*probe)(RedisModuleCtx *, int) = NULL;
    return ctx->get_api("ValkeyModule_SetModuleOptions", &probe) == REDISMODULE_OK;
}

static bool is_clustered(RedisModuleCtx *ctx) {
    int (*flags)(RedisModuleCtx *) = NULL;
    return ctx->get_api("RedisModule_GetContextFlags", &flags) == REDISMODULE_OK &&
           (flags(ctx) & REDISMODULE_CTX_FLAGS_CLUSTER) != 0;
}

static bool describe(RedisModuleCtx *ctx, const struct command *command) {
    static const RedisModuleCommandInfoVersion version = {1, 2 * sizeof(char *), sizeof(RedisModuleCommandKeySpec), 0};
    RedisModuleCommandKeySpec keys[2] = {{.notes = NULL}, {.notes = NULL}};
    keys[0].flags = REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE;
    keys[0].begin_search_type = REDISMODULE_KSPEC_BS_INDEX;
    keys[0].bs.index.pos = 2;
    keys[0].find_keys_type = REDISMODULE_KSPEC_FK_RANGE;
    keys[0].fk.range.lastkey = command->keys - 1;
    keys[0].fk.range.keystep = 1;
    RedisModuleCommandInfo info = {.version = &version};
    info.summary = command->summary;
    info.complexity = command->complexity;
    info.since = "1.0.0";
    info.arity = command->arity;
    info.key_specs = keys;
    RedisModuleCommand *registered = RedisModule_GetCommand(ctx, command->name);
    if (!registered || RedisModule_SetCommandInfo(registered, &info) != REDISMODULE_OK) return false;
    return !RedisModule_SetCommandACLCategories ||
           RedisModule_SetCommandACLCategories(registered, command->categories) == REDISMODULE_OK;
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    if (!resolve(ctx)) return REDISMODULE_ERR;
    if (RedisModule_IsModuleNameBusy("echomq")) return REDISMODULE_ERR;
    RedisModule_SetModuleAttribs(ctx, "echomq", 1, REDISMODULE_APIVER_1);
    RedisModule_SetModuleOptions(ctx, REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD |
                                          (is_valkey(ctx) ? VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION : 0));
    emq_clustered = is_clustered(ctx);
    emq_make_words();
    for (size_t i = 0; i < sizeof COMMANDS / sizeof *COMMANDS; i++) {
        const struct command *command = COMMANDS + i;
        if (RedisModule_CreateCommand(ctx, command->name, command->run, command->flags, 2, command->keys + 1, 1) !=
                REDISMODULE_OK ||
            !describe(ctx, command))
            return REDISMODULE_ERR;
    }
    return REDISMODULE_OK;
}
