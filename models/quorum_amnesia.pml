/*
 * A lock on three servers, some of which lose data: restarted empty, flushed, or restarted without the end of their log.
 *
 * SPEAKS OF  _lua/shared/_marker.lua _lua/lock/_quarantine.lua _lua/quorum/declare_new.lua _lua/quorum/vote.lua _lua/lock/renew.lua _core/lock/renewal.py
 *
 * Each server has a marker, with the id of the server's present run. The script that grants checks it first. If the marker is
 * missing or of another run, the server may have forgotten a vote: it writes a new marker, and grants nothing until the
 * longest lease has passed. Renewals are allowed, but only if the key still exists: a renewal never creates one.
 *
 * Durations count down in ticks, all at the same speed (lock_lease.pml has the clocks). A request is carried out at any later
 * time, once, or never. A client asks once. It believes, from the time at which it asked, as soon as a majority has granted.
 * Client 0 also renews, as often as it likes.
 *
 * Holds: two clients never believe at the same time that they hold the lock, whichever FORGETS servers lose data, and at
 * whatever time.
 */
#define SERVERS  3
#define MAJORITY 2
#define CLIENTS  2
#define LEASE    2              /* the longest lease that is allowed */
#define FORGETS  2
#ifdef LONGER_LEASE             /* a client is configured for a longer one, and not refused */
#define lease(c) (c == 0 -> LEASE + 1 : LEASE)
#else
#define lease(c) LEASE
#endif
#if defined(NO_GUARD)
#define QUARANTINE 0
#elif defined(SHORT_QUARANTINE)
#define QUARANTINE (LEASE - 1)
#else
#define QUARANTINE LEASE
#endif

/* A server. Client c has token c + 1. */
byte key[SERVERS];
byte ttl[SERVERS];              /* ticks until the key expires */
byte shut[SERVERS];             /* ticks for which it grants nothing after a new marker was written */
byte forgets = FORGETS;

/* A client: it asks all servers at once. Bit s is for server s. */
byte asks[CLIENTS];             /* requests to grant: under way */
byte age[CLIENTS];              /* ticks since they were sent */
byte votes[CLIENTS];
byte renews[CLIENTS];           /* requests to renew: under way */
byte renew_age[CLIENTS];
byte renewed[CLIENTS];          /* servers that have renewed */
byte left[CLIENTS];             /* ticks for which it believes */
mtype = { IDLE, ASKING, HOLDING, OVER };
mtype at[CLIENTS] = IDLE;

#define bit(s) (1 << (s))
#define has_majority(set) (set == 3 || set == 5 || set == 6 || set == 7)

inline check() { assert(left[0] == 0 || left[1] == 0) }

inline write_key(c, s) { key[s] = c + 1; ttl[s] = lease(c) }

inline grant(c, s) {
    if
    :: key[s] == 0 && shut[s] == 0 ->
        write_key(c, s);
        if :: at[c] == ASKING -> votes[c] = votes[c] | bit(s) :: else fi
    :: else
    fi
}

inline renew(c, s) {
    if
#ifdef RENEW_CREATES
    :: key[s] == 0 || key[s] == c + 1 ->
#else
    :: key[s] == c + 1 ->
#endif
        write_key(c, s);
        if :: at[c] == HOLDING -> renewed[c] = renewed[c] | bit(s) :: else fi
    :: else
    fi
}

active proctype Servers() {
    byte c, s;
end:
    do
    :: atomic {
        select(c : 0 .. CLIENTS - 1);
        select(s : 0 .. SERVERS - 1);
        if
        :: asks[c] & bit(s) -> asks[c] = asks[c] & ~bit(s); grant(c, s)
        :: renews[c] & bit(s) -> renews[c] = renews[c] & ~bit(s); renew(c, s)
        :: at[c] == OVER && key[s] == c + 1 -> key[s] = 0; ttl[s] = 0       /* released */
        :: else
        fi;
        c = 0; s = 0
       }
    :: atomic {
        forgets > 0 -> forgets--;
        select(s : 0 .. SERVERS - 1);
        key[s] = 0; ttl[s] = 0;
        /* The worst case: a client asks at once, so that the missing marker is noticed at once. */
        if
        :: shut[s] = QUARANTINE                 /* restarted empty: no marker */
#ifndef AT_CONNECTION
        :: shut[s] = QUARANTINE                 /* flushed: the marker is gone with the rest */
#else
        :: true                                 /* ... but no connection breaks, so no client looks */
#endif
#ifndef NO_RUN_ID
        :: shut[s] = QUARANTINE                 /* the end of its log is lost: the marker is of another run */
#else
        :: true                                 /* ... but it exists */
#endif
        fi;
        s = 0
       }
    od
}

proctype Client(byte me) {
end:
    do
    :: atomic { at[me] == IDLE -> at[me] = ASKING; asks[me] = 7; age[me] = 0 }
    :: atomic { at[me] == ASKING && has_majority(votes[me]) && age[me] < lease(me) ->
        at[me] = HOLDING; left[me] = lease(me) - age[me]; check(); votes[me] = 0; age[me] = 0 }
    :: atomic { me == 0 && at[me] == HOLDING && left[me] > 0 && renews[me] == 0 -> renews[me] = 7; renewed[me] = 0; renew_age[me] = 0 }
    :: atomic { at[me] == HOLDING && left[me] > 0 && has_majority(renewed[me]) && renew_age[me] < lease(me) ->
        if :: lease(me) - renew_age[me] > left[me] -> left[me] = lease(me) - renew_age[me]; check() :: else fi;
        renewed[me] = 0 }
    :: atomic { at[me] == ASKING || at[me] == HOLDING ->
        at[me] = OVER; left[me] = 0; renews[me] = 0; asks[me] = 0; votes[me] = 0; renewed[me] = 0; age[me] = 0; renew_age[me] = 0 }
    od
}

inline count_down(x) { if :: x > 0 -> x-- :: else fi }
inline pass_time(c) {
    count_down(left[c]);
    if :: at[c] == ASKING && age[c] < lease(c) -> age[c]++ :: else fi;
    if :: at[c] == HOLDING && (renews[c] != 0 || renewed[c] != 0) && renew_age[c] < lease(c) -> renew_age[c]++ :: else fi
}
inline pass_time_at(s) {
    count_down(shut[s]);
    count_down(ttl[s]);
    if :: ttl[s] == 0 -> key[s] = 0 :: else fi
}

active proctype Time() {
end:
    do
    :: atomic { pass_time_at(0); pass_time_at(1); pass_time_at(2); pass_time(0); pass_time(1) }
    od
}

init { atomic { run Client(0); run Client(1) } }
