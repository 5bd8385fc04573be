/*
 * A lease on one server: acquired, renewed, believed by its holder's own clock, released; and the fence that is issued with
 * it.
 *
 * SPEAKS OF  _lua/lock/acquire.lua _lua/lock/renew.lua _lua/lock/migrating.lua _lua/lock/release.lua _lua/fencing/check.lua _core/lock/replies.py _core/lock/renewal.py
 *
 * Time is counted in ticks, up to LAST. The server has its own clock. The clock of client 0 may miss one tick of TTL (it runs
 * slow), but no more. A request that was sent is carried out at any later time, once, more than once, or never. Its reply may
 * be read late, or not at all: the client then goes on without it. The server may lose its data once.
 *
 * Holds: two clients never believe at the same time that they hold the lock, unless the server has lost its data; every fence
 * is higher than all before, even after a loss of data; a write that was sent in time and arrives late is refused by the
 * fence check; a lease that was lost does not come back under its old fence.
 */
#define CLIENTS  2
#define TOKENS   3     /* client 0 tries twice, client 1 once, each time under a new token */
#define REQUESTS 3     /* requests of an attempt at most: the first, and two more; see may_send */
#define SHORT    2     /* a lease that is requested by hand, shorter than the one before */
#ifdef FENCES
#define TTL      2     /* the lease */
#define LAST     3     /* the tick at which the model ends */
#else
#define TTL      3
#define LAST     5
#endif
#define PER_TICK 4     /* the server's clock is finer than a tick; there are fewer grants than that in one */
#ifdef NO_MARGIN
#define MARGIN   0
#else
#define MARGIN   1     /* taken off each lease: the ticks that a slow clock may miss of it */
#endif

mtype = { NONE, ACQUIRE, RENEW, RENEW_SHORT, RELEASE };

/* The server. Tokens are 1..TOKENS; 0 is nobody. */
byte now;              /* its clock */
byte holder;           /* the lock key: its token */
byte expires;          /* the lock key: its expiry, by the server's clock */
byte fence;            /* the last fence issued */
byte number;           /* of the last renewal of this holder */
bool forgot;           /* it has lost its data once */
bool blank;            /* it did so in this tick: a restart takes longer than the clock's grain */
byte issued;           /* for the check alone: the highest fence ever issued */

/* The protected resource, and its fence check. */
byte written;          /* highest fence that has written */
byte pen;              /* a write of client 0 under way: its fence; client 1 writes at once */

/* The network: the requests of each token, in order. Each may be carried out at any time. */
typedef Sent { mtype kind[REQUESTS] };
Sent wire[TOKENS];

/* A client. */
byte clock[CLIENTS];   /* its own clock, never stopped */
byte missed;           /* ticks since the clock of client 0 missed one; that of client 1 is right */
byte mine[CLIENTS];    /* token of its attempt; 0: none */
byte asked[CLIENTS];   /* requests that it has sent for this token */
byte sent[CLIENTS];    /* when it sent the last of them, by its own clock */
bool awaits[CLIENTS];  /* the last one has no reply yet */
byte answer[CLIENTS];  /* the reply. 0: none; GONE; or a fence: yes */
bool holds[CLIENTS];
byte until[CLIENTS];   /* it believes before that, by its own clock */
byte mark[CLIENTS];    /* the fence that it was granted */
#define GONE 255

#define believes(c) (holds[c] && clock[c] < until[c])
/* Late copies could acquire and release the lock forever. */
#ifdef FENCES
#define may_grant (fence + 1 < (now + 1) * PER_TICK)
#else
#define may_grant (fence < 4)
#endif
/* Token 1 may send three requests, token 2 two, token 3 one. */
#define may_send(c) (asked[c] + mine[c] < 4)
#define length(kind) (kind == RENEW_SHORT -> SHORT : TTL)

inline send(request) {
    wire[mine[me] - 1].kind[asked[me]] = request;
    asked[me]++;
    sent[me] = clock[me];
    awaits[me] = true;
    answer[me] = 0
}

/* Called whenever a client begins to believe, or believes for longer. */
inline check() {
    assert(forgot || !(believes(0) && believes(1)));
    assert(forgot || !believes(me) || mark[me] == issued)   /* and no other client had it in between */
}

/* take in _grant.lua: write the lock, issue the fence */
inline take(token, ttl) {
#ifdef SAME_FENCE
    fence = (fence == 0 -> 1 : fence);
#elif defined(CLOCK_ONLY)
    fence = now * PER_TICK;
#elif defined(FENCES) && !defined(COUNTER_ONLY)
    fence = (fence + 1 > now * PER_TICK -> fence + 1 : now * PER_TICK);
#else
    fence = fence + 1;     /* while the server keeps its data, the counter alone would do */
#endif
    assert(fence > issued);
    issued = fence;
    holder = token;
    expires = now + ttl;
    number = 0
}

