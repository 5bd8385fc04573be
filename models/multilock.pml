/*
 * Several locks at once: all or none, acquired in one order, and in one run if all are free.
 *
 * SPEAKS OF  _lua/lock/multi_acquire.lua _lua/lock/multi_release.lua _core/lock/multilock.py
 *
 * Three clients want the locks 0 and 1: the first names them in this order, the second in the other order, the third wants
 * only lock 1. Each tries once to acquire all in one run (gather). Otherwise it acquires one after the other, in the order of
 * their keys, and waits in the queue of a busy one. It may give up at any point, and releases all in one run (scatter). One
 * of the clients may stop forever. A script and its reply are one step here: their losses are the subject of
 * lock_handover.pml. Leases end by expiry.
 *
 * Holds: a client that has ended has nothing; a client that is done has all its locks or none; no waits form a cycle; a
 * waiter in a queue is not overtaken by a client that asks for all at once.
 */
#define USERS  3
#define LOCKS  2
#define LEASE  3

mtype = { ASKING, TAKING, WAITING, HOLDING, ENDED, DEAD };

byte holder[LOCKS];          /* user + 1; 0: nobody */
byte ttl[LOCKS];
byte waits[LOCKS];           /* user + 1 that waits in the queue: there is at most one; 0: nobody */
mtype state[USERS] = ASKING;
byte next[USERS];            /* number of locks that it has tried, in its order */
bool crashed;

#define wants(p, l)  (p != 2 || l == 1)
#ifdef GIVEN_ORDER
#define nth(p, n)    (p == 2 -> 1 : (p == 1 -> 1 - n : n))
#else
#define nth(p, n)    (p == 2 -> 1 : n)
#endif
#define many(p)      (p == 2 -> 1 : 2)
#define has(p, l)    (holder[l] == p + 1)

inline give(l) {
    holder[l] = 0; ttl[l] = 0;
    if
    :: waits[l] != 0 && state[waits[l] - 1] == WAITING ->
        holder[l] = waits[l]; ttl[l] = LEASE; state[waits[l] - 1] = TAKING; next[waits[l] - 1]++; waits[l] = 0
    :: else
    fi
}

inline check() {
    assert(!(state[0] == WAITING && state[1] == WAITING && has(0, nth(1, next[1])) && has(1, nth(0, next[0]))));   /* cycle */
    for (i : 0 .. USERS - 1) {
        assert(state[i] != ENDED || (!has(i, 0) && !has(i, 1)));
        assert(state[i] != HOLDING || i == 2 || (has(i, 0) && has(i, 1)) || crashed)
    }
    i = 0
}

active proctype Users() {
    byte p, l, i;
    bool all;
end:
    do
    :: atomic {
        select(p : 0 .. USERS - 1);
        if
        /* gather: all of them, or none, in one step. */
        :: state[p] == ASKING ->
            all = true;
            for (l : 0 .. LOCKS - 1) {
                if
                :: wants(p, l) && (holder[l] != 0 || waits[l] != 0) -> all = false
                :: else
                fi
            }
            for (l : 0 .. LOCKS - 1) {
                if
#ifdef IN_PART
                :: wants(p, l) && holder[l] == 0 && waits[l] == 0 -> holder[l] = p + 1; ttl[l] = LEASE
#else
                :: all && wants(p, l) -> assert(waits[l] == 0); holder[l] = p + 1; ttl[l] = LEASE
#endif
                :: else
                fi
            }
            l = 0;
            if
            :: all -> state[p] = HOLDING
#ifdef IN_PART
            :: !all -> state[p] = ENDED                          /* it was told that it has nothing */
#endif
            :: !all -> state[p] = TAKING
            fi;
            all = false
        /* One after the other. */
        :: state[p] == TAKING && next[p] == many(p) -> state[p] = HOLDING
        :: state[p] == TAKING && next[p] < many(p) ->
            l = nth(p, next[p]);
            if
            :: holder[l] == 0 && waits[l] == 0 -> holder[l] = p + 1; ttl[l] = LEASE; next[p]++
            :: holder[l] != 0 && waits[l] == 0 -> waits[l] = p + 1; state[p] = WAITING
            :: else
            fi;
            l = 0
        /* Give up, or release: all of them, in one step. */
        :: state[p] == WAITING || state[p] == TAKING || state[p] == HOLDING ->
            for (l : 0 .. LOCKS - 1) {
                if :: waits[l] == p + 1 -> waits[l] = 0 :: else fi
            }
            state[p] = ENDED;
            for (l : 0 .. LOCKS - 1) {
#ifdef KEEPS_FIRST
                if :: has(p, l) && (l != nth(p, 0) || next[p] == 0) -> give(l) :: else fi
#else
                if :: has(p, l) -> give(l) :: else fi
#endif
            }
            l = 0
        :: state[p] != ENDED && !crashed ->
            crashed = true; state[p] = DEAD;
            for (l : 0 .. LOCKS - 1) {
                if :: waits[l] == p + 1 -> waits[l] = 0 :: else fi
            }
            l = 0
        :: else
        fi;
        p = 0;
        check()
       }
    od
}

/* The leases of a dead client end; those of live ones are renewed. */
active proctype Time() {
    byte k;
end:
    do
    :: atomic { crashed ->
        for (k : 0 .. LOCKS - 1) {
            if
            :: holder[k] != 0 && state[holder[k] - 1] == DEAD && ttl[k] > 0 -> ttl[k]--
            :: holder[k] != 0 && state[holder[k] - 1] == DEAD && ttl[k] == 0 -> give(k)
            :: else
            fi
        }
        k = 0 }
    od
}
