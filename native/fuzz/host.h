/* A host of the module interface, in this process: it runs the module's commands on a keyspace in memory, and stops at
 * everything that a server would forgive or not notice. */
#ifndef ECHOMQ_FUZZ_HOST_H
#define ECHOMQ_FUZZ_HOST_H

#include "store.h"

/* Loads the module, once. */
void host_load(void);
/* An empty keyspace, at `now_ms`. */
void host_reset(long long now_ms);
void host_clock(long long now_ms);
/* Whether it is a node of a cluster, and whether its slot is on the move: then a call to keys that are not there fails. */
void host_cluster(bool clustered, bool moving);
/* Whether the user may touch the keys alone that a call names, and publish nothing. */
void host_narrow(bool narrow);
/* Writes as another client would. */
void host_write(const struct bytes *words, size_t count);

/* Runs a command of the module, whose name is the first word, and holds it to what each of them owes:
 * exactly one whole reply; every string, key, reply and block of memory given back; nothing written when it refuses,
 * but for a ghost dropped; nothing read through a key that is closed; a replica that gets only what it replicates holds
 * the same; and no more than 64 wake tokens. */
void host_run(const struct bytes *words, size_t count);

/* How many commands the module has. */
size_t host_commands(void);

#endif
