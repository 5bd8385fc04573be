/*
 * A barrier on one server: participants arrive, wait, and pass together; one may leave, one may die, and a broken barrier is
 * reset once.
 *
 * SPEAKS OF  _lua/rendezvous/barrier.lua
 *
 * A request that was sent is carried out at any later time, once or more than once, also if its sender has left, or was told
 * that the barrier is broken. A waiting participant asks at any time.
 *
 * Holds: only participants pass that have arrived, have not left, and were not told that the barrier is broken; they are as
 * many as the barrier needs. None of those that are to pass is told anything else. Nobody waits for a dead participant.
 */
#define VISITORS 5
#define PARTIES  3
#define COPIES   2

/* The server: the state of each participant. */
mtype = { UNKNOWN, WAITING, PASSED, LEFT, BROKE };
mtype place[VISITORS] = UNKNOWN;
bool broken;
byte count;                 /* how many wait */

/* The participants. */
mtype = { HOME, ASKS, TOLD, ON, GONE, DEAD };
mtype at[VISITORS] = HOME;
byte copies[VISITORS];      /* number of copies of its request that were carried out */
bool passed[VISITORS];      /* it was to pass, in truth */
byte deaths, leaves, resets;

inline pass(v) {
    byte i, n;
    n = 0;
    for (i : 0 .. VISITORS - 1) {
        if
        :: place[i] == WAITING ->
            assert(at[i] != GONE && at[i] != TOLD);
            n++;
            passed[i] = true;
#ifdef FORGETS
            place[i] = (i == v -> PASSED : UNKNOWN)
#else
            place[i] = PASSED
#endif
        :: else
        fi
    }
    assert(n == PARTIES);
    count = 0;
    i = 0; n = 0
}

inline destroy() {
    byte j;
    broken = true;
    for (j : 0 .. VISITORS - 1) {
        if
        :: place[j] == WAITING -> place[j] = BROKE
        :: else
        fi
    }
    count = 0;
    j = 0
}

inline come(v) {
    if
    :: place[v] == UNKNOWN && broken ->
#ifndef REFUSES_ONLY
        place[v] = BROKE;
#endif
        if
        :: at[v] == ASKS -> at[v] = TOLD
        :: else
        fi
    :: place[v] == UNKNOWN && !broken ->
        place[v] = WAITING;
        count++;
        if
        :: count == PARTIES -> pass(v)
        :: else
        fi
#ifdef COUNTS_COPIES
    :: place[v] == WAITING ->
        count++;
        if
        :: count == PARTIES -> pass(v)
        :: else
        fi
#endif
    :: else
    fi
}

inline look(v) {
    if
    :: place[v] == PASSED -> at[v] = ON
    :: place[v] == BROKE || place[v] == UNKNOWN ->
        at[v] = TOLD;
        assert(!passed[v])
    fi
}

inline leave(v) {
    if
    :: place[v] == WAITING -> place[v] = LEFT; count--; at[v] = GONE
#ifdef NO_REVOKE
    :: place[v] == UNKNOWN -> at[v] = GONE
#else
    :: place[v] == UNKNOWN -> place[v] = LEFT; at[v] = GONE
#endif
    :: else -> at[v] = ON
    fi
}

proctype Visitor(byte v) {
end:
    do
    :: atomic { at[v] == HOME -> at[v] = ASKS }
    :: atomic { at[v] != HOME && copies[v] < COPIES -> copies[v]++; come(v) }
    :: atomic { at[v] == ASKS && copies[v] > 0 && place[v] != WAITING -> look(v) }
    :: atomic { at[v] == ASKS && leaves < 1 -> leaves++; leave(v) }
    :: atomic { at[v] == ASKS && deaths < 1 -> deaths++; at[v] = DEAD }
#ifndef NO_DEADLINE
    :: atomic { at[v] == DEAD && place[v] == WAITING -> destroy() }
#endif
    od
}

proctype Others() {
end:
    do
    :: atomic { broken && resets < 1 -> resets++; broken = false }
    od
}

proctype Watch() {
    byte w;
    bool live, dead;
end:
    atomic { timeout ->
        for (w : 0 .. VISITORS - 1) {
            if
            :: place[w] == WAITING && at[w] == DEAD -> dead = true
            :: place[w] == WAITING && at[w] == ASKS -> live = true
            :: else
            fi
        }
        assert(!(live && dead)) }
}

init {
    byte v;
    atomic {
        for (v : 0 .. VISITORS - 1) { run Visitor(v) }
        run Others();
        run Watch()
    }
}
