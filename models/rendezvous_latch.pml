/*
 * A latch on one server: calls count it down, it is reset once, and a client waits until it is open. An event is such a
 * latch.
 *
 * SPEAKS OF  _lua/rendezvous/latch.lua
 *
 * A request that was sent is carried out at any later time, once or more than once: a caller without a reply asks again, and
 * copies arrive late. Messages arrive. (A waiter also asks from time to time, in case that a message is lost. So nothing is
 * lost for good.)
 *
 * Holds: the count is never lower than the counted calls explain, and a call is counted once. A waiter is released only if
 * the latch was open since it began to wait, and it misses no opening.
 */
#define CALLS   3
#define COUNT   2
#define COPIES  2

/* The server. */
byte left = COUNT;
byte opened;                /* number of openings: stands for the time of the last one */
bool known[CALLS];           /* calls that are remembered */
bool listed;                /* the waiter is to be notified */
bool told;                  /* the message is there */
bool back;                  /* the latch was reset */

/* The true events. */
bool sent[CALLS];
byte copies[CALLS];
bool counted[CALLS];
byte sum;                   /* calls that were counted since the reset */

mtype = { HOME, BEGAN, LOOKED, WAITS, RELEASED };
mtype at = HOME;
byte base;                  /* the number of openings that it saw when it began */
bool since;                 /* the latch was open since then */

inline down(c) {
    if
#ifdef NO_MEMORY
    :: true ->
#else
    :: !known[c] ->
#endif
        known[c] = true;
        if
        :: !counted[c] -> counted[c] = true; sum++
        :: else
        fi;
        if
        :: left > 0 ->
            left--;
            if
            :: left == 0 ->
                opened++;
                since = true;
#ifndef NO_TELL
                if
                :: listed -> told = true; listed = false
                :: else
                fi
#endif
            :: else
            fi
        :: else
        fi
    :: else
    fi;
    assert(left + sum >= COUNT)
}

proctype Call(byte c) {
end:
    do
    :: atomic { !sent[c] -> sent[c] = true }
    :: atomic { sent[c] && copies[c] < COPIES -> copies[c]++; down(c) }
    od
}

proctype Reset() {
end:
    atomic { !back -> back = true; left = COUNT; sum = 0 }
}

inline look() {
    if
#ifdef LEVEL_ONLY
    :: left == 0 ->
#else
    :: left == 0 || opened > base ->
#endif
        at = RELEASED;
        assert(since)
    :: else ->
#ifdef LOOKS_THEN_LISTS
        at = LOOKED
#else
        listed = true;
        at = WAITS
#endif
    fi
}

proctype Waiter() {
end:
    do
    :: atomic { at == HOME -> base = opened; since = (left == 0); at = (left == 0 -> RELEASED : BEGAN) }
    :: atomic { at == BEGAN -> look() }
    :: atomic { at == LOOKED -> listed = true; at = WAITS }
#ifdef BELIEVES
    :: atomic { at == WAITS -> told = false; at = RELEASED; assert(since) }
#else
    :: atomic { at == WAITS && told -> told = false; look() }
#endif
    od
}

proctype Watch() {
end:
    atomic { timeout -> assert(at != WAITS || !since) }
}

init {
    byte c;
    atomic {
        for (c : 0 .. CALLS - 1) { run Call(c) }
        run Reset();
        run Waiter();
        run Watch()
    }
}
