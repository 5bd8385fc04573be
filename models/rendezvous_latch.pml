/*
 * A latch on one server: calls count it down, it is set back once, and one waits until it is open. An event is such a latch.
 *
 * SPEAKS OF  _lua/rendezvous/latch.lua
 *
 * A request that was sent is served at any later time, once or more than once: the caller asks again without an answer, and copies
 * come late. Messages arrive. (Who waits looks from time to time besides, for those that do not: so nothing is lost for good.)
 *
 * Holds: what is missing is never less than what was counted says, a call counted once. Who waits is released only if it was open
 * since he began, and nobody sleeps through that.
 */
#define CALLS   3
#define COUNT   2
#define COPIES  2

/* The server. */
byte left = COUNT;
byte opened;                /* how often it has opened: stands for the time when it did last */
bool known[CALLS];           /* calls that are remembered */
bool listed;                /* who waits is to be told */
bool told;                  /* the message is there */
bool back;                  /* it was set back */

/* What has happened in truth. */
bool sent[CALLS];
byte copies[CALLS];
bool counted[CALLS];
byte sum;                   /* calls that were counted since it was set back */

mtype = { HOME, BEGAN, LOOKED, WAITS, RELEASED };
mtype at = HOME;
byte base;                  /* what it has seen when it began */
bool since;                 /* it was open since then */

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
