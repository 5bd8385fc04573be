/*
 * Permits: those of a semaphore, or of a read-write lock, of which a reader takes one and a writer all.
 *
 * SPEAKS OF  _lua/permit/acquire.lua _lua/permit/release.lua _lua/permit/refresh.lua _lua/permit/renew.lua _lua/permit/change.lua _lua/permit/limit.lua _lua/inspect/break_permits.lua _lua/permit/migrating.lua _lua/permit/_permits.lua _core/permit.py
 *
 * Three clients want 1, 1 and all LIMIT permits, each TRIES times. They wait in one queue. Free permits go to the first
 * waiter, and to several if there are enough. Each holder has its own expiry. There are FAULTS faults: a hand-over message is
 * lost, a client is stopped forever or for a while, a request is carried out twice. Requests and their losses are the subject
 * of lock_handover.pml: a script and its reply are one step here. Time is counted in ticks.
 *
 * Holds: the clients never believe that they hold more permits than there are; the number of used permits is the number of
 * held permits; a waiter is overtaken only if its process did not listen; free permits that suffice for the first live waiter
 * are granted.
 */
#define CLIENTS 3
#ifndef LIMIT
#define LIMIT   2
#endif
#ifndef TRIES
#define TRIES   1
#endif
#ifndef FAULTS
#define FAULTS  2
#endif
#define LEASE   3
#define CLAIM   2    /* ticks that a winner has to claim its permits */
#define PLACE   3    /* ticks for which a place counts after the last refresh */
#define IDLE    8

#define weight(c) (c == CLIENTS - 1 -> LIMIT : 1)

/* The server. */
byte until[CLIENTS];         /* ticks for which its permits count; 0: it has none */
byte has[CLIENTS];           /* how many */
byte used;
chan queue = [CLIENTS] of { byte };
byte place[CLIENTS];         /* ticks for which its place counts */

/* The clients. */
mtype = { OUT, WAITING, HOLDING, DEAD };
mtype state[CLIENTS] = OUT;
byte left[CLIENTS];          /* ticks for which it believes */
byte believed[CLIENTS];      /* number of permits that it believes in */
bool stopped[CLIENTS];
bool told[CLIENTS];          /* a message is on its way: it was granted its permits */
byte window[CLIENTS];        /* ticks for which the message would be believed */
byte tries[CLIENTS];
bool doubled[CLIENTS];       /* a copy of its release is still to come */
bool fresh[CLIENTS];         /* it was refreshed in this tick */

byte faults = FAULTS;
byte idle;
byte overtaken;              /* for the check alone: how often the writer was overtaken */

#define alive(c) (state[c] != DEAD && !stopped[c])
#define listens(c) (state[c] == WAITING && alive(c))
#define counts(c) (c == me || (place[c] > 0 && listens(c)))

inline remove(c) {
#ifdef RELEASE_BLIND
    used = (used > weight(c) -> used - weight(c) : 0);             /* without a check that it holds any */
#else
    used = used - has[c];
#endif
    has[c] = 0; until[c] = 0
}

inline expire() {
    for (i : 0 .. CLIENTS - 1) {
#ifdef NO_EXPIRY
        skip
#else
        if :: has[i] > 0 && until[i] == 0 -> remove(i) :: else fi
#endif
    }
    i = 0
}

inline admit(c, ticks) {
    has[c] = weight(c); until[c] = ticks; used = used + weight(c)
}

/* serve in _permits.lua: free permits go to the first waiter, and to those behind it, as long as they suffice. */
inline serve(me) {
    blocked = false;
    n = len(queue);
    do
    :: n == 0 -> break
    :: n > 0 ->
        n--;
        queue?c;
        if
        :: !blocked && place[c] == 0 && c != me -> skip
        :: blocked -> queue!c
        :: !blocked && place[c] > 0 && c != me && !listens(c) -> queue!c
        :: !blocked && counts(c) && used + weight(c) > LIMIT ->
            queue!c; blocked = true
        :: !blocked && c == me && used + weight(c) <= LIMIT -> admit(c, LEASE); place[c] = 0
        :: !blocked && c != me && counts(c) && used + weight(c) <= LIMIT ->
            admit(c, CLAIM); place[c] = 0;
            if
            :: told[c] = true
            :: faults > 0 -> faults--; idle = 0                     /* the message is lost */
            fi
        fi
    od;
    c = 0
}

inline leave(c) {
    n = len(queue);
    do
    :: n == 0 -> break
    :: n > 0 -> n--; queue?x; if :: x == c -> skip :: else -> queue!x fi
    od;
    x = 0; place[c] = 0
}

inline hold(c, ticks, permits) { state[c] = HOLDING; left[c] = ticks; believed[c] = permits; told[c] = false; window[c] = 0 }

inline note_overtaking(c) {
    if
    :: c != CLIENTS - 1 && state[CLIENTS - 1] == WAITING && alive(CLIENTS - 1) && place[CLIENTS - 1] > 0 -> overtaken++
    :: else
    fi
}

#define all_believed ((left[0] > 0 -> believed[0] : 0) + (left[1] > 0 -> believed[1] : 0) + (left[2] > 0 -> believed[2] : 0))
#define all_held     (has[0] + has[1] + has[2])

