/* Texts and numbers as they come in arguments (protocol §4). */
#include <string.h>

#include "emq.h"

const struct text EMQ_NOTHING = {"", 0};

struct text emq_text(const RedisModuleString *string) {
    struct text text;
    text.at = RedisModule_StringPtrLen(string, &text.length);
    return text;
}

struct text emq_word(const char *word) {
    struct text text = {word, strlen(word)};
    return text;
}

bool emq_same(struct text one, struct text other) {
    return one.length == other.length && memcmp(one.at, other.at, one.length) == 0;
}

long long emq_natural(struct text text) {
    if (text.length < 1 || text.length > 16 || (text.length > 1 && text.at[0] == '0')) return -1;
    long long value = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') return -1;
        value = value * 10 + (text.at[i] - '0');
    }
    return value <= EMQ_LAST ? value : -1;
}
