/*
 * One fence for a lock on three servers, each with its own counter.
 *
 * SPEAKS OF  _lua/quorum/vote.lua _lua/quorum/confirm.lua _lua/quorum/release_vote.lua _core/quorum/acquire.py
 *
 * A client asks all servers for the lock. Each server that grants raises its counter and replies with it. From the replies of
 * a majority the client takes its fence f, the highest of them. Unless they are equal, it asks the servers to confirm f, and
 * uses f when a majority has confirmed. A server confirms only as long as it holds this client's token and its counter is not
 * above f.
 *
 * There is no time here: a key may vanish at any moment (its lease ended, however early), and a request to grant or to
 * confirm may be carried out at any later time. With COPIES, the first client's requests to grant may be carried out twice.
 * With FORGETS, one server loses its data once, counter included.
 *
 * Holds: the fence of a client that has succeeded is higher than all that were in use before it asked, and no other client
 * has it.
 */
#define SERVERS  3
#define MAJORITY 2
#ifndef CLIENTS
#define CLIENTS  2
#endif

/* A server. Client c has token c + 1. */
byte key[SERVERS];
byte counter[SERVERS];

/* The wire: bit s is for server s. */
byte asks[CLIENTS];          /* to grant: under way */
byte served[CLIENTS];        /* to grant: carried out at least once */
byte confirms[CLIENTS];      /* to confirm: under way */
typedef PerServer { byte on[SERVERS] };
PerServer granted[CLIENTS];  /* the counter that a server answered, 0: no answer yet */

/* A client. */
byte votes[CLIENTS];         /* answers that said yes */
byte highest[CLIENTS];       /* the replies that count as votes */
bool unequal[CLIENTS];
byte fence[CLIENTS];
byte confirmed[CLIENTS];     /* how many servers have confirmed */
mtype = { IDLE, ASKING, CONFIRMING, USING, OVER };
mtype at[CLIENTS] = IDLE;
byte below[CLIENTS];         /* for the check alone: highest fence in use before this client asked */
byte used;                   /* for the check alone: highest fence in use so far */
byte all_used;               /* for the check alone: a bit for each fence in use so far */
#ifdef HINT
byte clock;                  /* the clients' clocks, taken as one: later attempts have higher hints */
byte hint[CLIENTS];
#endif

#define bit(s) (1 << (s))
#ifdef TO_VOTERS
#define voters ((granted[me].on[0] != 0) + 2 * (granted[me].on[1] != 0) + 4 * (granted[me].on[2] != 0))
#else
#define voters 7             /* all servers: also one that grants later may confirm, and its counter catches up */
#endif

/* One run of the script that grants, for client c on server s. */
inline grant(c, s) {
    if
    :: key[s] == 0 ->
        key[s] = c + 1;
        counter[s]++;
#ifdef HINT
        if :: counter[s] < hint[c] -> counter[s] = hint[c] :: else fi;
#endif
        answer = counter[s]
    :: key[s] == c + 1 -> answer = counter[s]        /* a copy: the same again */
    :: key[s] != 0 && key[s] != c + 1 -> answer = 0
    fi;
#ifdef COUNT_COPIES
    if :: at[c] == ASKING && answer != 0 -> vote(c) :: else fi;
#else
    if
    :: at[c] == ASKING && answer != 0 && granted[c].on[s] == 0 -> granted[c].on[s] = answer; vote(c)
    :: else
    fi;
#endif
    answer = 0
}

inline vote(c) {
    if :: votes[c] > 0 && answer != highest[c] -> unequal[c] = true :: else fi;
    if :: answer > highest[c] -> highest[c] = answer :: else fi;
    votes[c]++
}

/* One run of the script that confirms the fence of client c on server s. */
inline confirm(c, s) {
    if
#if defined(NAIVE)                                    /* write it back, whichever client has the key now */
    :: true ->
        if :: counter[s] < fence[c] -> counter[s] = fence[c] :: else fi;
        confirmed[c]++
#elif defined(NO_COMPARE)                             /* only if the token is there, but without comparing the counter */
    :: key[s] == c + 1 ->
        if :: counter[s] < fence[c] -> counter[s] = fence[c] :: else fi;
        confirmed[c]++
#else
    :: key[s] == c + 1 && counter[s] <= fence[c] -> counter[s] = fence[c]; confirmed[c]++
#endif
    :: else
    fi
}

active proctype Servers() {
    byte c, s, answer;
#ifdef FORGETS
    bool forgot;
#endif
end:
    do
    :: atomic {
        select(c : 0 .. CLIENTS - 1);
        select(s : 0 .. SERVERS - 1);
        if
        :: asks[c] & bit(s) -> asks[c] = asks[c] & ~bit(s); served[c] = served[c] | bit(s); grant(c, s)
#ifdef COPIES
        :: c == 0 && served[c] & bit(s) -> served[c] = served[c] & ~bit(s); grant(c, s)
#endif
        :: confirms[c] & bit(s) -> confirms[c] = confirms[c] & ~bit(s); confirm(c, s)
#ifdef VANISH
        :: key[s] == c + 1 -> key[s] = 0
#endif
        :: at[c] == OVER && key[s] == c + 1 -> key[s] = 0          /* released */
        :: else
        fi;
        c = 0; s = 0
       }
#ifdef FORGETS
    :: atomic { !forgot -> forgot = true; select(s : 0 .. SERVERS - 1); key[s] = 0; counter[s] = 0; s = 0 }
#endif
    od
}

inline use(f) {
    assert(f > below[me]);                            /* higher than all that were in use before it asked */
    assert(!(all_used & bit(f)));                     /* and no other client has it */
    all_used = all_used | bit(f);
    if :: f > used -> used = f :: else fi;
    at[me] = USING;
    fence[me] = 0; confirmed[me] = 0; confirms[me] = 0
}

/* No more votes are counted. */
inline count_no_more() {
    votes[me] = 0; highest[me] = 0; unequal[me] = false;
    granted[me].on[0] = 0; granted[me].on[1] = 0; granted[me].on[2] = 0
}

proctype Client(byte me) {
end:
    do
    :: atomic { at[me] == IDLE -> at[me] = ASKING; asks[me] = 7; below[me] = used;
#ifdef HINT
        clock++; hint[me] = clock
#endif
       }
    :: atomic { at[me] == ASKING && votes[me] >= MAJORITY && !unequal[me] -> use(highest[me]); count_no_more() }
    :: atomic { at[me] == ASKING && votes[me] >= MAJORITY && unequal[me] ->
        at[me] = CONFIRMING; fence[me] = highest[me]; confirms[me] = voters; count_no_more() }
#ifdef ONE_CONFIRM
    :: atomic { at[me] == CONFIRMING && confirmed[me] >= 1 -> use(fence[me]) }
#else
    :: atomic { at[me] == CONFIRMING && confirmed[me] >= MAJORITY -> use(fence[me]) }
#endif
    :: atomic { at[me] != OVER && at[me] != IDLE -> 
        at[me] = OVER; fence[me] = 0; confirmed[me] = 0; confirms[me] = 0; count_no_more() }
    od
}

init {
    atomic {
        run Client(0);
        run Client(1);
#if CLIENTS > 2
        run Client(2)
#endif
    }
}
