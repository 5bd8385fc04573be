/*
 * Elections: the holder of a lock proclaims itself as the leader, and an observer is notified.
 *
 * SPEAKS OF  _lua/election/join.lua _lua/election/proclaim.lua _lua/election/observe.lua _lua/election/transfer.lua _lua/election/notify_observers.lua _core/election.py
 *
 * Two candidates acquire the lock, proclaim themselves, resign, hand over to the other one, or lose the lock when the lease
 * ends. One of them may be stopped for a while, and resume. A proclamation may arrive late, when another candidate has the
 * lock. An observer asks for the leader, is listed for notifications in the same step, and asks again when it is notified.
 * The lock itself (when it is granted, and to which candidate) is the subject of lock_handover.pml.
 *
 * Holds: an observer sees rising terms, and a leader only while that leader has the lock; two candidates never believe at the
 * same time that they lead; the observer misses a change for at most IDLE ticks.
 */
#define LEASE  3
#define IDLE   5
#define TERMS  4

mtype = { RESTING, CANDIDATE, LEADS };

byte holder;                 /* candidate + 1 that has the lock; 0: nobody */
byte ttl;
byte term;                   /* the last fence */
byte said;                   /* the term of the last proclamation */
bool listed;                 /* the observer is listed for notifications */
bool told;                   /* a message to it is on its way */

mtype state[2] = RESTING;
byte mine[2];                /* the term that it was granted */
byte left[2];                /* ticks for which it believes */
bool stopped[2];
byte late[2];                /* a proclamation that is under way: its term */

byte seen;                   /* the last term that the observer has seen; 0: no leader */
byte top;                    /* the highest term that it has seen */
byte asleep;                 /* ticks since the result for the observer has changed */
bool looked;                 /* it has asked, and is not listed yet */

#ifdef NO_COMPARE
#define led     (holder != 0 -> said : 0)                       /* the last proclamation, whichever candidate has the lock */
#else
#define led     (holder != 0 && said == term -> term : 0)
#endif
#define alive(c) (!stopped[c])
#define leads(c) (alive(c) && state[c] == LEADS && holder == c + 1 && mine[c] == term)

inline tell() {
#ifdef NO_TELL
    skip
#else
    if :: listed -> told = true; listed = false :: else fi
#endif
}

inline grant(who) { term++; holder = who + 1; ttl = LEASE; mine[who] = term; left[who] = LEASE; state[who] = CANDIDATE }

inline check() {
    assert(!(state[0] == LEADS && left[0] > 0 && state[1] == LEADS && left[1] > 0))    /* two leaders */
}

active proctype Candidates() {
    byte c;
end:
    do
    :: atomic {
        select(c : 0 .. 1);
        if
        :: alive(c) && state[c] == RESTING && holder == 0 && term < TERMS -> grant(c)
        /* It proclaims itself; it may be stopped before the request is sent, or while it is under way. */
        :: alive(c) && state[c] == CANDIDATE && left[c] > 0 && late[c] == 0 -> late[c] = mine[c]
        :: late[c] != 0 ->                                       /* proclaim */
            if
#ifdef NO_COMPARE
            :: said = late[c]; tell()
#else
            :: holder == c + 1 && term == late[c] -> said = late[c]; tell()
            :: !(holder == c + 1 && term == late[c])
#endif
            fi;
            if
            :: state[c] == CANDIDATE && mine[c] == late[c] && alive(c) && left[c] > 0 -> state[c] = LEADS
            :: else
            fi;
            late[c] = 0
        :: alive(c) && state[c] == LEADS && left[c] > 0 && holder == c + 1 -> ttl = LEASE; left[c] = LEASE
        /* release, and notify the observers after that. */
        :: alive(c) && state[c] != RESTING && late[c] == 0 ->
            if :: holder == c + 1 && mine[c] == term -> holder = 0; ttl = 0 :: else fi;
            state[c] = RESTING; left[c] = 0; tell()
        /* transfer, to the other one if it waits in the queue. */
        :: leads(c) && alive(1 - c) && state[1 - c] == RESTING && term < TERMS && late[c] == 0 ->
#ifndef BELIEVES_ON
            state[c] = RESTING; left[c] = 0;
#endif
            grant(1 - c); said = term; state[1 - c] = LEADS; tell()
        :: alive(c) && state[c] != RESTING -> stopped[c] = true
        :: stopped[c] -> stopped[c] = false
        :: else
        fi;
        c = 0;
        check()
       }
    od
}

inline look(what) {
    if :: what != 0 -> assert(what >= top); top = what :: else fi;
    seen = what; asleep = 0
}

active proctype Observer() {
    byte x;
end:
    do
#ifdef LISTED_AFTER
    :: atomic { !listed && !looked -> told = false; x = led; look(x); x = 0; looked = true }
    :: atomic { looked -> listed = true; looked = false }
#else
    :: atomic { !listed -> told = false; x = led; look(x); x = 0; listed = true }              /* observe: in one step */
#endif
    od
}

/* Time passes when the observer has read its messages. It asks by itself when the lease that it saw ends. */
active proctype Time() {
end:
    do
    :: atomic { listed && !told && !looked ->
        if :: ttl > 0 -> ttl-- :: else fi;
        if :: ttl == 0 && holder != 0 -> holder = 0; listed = false :: else fi;
        if :: left[0] > 0 -> left[0]-- :: else fi;
        if :: left[1] > 0 -> left[1]-- :: else fi;
        if :: state[0] != RESTING && left[0] == 0 && alive(0) -> state[0] = RESTING :: else fi;
        if :: state[1] != RESTING && left[1] == 0 && alive(1) -> state[1] = RESTING :: else fi;
        if :: seen != led -> asleep++ :: else -> asleep = 0 fi;
        assert(asleep <= IDLE);
        check() }
    od
}