inline check() {
    assert(all_believed <= LIMIT);
    assert(used == all_held);
    assert(overtaken == 0)
}

active proctype Clients() {
    byte c, i, n, x, p;
    bool blocked;
end:
    do
    :: atomic {
        select(p : 0 .. CLIENTS - 1);
        if
        /* permit_acquire: take free permits if they suffice, or join the queue. */
        :: alive(p) && state[p] == OUT && tries[p] < TRIES ->
            tries[p]++;
            expire(); serve(CLIENTS);
#ifdef BARGE
            blocked = false;
#endif
            if
            :: !blocked && used + weight(p) <= LIMIT -> note_overtaking(p); admit(p, LEASE); hold(p, LEASE, weight(p))
            :: else -> queue!p; place[p] = PLACE; state[p] = WAITING; window[p] = CLAIM; fresh[p] = true
            fi
        /* permit_refresh, once a tick: never inserts. */
        :: alive(p) && state[p] == WAITING && !fresh[p] ->
            fresh[p] = true;
            expire();
            if
            :: has[p] > 0 -> until[p] = LEASE; hold(p, LEASE, weight(p))
            :: has[p] == 0 && place[p] == 0 -> leave(p); state[p] = OUT; told[p] = false; window[p] = 0; tries[p]--
            :: has[p] == 0 && place[p] > 0 ->
                place[p] = PLACE; window[p] = CLAIM;
#ifndef NO_HELP
                serve(p);
                if :: has[p] > 0 -> hold(p, LEASE, weight(p)) :: else fi
#endif
            fi
        /* A hand-over message: it counts from the last refresh. */
        :: alive(p) && told[p] && state[p] == WAITING ->
            if
#ifdef FROM_READING
            :: hold(p, CLAIM, weight(p))
#else
            :: window[p] > 0 -> hold(p, window[p], weight(p))
            :: window[p] == 0 -> told[p] = false
#endif
            fi
        /* permit_renew: never creates. */
        :: alive(p) && state[p] == HOLDING && left[p] > 0 && left[p] < LEASE ->
            expire();
            if
            :: has[p] > 0 -> until[p] = LEASE; left[p] = LEASE
            :: has[p] == 0 -> left[p] = 0
            fi
        /* permit_change: a writer becomes a reader. */
        :: alive(p) && state[p] == HOLDING && left[p] > 0 && believed[p] > 1 ->
            expire();
#ifdef DOWNGRADE_LATE
            if :: has[p] > 1 -> used = used - has[p] + 1; has[p] = 1; serve(CLIENTS) :: else fi   /* it still believes in all */
#else
            believed[p] = 1;
            if :: has[p] > 1 -> used = used - has[p] + 1; has[p] = 1; serve(CLIENTS) :: else fi
#endif
        /* permit_release, or giving up. */
        :: alive(p) && (state[p] == HOLDING || state[p] == WAITING) ->
            left[p] = 0; believed[p] = 0; told[p] = false; window[p] = 0; state[p] = OUT;
            expire();
            leave(p);
#ifdef RELEASE_BLIND
            remove(p);
#else
            if :: has[p] > 0 -> remove(p) :: else fi;
#endif
            if :: faults > 0 && !doubled[p] -> faults--; doubled[p] = true; idle = 0 :: true fi;
            serve(CLIENTS)
        :: doubled[p] && state[p] == OUT ->                        /* the copy of a release: its token holds nothing by now */
            doubled[p] = false;
            expire();
#ifdef RELEASE_BLIND
            remove(p);
#endif
            serve(CLIENTS)
        /* The faults. */
        :: alive(p) && faults > 0 && state[p] != OUT ->
            faults--; idle = 0;
            if :: stopped[p] = true :: state[p] = DEAD; left[p] = 0; told[p] = false; window[p] = 0 fi
        :: stopped[p] && state[p] != DEAD -> stopped[p] = false; idle = 0
        :: else
        fi;
        p = 0; blocked = false; n = 0;
        check()
       }
    od
}

/* A live client does what is due before the next tick. */
#define due(c) (alive(c) && ((state[c] == WAITING && !fresh[c]) || (state[c] == HOLDING && left[c] == 0)))

active proctype Time() {
    byte j, head, m, y;
    bool found;
end:
    do
    :: atomic {
        !due(0) && !due(1) && !due(2) ->
        for (j : 0 .. CLIENTS - 1) {
            if :: until[j] > 0 -> until[j]-- :: else fi;
            if :: place[j] > 0 -> place[j]-- :: else fi;
            if :: left[j] > 0 -> left[j]-- :: else fi;
            if :: window[j] > 0 -> window[j]-- :: else fi;
            fresh[j] = false
        }
        j = 0;
        /* The first waiter, of those that are alive. */
        found = false; head = 0;
        m = len(queue);
        do
        :: m == 0 -> break
        :: m > 0 -> m--; queue?y; queue!y;
            if :: !found && state[y] == WAITING && alive(y) -> found = true; head = y :: else fi
        od;
        y = 0;
        if
        :: found && all_believed + weight(head) <= LIMIT -> idle++
        :: else -> idle = 0
        fi;
        found = false; head = 0;
        assert(idle <= IDLE);
        check()
       }
    od
}
