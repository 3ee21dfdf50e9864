/* Runs the fuzzer's inputs where the compiler has no libFuzzer, and takes the same arguments: -max_total_time=SECONDS,
 * -seed=N and folders. Each file is one input; then, for as long as it is told to, inputs that chance makes of them. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST = 600, MOST = 4096 };

struct seed {
    uint8_t bytes[LONGEST];
    size_t length;
};

static struct seed seeds[MOST];
static size_t count;
static uint64_t state = 1;

static uint32_t chance(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 16) % below);
}

static void read_folder(const char *name) {
    DIR *folder = opendir(name);
    if (!folder) return;
    for (struct dirent *entry = readdir(folder); entry && count < MOST; entry = readdir(folder)) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", name, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!file) continue;
        seeds[count].length = fread(seeds[count].bytes, 1, LONGEST, file);
        count++;
        fclose(file);
    }
    closedir(folder);
}

/* Parts of two inputs one behind the other, and some bytes of it others. */
static struct seed offspring(void) {
    struct seed made = {{0}, 0};
    for (int i = 0; i < 2; i++) {
        const struct seed *parent = seeds + chance((uint32_t)count);
        size_t first = parent->length ? chance((uint32_t)parent->length) : 0;
        size_t length = parent->length - first;
        if (length > LONGEST - made.length) length = LONGEST - made.length;
        memcpy(made.bytes + made.length, parent->bytes + first, length);
        made.length += length;
    }
    for (uint32_t n = chance(8); n && made.length; n--) made.bytes[chance((uint32_t)made.length)] = (uint8_t)chance(256);
    return made;
}

/* The input at which it stopped stays, in the folder where it ran (the sanitizers end by SIGABRT, see run). */
static const struct seed *current;

static void leave(int number) {
    FILE *file = current ? fopen("crash-input", "wb") : NULL;
    if (file) {
        fwrite(current->bytes, 1, current->length, file);
        fclose(file);
    }
    signal(number, SIG_DFL);
    raise(number);
}

int main(int argc, char **argv) {
    long seconds = 0;
    signal(SIGABRT, leave);
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-max_total_time=", 16) == 0) seconds = strtol(argv[i] + 16, NULL, 10);
        else if (strncmp(argv[i], "-seed=", 6) == 0) state = strtoull(argv[i] + 6, NULL, 10) | 1;
        else if (argv[i][0] != '-') read_folder(argv[i]);
    }
    if (!count) count = 1;
    unsigned long runs = 0;
    for (; runs < count; runs++) {
        current = seeds + runs;
        LLVMFuzzerTestOneInput(seeds[runs].bytes, seeds[runs].length);
    }
    for (time_t end = time(NULL) + seconds; time(NULL) < end; runs++) {
        struct seed made = offspring();
        current = &made;
        LLVMFuzzerTestOneInput(made.bytes, made.length);
    }
    printf("Done %lu runs in %ld second(s)\n", runs, seconds);
    return 0;
}
