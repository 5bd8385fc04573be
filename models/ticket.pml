/*
 * A held lock that is handed over: its holder makes a ticket of it, and the client that redeems the ticket has the lock.
 *
 * SPEAKS OF  _lua/lock/exchange_token.lua _core/lock/ticket.py _api/ticket.py
 *
 * The giver holds the lock, and a copy of the request that acquired it may still be under way. It asks for a ticket, and
 * gives up if there is no reply. The ticket is delivered to two clients, which both redeem it, ask again under the same
 * token, or give up. A third client acquires the lock whenever it is free. Time is counted in ticks, up to LAST. A request
 * that was sent is carried out at any later time, once, more than once, or never. Any client may stop for good at any point:
 * no client has to make a step.
 *
 * Holds: two clients never believe at the same time that they hold the lock; every fence is higher than all before; a ticket
 * is redeemed once; an attempt that was given up, or a lock that was released, gets nothing any more.
 */
#define TTL    2     /* a lease, and the lifetime of a ticket */
#define LAST   5     /* the tick at which the model ends */
#define GRANTS 7     /* late copies could be carried out forever */

/* Tokens, and their owners. */
#define NOBODY 0
#define G 1          /* the giver's */
#define T 2          /* the ticket's */
#define A 3          /* tokens of the two clients that redeem it */
#define B 4
#define W 5          /* token of the client that acquires a free lock */

mtype = { NONE, YES, NO };                                                     /* answers */

/* The server. */
byte now;
byte holder = G;
byte expires = TTL;
byte fence = 1;
bool dead[6];

/* The requests that were sent, by the token that they concern: each may be carried out at any time. */
bool acquires = true;        /* the request that acquired the lock */
bool rotates[6];             /* to make this token the holder: T by the giver, A and B by the redeeming clients */
bool buries[6];
bool releases[6];

/* The clients, by token. The giver waits for the reply about T. */
mtype answer[6];
byte answer_fence[6];
bool awaits[6];
byte sent[6];                /* time of its last request */
bool tried[6];
byte until[6];               /* it believes before that */
byte top = 1;                /* for the check alone: the highest fence of any holder */
byte redeemed;               /* for the check alone */
bool revoked[6];              /* for the check alone: the server has replied so */
bool delivered;

#define believes(t) (now < until[t])
#define may_grant (fence < GRANTS)

inline check() {
    assert(believes(G) + believes(A) + believes(B) + believes(W) <= 1)
}

inline take(t) {
#ifndef SAME_FENCE
    fence++;
#endif
    holder = t; expires = now + TTL
}

inline hold(t, from, f) {
    until[t] = from + TTL;
    if :: until[t] > now -> assert(f > top); top = f :: else fi;
    check()
}

#ifdef NO_COMPARE
#define has_it(t) (holder != 0)
#elif defined(TAKES_FREE)
#define has_it(t) (holder == t || holder == 0)
#else
#define has_it(t) (holder == t)
#endif
#ifdef FOR_THE_DEAD
#define refused(t) false
#else
#define refused(t) dead[t]
#endif

/* exchange_token.lua: `heir` replaces `giver`. */
inline rotate(giver, heir) {
    result = NO;
    if
#ifndef NO_EXTEND
    :: holder == heir -> expires = (expires < now + TTL -> now + TTL : expires); result = YES
#else
    :: holder == heir -> result = YES
#endif
    :: holder != heir && !refused(heir) && has_it(giver) && may_grant ->
#ifndef GIVER_NOT_DEAD
        dead[giver] = true;
#endif
        take(heir);
        result = YES
    :: else -> skip
    fi;
    if
    :: awaits[heir] -> answer[heir] = result; answer_fence[heir] = fence; awaits[heir] = false
    :: true                                                           /* nobody waits for the reply, or it is lost */
    fi;
    result = NONE
}

inline let_go(t) { if :: holder == t -> holder = 0; expires = 0 :: else fi; revoked[t] = true }

active proctype Server() {
    mtype result = NONE;
    byte t;
end:
    do
    :: atomic { acquires && holder == 0 && !dead[G] && may_grant -> take(G) }
    :: atomic { rotates[T] -> rotate(G, T); assert(!revoked[holder] || holder == 0) }
    :: atomic { rotates[A] -> rotate(T, A); assert(!revoked[holder] || holder == 0) }
    :: atomic { rotates[B] -> rotate(T, B); assert(!revoked[holder] || holder == 0) }
    :: atomic { select(t : G .. W); if :: buries[t] -> dead[t] = true; let_go(t) :: else fi; t = 0 }
    :: atomic { select(t : A .. W); if :: releases[t] -> let_go(t) :: else fi; t = 0 }
    od
}

active proctype Giver() {
end:
    do
    :: atomic { believes(G) && !tried[T] ->
        tried[T] = true; rotates[T] = true; awaits[T] = true; until[G] = 0 }
    :: atomic { answer[T] == YES && !delivered -> delivered = true }
#ifndef NOTHING_TAKEN_BACK
    :: atomic { awaits[T] -> awaits[T] = false; buries[T] = true; buries[G] = true }                   /* gives up */
#else
    :: atomic { awaits[T] -> awaits[T] = false; revoked[T] = true }
#endif
    od
}

proctype Redeemer(byte me) {
end:
    do
    :: atomic { delivered && !tried[me] -> tried[me] = true; rotates[me] = true; awaits[me] = true; sent[me] = now }
    :: atomic { awaits[me] && sent[me] < now -> sent[me] = now }                                       /* asks again */
    :: atomic { answer[me] == YES ->
        answer[me] = NONE; redeemed++;
        assert(redeemed <= 1);
#ifdef FROM_ANSWER
        hold(me, now, answer_fence[me])
#else
        hold(me, sent[me], answer_fence[me])
#endif
       }
    :: atomic { awaits[me] -> awaits[me] = false; buries[me] = true }                                  /* gives up */
    :: atomic { believes(me) -> until[me] = 0; releases[me] = true }
    od
}

active proctype Other() {
end:
    do
    :: atomic { holder == 0 && !tried[W] && may_grant -> tried[W] = true; take(W); hold(W, now, fence) }
    :: atomic { believes(W) -> until[W] = 0; releases[W] = true }
    od
}

active proctype Time() {
end:
    do
    :: atomic { now < LAST ->
        now++;
        if :: now >= expires -> holder = 0; expires = 0 :: else fi }
    od
}

init {
    atomic {
        until[G] = TTL;
        run Redeemer(A);
        run Redeemer(B)
    }
}
