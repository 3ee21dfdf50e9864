/* Preloaded beside the sanitizers: a server that binds a module's names to its own libraries first (RTLD_DEEPBIND), as
 * Valkey does, would hide them from it, and they refuse that. */
#define _GNU_SOURCE
#include <dlfcn.h>

__attribute__((visibility("default"))) void *dlopen(const char *path, int flags) {
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return next(path, flags & ~RTLD_DEEPBIND);
}