/* One run of a script. `r` is the number of the request of this token: that is the number of a renewal. */
inline serve(token, r) {
    d_step {
        who = (token == 2 -> 1 : 0);
        kind = wire[token - 1].kind[r];
        result = GONE;
        if :: now >= expires -> holder = 0; expires = 0; number = 0 :: else fi;
        if
        :: kind == ACQUIRE && holder == 0 -> take(token, TTL); result = fence
        :: kind == ACQUIRE && holder == token ->         /* an earlier copy: never shorten the lease */
            if :: expires < now + TTL -> expires = now + TTL :: else fi;
            result = fence
        :: kind == ACQUIRE && holder != 0 && holder != token -> skip
        :: (kind == RENEW || kind == RENEW_SHORT) && holder == token ->
#ifndef NO_NUMBER
            if :: r < number -> skip :: else             /* overtaken by a later one */
#else
            if :: true
#endif
#ifdef RENEW_ADDS
                -> expires = expires + length(kind);
#else
                -> expires = now + length(kind);
#endif
                number = r
            fi;
            result = fence
        :: (kind == RENEW || kind == RENEW_SHORT) && holder != token ->
#ifdef RENEW_CREATES
            if :: holder == 0 -> holder = token; expires = now + length(kind); result = mark[who] :: else fi;
#endif
            assert(holder != token)                      /* a lost lock stays lost */
#ifdef NO_COMPARE
        :: kind == RELEASE -> holder = 0
#else
        :: kind == RELEASE -> if :: holder == token -> holder = 0 :: else fi
#endif
        :: else -> skip
        fi;
        assert(expires <= now + TTL);                    /* no lock outlives its holder by more than a lease */
        if
        :: mine[who] == token && awaits[who] && asked[who] == r + 1 -> answer[who] = result
        :: else
        fi;
        who = 0; kind = NONE; result = 0
    }
}

active proctype Server() {
    byte who, token, r, result;
    mtype kind;
end:
    do
    :: atomic {
        !blank ->
        select(token : 1 .. TOKENS);
        select(r : 0 .. REQUESTS - 1);
        if
        :: wire[token - 1].kind[r] != NONE && may_grant -> serve(token, r)
        :: else
        fi;
        token = 0; r = 0
       }
#ifdef FENCES
    :: atomic { !forgot -> forgot = true; blank = true; holder = 0; expires = 0; fence = 0; number = 0 }
#endif
    od
}

/* The resource accepts a write, at any time after it was sent. */
inline write(number) {
#ifndef NO_GUARD
    if
    :: number < written            /* a holder with a higher fence has written before: refused */
    :: else ->
#endif
        assert(number >= written);
        written = number
#ifndef NO_GUARD
    fi
#endif
}

active proctype Resource() {
end:
    do
    :: atomic { pen != 0 -> write(pen); pen = 0 }
    od
}

active proctype Time() {
#ifdef JUMP
    bool jumped;
#endif
end:
    do
    :: atomic { now < LAST -> now++; clock[0]++; clock[1]++; blank = false;
        if :: missed < TTL -> missed++ :: else fi }
#ifndef FENCES
    :: atomic { now < LAST && missed == TTL -> now++; clock[1]++; blank = false; missed = 1 }
#endif
#ifdef JUMP
    :: atomic { !jumped && now + 2 < LAST -> now = now + 2; jumped = true }   /* the server's clock alone */
#endif
    od
}

/* A client handles a reply: it extends its belief, from when it asked. */
inline believe(ttl) {
#ifdef FROM_ANSWER
    until[me] = clock[me] + ttl - MARGIN;
#else
    until[me] = sent[me] + ttl - MARGIN;
#endif
    check()
}

inline forget_answer() { awaits[me] = false; answer[me] = 0; sent[me] = 0; asking = NONE }

inline give_back() {
    holds[me] = false; until[me] = 0; mark[me] = 0;
    if
    :: may_send(me) -> send(RELEASE)
    :: else                                         /* it cannot be reached: the lease ends by itself */
    fi;
    forget_answer()
}

proctype Client(byte me; byte next) {
    mtype asking;
end:
    do
    :: atomic { next <= TOKENS && mine[me] == 0 ->
        mine[me] = next; next = next + 2; asking = ACQUIRE; send(ACQUIRE) }
    :: atomic { asking == ACQUIRE && !holds[me] && answer[me] != 0 && answer[me] != GONE ->
        holds[me] = true; mark[me] = answer[me]; believe(TTL); forget_answer() }
    :: atomic { asking == ACQUIRE && !holds[me] && answer[me] == GONE -> forget_answer(); mine[me] = 0; asked[me] = 0 }
    /* No reply: ask once more under the same token, or not. */
    :: atomic { asking == ACQUIRE && !holds[me] && may_send(me) -> send(ACQUIRE) }
    :: atomic { asking == ACQUIRE && !holds[me] -> give_back(); mine[me] = 0; asked[me] = 0 }

#ifdef FENCES
    :: atomic { me == 0 && believes(me) && pen == 0 && written < mark[me] -> pen = mark[me] }
    :: atomic { me == 1 && believes(me) && written < mark[me] -> write(mark[me]) }
#else
    :: atomic { believes(me) && may_send(me) -> asking = RENEW; send(RENEW) }
    :: atomic { me == 0 && believes(me) && may_send(me) -> asking = RENEW_SHORT; send(RENEW_SHORT);
#ifndef NO_SHORTEN
        /* The reply may be lost: a shorter lease counts as soon as it is requested. */
        if :: until[me] > clock[me] + SHORT - MARGIN -> until[me] = clock[me] + SHORT - MARGIN :: else fi
#endif
       }
#endif
    /* A reply counts if it is read in time. Read later, it would tell who has the lock, not that nobody else had it. */
#ifdef LATE_ANSWER
    :: atomic { holds[me] && answer[me] != 0 && answer[me] != GONE -> believe(length(asking)); forget_answer() }
#else
    :: atomic { believes(me) && answer[me] != 0 && answer[me] != GONE -> believe(length(asking)); forget_answer() }
#endif
    :: atomic { holds[me] && answer[me] == GONE -> give_back(); mine[me] = 0; asked[me] = 0 }
    :: atomic { holds[me] -> give_back(); mine[me] = 0; asked[me] = 0 }
    od
}

init { atomic { missed = TTL; run Client(0, 1); run Client(1, 2) } }
