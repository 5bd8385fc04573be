/*
 * Single flight on one server: a value is loaded by who has the lease, stored under the fence of his load, and found by others;
 * meanwhile the source changes, and whoever changes it deletes the value, or invalidates its tag.
 *
 * SPEAKS OF  _lua/single_flight/_values.lua _lua/shared/_notify.lua _lua/single_flight/get_or_lease.lua _lua/single_flight/store.lua _lua/single_flight/cancel_load.lua _lua/single_flight/delete.lua _lua/single_flight/invalidate.lua
 *
 * A request that was sent is served at any later time, once, more than once, or never. A lease may end at any time, and its
 * loader does not notice: he may stand still for any time, and then store what he has loaded. A loader reads the source at any
 * time after his lease was granted. Who changes the source, changes it first.
 *
 * Holds: what is found is never older than a change of the source whose invalidation is done.
 */
#define LOADERS 2
#define CHANGES 2
#define TRIES   5           /* fences that are issued, at most */

/* The server. Loader l has token l + 1. */
byte holder;                /* whose lease the load is */
byte fence;                 /* the last that was issued */
byte bound;                 /* the fence of that lease */
byte stored;                /* fence of the value; 0: nothing is there */
byte content;               /* the version that was stored */
byte floor;                 /* of the tag */

/* The source, and who changes it. */
byte version;
byte acked;                 /* the newest version whose invalidation is done */
bool undone;                /* the invalidation for the newest version was sent, and not answered */

/* The loaders. */
mtype = { IDLE, ASKING, LOADING, LANDING };
mtype at[LOADERS] = IDLE;
byte mine[LOADERS];         /* the fence of his load */
byte has[LOADERS];          /* the version that he has read */
bool read[LOADERS];

#ifdef FLOOR_BEHIND
#define covered (fence > 0 -> fence - 1 : 0)
#else
#define covered fence
#endif

inline look(l) {
    /* A copy of his request may be served when he has his answer long since: then nobody uses what it grants. */
    if
    :: holder == 0 || holder == l + 1 ->
        if
        :: holder == 0 -> fence++; bound = fence; holder = l + 1
        :: else
        fi;
        if
        :: at[l] == ASKING -> mine[l] = bound; at[l] = LOADING
        :: true
        fi
    :: else
    fi
}

inline land(l) {
    if
#if defined(NO_LEASE)
    :: true ->
#elif defined(NO_BOUND)
    :: holder == l + 1 ->
#else
    :: holder == l + 1 && bound == mine[l] ->
#endif
#ifdef FENCE_AT_LANDING
        fence++;
        stored = fence;
#else
        stored = mine[l];
#endif
        content = has[l];
        holder = 0
    :: else
    fi
}

proctype Loader(byte l) {
end:
    do
    :: atomic { at[l] == IDLE -> at[l] = ASKING }
    :: atomic { at[l] != IDLE && fence < TRIES -> look(l) }
    :: atomic { at[l] == LOADING && !read[l] -> has[l] = version; read[l] = true }
    :: atomic { at[l] == LOADING && read[l] -> at[l] = LANDING }
    :: atomic { at[l] == LANDING -> land(l) }
    od
}

proctype Changer() {
end:
    do
    :: atomic { version < CHANGES && !undone -> version++; undone = true }
    :: atomic { undone ->
        if
        :: true ->              /* deletes it */
            stored = 0;
#ifndef LEAVES_LEASE
            holder = 0
#endif
        :: true -> floor = covered
        fi;
        if                      /* the answer gets lost: once more */
        :: acked = version; undone = false
        :: true
        fi }
    od
}

proctype Others() {
end:
    do
    :: atomic { holder != 0 -> holder = 0 }             /* a lease ends */
    :: atomic { stored > 0 -> stored = 0 }   /* a value's time is over */
#ifdef READS_VOID
    :: atomic { stored > 0 -> assert(content >= acked) }
#else
    :: atomic { stored > floor -> assert(content >= acked) }
#endif
    od
}

init {
    byte l;
    atomic {
        for (l : 0 .. LOADERS - 1) { run Loader(l) }
        run Changer();
        run Others()
    }
}
