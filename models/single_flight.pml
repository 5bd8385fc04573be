/*
 * Single flight on one server: the owner of the load lease loads a value, stores it under the fence of its load, and others
 * find it.
 *
 * SPEAKS OF  _lua/single_flight/_values.lua _lua/shared/_notify.lua _lua/single_flight/get_or_lease.lua _lua/single_flight/_lease.lua _lua/single_flight/take_over.lua _lua/single_flight/store.lua _lua/single_flight/cancel_load.lua _lua/single_flight/delete.lua _lua/single_flight/invalidate.lua
 *
 * Meanwhile the source changes. The writer that changes it deletes the value, invalidates its tag, or puts the new version
 * into the cache: then it takes the lease over, and stores the version under the fence that it gets. A request that was sent
 * is carried out at any later time, once, more than once, or never. A lease may end at any time, and its loader does not
 * notice: it may be stopped for any time, and then store its value. A loader reads the source at any time after its lease was
 * granted. A writer changes the source first.
 *
 * Holds: a value that is found is never older than a change of the source whose invalidation is done.
 */
#define LOADERS 2
#define CHANGES 2
#ifndef TRIES
#define TRIES   5           /* maximum number of fences that are issued */
#endif

/* The server. Loader l has token l + 1, and the writer that puts version v has token LOADERS + v. */
byte holder;                /* token of the load lease */
byte fence;                 /* the last fence that was issued */
byte bound;                 /* the fence of that lease */
byte stored;                /* fence of the value; 0: there is none */
byte content;               /* the version that was stored */
byte floor;                 /* floor of the tag: a value with no higher fence is void */

/* The source, and its writer. */
byte version;
byte acked;                 /* the newest version whose invalidation is done */
bool undone;                /* the invalidation for the newest version was sent, and has no reply yet */
#ifdef PUTS
bool putting[CHANGES + 1];  /* the version was sent to be stored, so copies of both requests may be under way */
byte under[CHANGES + 1];    /* the fence of that request, once the reply has arrived */
#endif

/* The loaders. */
mtype = { IDLE, ASKING, LOADING, LANDING };
mtype at[LOADERS] = IDLE;
byte mine[LOADERS];         /* the fence of its load */
byte has[LOADERS];          /* the version that it has read */
bool read[LOADERS];

#ifdef FLOOR_BEHIND
#define covered (fence > 0 -> fence - 1 : 0)
#else
#define covered fence
#endif

inline look(l) {
    /* A copy of its request may be carried out long after its reply: then nobody uses the grant. */
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

inline take_over(v) {
#ifdef PUT_AT_ONCE
    under[v] = 1                /* there is no first request */
#else
    if
    :: holder != LOADERS + v -> fence++; bound = fence; holder = LOADERS + v
    :: else
    fi;
    if                          /* a reply may be lost; the reply to a copy, or one after the loader has given up, is not read */
    :: under[v] == 0 && version == v && undone -> under[v] = bound
    :: true
    fi
#endif
}

inline put(v) {
    if
#ifdef PUT_AT_ONCE
    :: true -> fence++; stored = fence; content = v; holder = 0
#else
    :: holder == LOADERS + v && bound == under[v] && under[v] > floor -> stored = under[v]; content = v; holder = 0
    :: else ->
        if
        :: holder == LOADERS + v -> holder = 0
        :: else
        fi;
#ifndef PUT_LEAVES_OLDER
        if
        :: stored < under[v] -> stored = 0
        :: else
        fi
#endif
#endif
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
        if                      /* the reply is lost: once more */
        :: acked = version; undone = false
        :: true
        fi }
#ifdef PUTS
    :: atomic { undone && !putting[version] -> putting[version] = true }
    :: atomic { undone -> undone = false }       /* it gives up, and does not know what was carried out */
    od
}

proctype Putter(byte v) {
end:
    do
    :: atomic { putting[v] && fence < TRIES -> take_over(v) }
    :: atomic { under[v] > 0 && fence < TRIES ->
        put(v);
        if
        :: version == v && undone -> acked = v; undone = false
        :: true
        fi }
#endif
    od
}

proctype Others() {
end:
    do
    :: atomic { holder != 0 -> holder = 0 }             /* a lease ends */
    :: atomic { stored > 0 -> stored = 0 }   /* a value expires */
#ifdef READS_VOID
    :: atomic { stored > 0 -> assert(content >= acked) }
#else
    :: atomic { stored > floor -> assert(content >= acked) }
#endif
    od
}

init {
    byte l;
#ifdef PUTS
    byte v;
#endif
    atomic {
        for (l : 0 .. LOADERS - 1) { run Loader(l) }
        run Changer();
#ifdef PUTS
        for (v : 1 .. CHANGES) { run Putter(v) }
#endif
        run Others()
    }
}
