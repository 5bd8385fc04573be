/*
 * The queue of a busy lock, and the direct hand-over from one holder to the next.
 *
 * SPEAKS OF  _lua/lock/acquire.lua _lua/lock/refresh.lua _lua/lock/release.lua _lua/lock/renew.lua _lua/inspect/break_lock.lua _lua/inspect/scan.lua _lua/inspect/control_records.lua _lua/shared/_grant.lua _lua/shared/_state.lua _lua/lock/_handover.lua _lua/shared/_waiters.lua _lua/shared/_parse.lua _lua/shared/_constants.lua _lua/shared/_inbox.lua _core/lock/acquire.py _core/lock/server_queue.py
 *
 * Processes make attempts to acquire the lock, one after the other: join the queue, wait, hold, release. An attempt may be
 * given up at any point. Time is counted in ticks, and all durations count down at the same speed; lock_lease.pml has the
 * clocks. There are FAULTS faults, at any point: a request or its reply is lost, or the request arrives late, after the
 * client has gone on without it; a hand-over message is lost; a subscription breaks; a process is stopped for a while, or
 * forever. A message may be read at any time after it was sent.
 *
 * For the waiters, a lock that a person breaks (break_lock.lua) is a lock that was released. Its former holder may still
 * believe in it.
 *
 * Holds: a process that believes that it holds the lock has it on the server, for at least as long as it believes; an attempt
 * that was ended has nothing on the server, and never gets anything there again; the lock is not free for more than IDLE
 * ticks while a live process waits for it.
 */
#ifndef PROCESSES
#define PROCESSES 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS  2    /* attempts of process 0; the others make one each */
#endif
#ifndef FAULTS
#define FAULTS    1
#endif
#define TOKENS    (PROCESSES + ATTEMPTS - 1)
#define LEASE     3
#define CLAIM     2    /* ticks that a winner has to claim the lock: the lease that a hand-over writes */
#define PLACE     3    /* ticks for which a place in the queue counts after the last refresh */
#define IDLE      10   /* ticks since the last fault: two leases of a dead holder's late copy, and a margin */
#define LONG_AGO  4    /* ages are not counted beyond */

mtype = { NONE, JOIN, REFRESH, RENEW, RELEASE, LEAVE, REVOKE };                   /* requests */
mtype = { HELD, WAIT, GONE, DONE };                                             /* answers */
mtype = { RESTING, JOINING, WAITING, HOLDING, ENDING };                         /* the state of a process */

/* The server. Tokens are 1..TOKENS, 0 is nobody; token t is of process (t - 1) % PROCESSES. */
byte holder;                 /* the lock key: its token */
byte ttl;                    /* the lock key: ticks until it expires */
byte fence;                  /* the last fence issued */
chan queue = [TOKENS] of { byte };
byte place[TOKENS + 1];      /* ticks for which this token's place counts */
bool dead[TOKENS + 1];       /* revoked: refused from now on */
bool listening[PROCESSES];   /* the process's inbox has a subscriber, as far as the server knows */

/* The network. One request of each process is awaited; one more may still be under way that is not awaited any more. */
mtype request[PROCESSES] = NONE;
mtype answer[PROCESSES] = NONE;
byte answer_fence[PROCESSES];
byte age[PROCESSES];         /* ticks since the request was sent */
mtype late[PROCESSES] = NONE;
byte late_token[PROCESSES];
byte message[PROCESSES];     /* a hand-over that was not read yet: its token; a new one replaces it */
byte message_fence[PROCESSES];

/* A process, and its one attempt. */
mtype state[PROCESSES] = RESTING;
byte token[PROCESSES];
byte tries[PROCESSES];
bool doubt[PROCESSES];       /* a copy of a request to join may still be under way */
byte told[PROCESSES];        /* the last fence of which the server has told the waiter */
byte window[PROCESSES];      /* ticks for which a hand-over would be believed: from the send time of the last "waiting" */
byte since[PROCESSES];       /* ticks since the last refresh */
byte left[PROCESSES];        /* ticks for which the holder believes */
bool renewed[PROCESSES];
bool stopped[PROCESSES];     /* for a while */
bool crashed[PROCESSES];

byte faults = FAULTS;
byte idle;                   /* for the check alone */
bool ended[TOKENS + 1];      /* for the check alone: this attempt is over, and the server has said so */

#ifdef HEAD_ONLY
#define lively(t) (listening[owner(t)])
#else
#define lively(t) (listening[owner(t)] && place[t] > PLACE - CLAIM)   /* it could believe a message */
#endif
#define owner(t) ((t - 1) % PROCESSES)
#define alive(p) (!crashed[p] && !stopped[p])
#define quiet(p) (request[p] == NONE && answer[p] == NONE)
#define believes(p) (state[p] == HOLDING && left[p] > 0)

inline fault() { faults--; idle = 0 }

/* ---- The server ---- */

inline publish(p, t) {
    if
    :: message[p] = t; message_fence[p] = fence
    :: faults > 0 -> fault()                                      /* lost */
    fi
}

inline take(t, length) {
    holder = t; ttl = length; fence++
}

inline drop_place(t) {
    if :: queue??[eval(t)] -> queue??eval(t) :: else fi;
    place[t] = 0
}

/* hand_over in _handover.lua: the first live waiter gets the free lock. `me`, which asks, gets it as a reply instead. */
inline hand_over(me) {
    next = 0;
    n = len(queue);
    do
    :: n == 0 -> break
    :: n > 0 ->
        n--;
        queue?t;
        if
        :: next != 0 -> queue!t
#ifndef HEAD_ONLY
        :: next == 0 && place[t] == 0 -> skip                      /* its place has expired */
        :: next == 0 && place[t] > 0 && t != me && !lively(t) -> queue!t               /* passed over, keeps its place */
#else
        :: next == 0 && t != me && !listening[owner(t)] -> queue!t; next = t           /* waits for the first waiter */
#endif
        :: next == 0 && place[t] > 0 && t == me -> next = t; place[t] = 0
        :: next == 0 && place[t] > 0 && t != me && lively(t) ->
            next = t; place[t] = 0;
#ifdef NO_CLAIM_WINDOW
            take(t, 255);
#else
            take(t, CLAIM);
#endif
            publish(owner(t), t)
        fi
    od;
    t = 0
}

/* The lock is free, and a live process asks: it is handed over, to the process itself if no waiter is before it. */
inline take_or_hand_over(me) {
    hand_over(me);
    if
    :: next == 0 || (next == me && holder == 0) -> drop_place(me); take(me, LEASE); reply = HELD
    :: else
    fi;
    next = 0
}

inline extend() { if :: ttl < LEASE -> ttl = LEASE :: else fi }

/* One run of a script, for token `me`. */
inline serve() {
    if
    :: kind == JOIN && dead[me] -> reply = GONE
    :: kind == JOIN && !dead[me] && holder == me -> extend(); reply = HELD
    :: kind == JOIN && !dead[me] && holder != me ->
        if :: holder == 0 -> take_or_hand_over(me) :: else fi;
        if
        :: reply == HELD
        :: else ->
            if :: queue??[eval(me)] :: else -> queue!me fi;
            place[me] = PLACE;
            reply = WAIT
        fi
    :: kind == REFRESH && holder == me -> extend(); reply = HELD
#ifdef REFRESH_INSERTS
    :: kind == REFRESH && holder != me && !queue??[eval(me)] -> queue!me; place[me] = PLACE; reply = WAIT
#else
    :: kind == REFRESH && holder != me && !queue??[eval(me)] -> reply = GONE
#endif
    :: kind == REFRESH && holder != me && queue??[eval(me)] ->
        place[me] = PLACE;
        reply = WAIT;
#ifndef NO_HELP
        if :: holder == 0 -> take_or_hand_over(me) :: else fi
#endif
    :: kind == RENEW -> if :: holder == me -> ttl = LEASE; reply = HELD :: else -> reply = GONE fi
    :: kind == RELEASE || kind == LEAVE || kind == REVOKE ->
        if :: kind != RELEASE -> drop_place(me) :: else fi;
        if :: kind == REVOKE -> dead[me] = true :: else fi;
        if
#ifdef NO_COMPARE
        :: kind == RELEASE -> holder = 0
#endif
#ifdef LEAVES_QUEUE_ONLY
        :: holder == me && kind == RELEASE -> holder = 0
#else
        :: holder == me -> holder = 0
#endif
        :: else
        fi;
        if :: holder == 0 -> ttl = 0; hand_over(0); next = 0 :: else fi;
        reply = DONE
    fi;
    assert(holder == 0 || !ended[holder]);                          /* an attempt that was ended stays ended */
    assert(!(queue??[1] && ended[1]) && !(queue??[2] && ended[2]))
}

active proctype Server() {
    byte p, me, t, n, next;
    mtype kind = NONE, reply = NONE;
    bool awaited;
end:
    do
    :: atomic {
        select(p : 0 .. PROCESSES - 1);
        if
        :: request[p] != NONE -> kind = request[p]; me = token[p]; request[p] = NONE; awaited = true
        :: late[p] != NONE -> kind = late[p]; me = late_token[p]; late[p] = NONE; late_token[p] = 0
        :: else
        fi;
        if :: kind != NONE -> serve() :: else fi;
        if :: awaited -> answer[p] = reply; answer_fence[p] = fence :: else fi;
        p = 0; me = 0; kind = NONE; reply = NONE; awaited = false
       }
    od
}

/* ---- A process ---- */

inline send(kind) { request[me] = kind; age[me] = 0 }

/* The process does not wait for the request any more. It may be lost, or still be under way. */
inline abandon() {
    if
    :: request[me] != NONE -> late[me] = request[me]; late_token[me] = token[me]
    :: true
    fi;
    request[me] = NONE; hear()
}

inline hear() { answer[me] = NONE; answer_fence[me] = 0; age[me] = 0 }

inline wait_for_it() {
    state[me] = WAITING; since[me] = 0; told[me] = answer_fence[me];
    window[me] = (age[me] < CLAIM -> CLAIM - age[me] : 0)
}

inline hold(length) {
    state[me] = HOLDING; left[me] = length; window[me] = 0; since[me] = 0; told[me] = 0;
    check(me)
}

inline check(p) {
    assert(!believes(p) || (holder == token[p] && ttl >= left[p]))
}

inline rest() {
    ended[token[me]] = true;
#ifdef SAME_TOKEN
    ended[token[me]] = false;
#endif
    state[me] = RESTING; token[me] = 0; doubt[me] = false
}

inline end_it() { abandon(); state[me] = ENDING; left[me] = 0; window[me] = 0; since[me] = 0; told[me] = 0; renewed[me] = false }

/* A hand-over message: a hint, believed only if it can be right. */
inline read() {
    t = message[me]; f = message_fence[me]; message[me] = 0; message_fence[me] = 0;
    if
#ifdef NO_FENCE_CHECK
    :: t == token[me] && state[me] == WAITING && window[me] > 0 -> abandon(); hold(window[me])
#elif defined(FROM_READING)
    :: t == token[me] && state[me] == WAITING && f > told[me] -> abandon(); hold(CLAIM)
#else
    :: t == token[me] && state[me] == WAITING && f > told[me] && window[me] > 0 -> abandon(); hold(window[me])
#endif
    :: else
    fi;
    t = 0; f = 0
}

proctype Process(byte me) {
    byte t, f;
    bool released;             /* this attempt held the lock: it is released, not given up */
end:
    do
    :: atomic { alive(me) && state[me] == RESTING && tries[me] < (me == 0 -> ATTEMPTS : 1) ->
#ifdef SAME_TOKEN
        token[me] = me + 1;
#else
        token[me] = tries[me] * PROCESSES + me + 1;
#endif
        tries[me]++; state[me] = JOINING; listening[me] = true }

    /* Join the queue, only with a subscribed inbox; without a reply, ask again under the same token. */
    :: atomic { alive(me) && state[me] == JOINING && quiet(me) -> send(JOIN) }
    :: atomic { alive(me) && state[me] == JOINING && answer[me] == WAIT -> wait_for_it(); hear() }
    :: atomic { alive(me) && state[me] == JOINING && answer[me] == GONE -> hear(); end_it() }
    :: atomic { alive(me) && (state[me] == JOINING || state[me] == WAITING) && answer[me] == HELD ->
        f = (age[me] < LEASE -> LEASE - age[me] : 0);
        renewed[me] = true; hear();
        if
        :: f > 0 -> hold(f); f = 0; released = true
        :: else -> end_it()
        fi }

    /* A refresh each tick: it extends the place, and replaces lost messages. */
#ifndef NO_REFRESH
    :: atomic { alive(me) && state[me] == WAITING && quiet(me) && since[me] > 0 -> send(REFRESH) }
#endif
    :: atomic { alive(me) && state[me] == WAITING && answer[me] == WAIT -> wait_for_it(); hear() }
    :: atomic { alive(me) && state[me] == WAITING && answer[me] == GONE -> hear(); end_it() }
    :: atomic { alive(me) && state[me] == WAITING && !listening[me] -> listening[me] = true; since[me] = 1 }
    :: atomic { alive(me) && state[me] != JOINING && message[me] != 0 -> read(); released = released || believes(me) }
    /* Give up. */
    :: atomic { alive(me) && (state[me] == JOINING || state[me] == WAITING) ->
        if :: state[me] == JOINING && request[me] != NONE -> doubt[me] = true :: else fi; end_it() }

    /* Hold: the claim window is turned into the full lease, once. Until its end, or a release before. */
    :: atomic { alive(me) && believes(me) && quiet(me) && !renewed[me] -> renewed[me] = true; send(RENEW) }
    :: atomic { alive(me) && state[me] == HOLDING && answer[me] == HELD && believes(me) ->
        if :: LEASE - age[me] > left[me] -> left[me] = LEASE - age[me] :: else fi; hear(); check(me) }
    :: atomic { alive(me) && state[me] == HOLDING -> end_it(); released = true }

    /* Release a held lock, or give an attempt up; once more if there is no reply. */
    :: atomic { alive(me) && state[me] == ENDING && quiet(me) ->
        if
#ifndef NO_REVOKE
        :: doubt[me] -> send(REVOKE)
        :: !doubt[me] && released -> send(RELEASE)
        :: !doubt[me] && !released -> send(LEAVE)
#else
        :: released -> send(RELEASE)
        :: !released -> send(LEAVE)
#endif
        fi }
    :: atomic { alive(me) && state[me] == ENDING && answer[me] == DONE -> hear(); rest(); released = false }

    /* The faults. */
    :: atomic { alive(me) && faults > 0 && !quiet(me) ->
        fault(); if :: state[me] == JOINING -> doubt[me] = true :: else fi; abandon() }
    :: atomic { alive(me) && faults > 0 && state[me] == WAITING -> fault(); listening[me] = false }
    :: atomic { alive(me) && faults > 0 && state[me] != RESTING -> fault(); stopped[me] = true }
    :: atomic { alive(me) && faults > 0 && state[me] != RESTING -> fault(); crashed[me] = true; end_it(); 
        if :: listening[me] = false :: true fi }      /* a cut connection may look open for long */
    :: atomic { stopped[me] -> stopped[me] = false; idle = 0 }
    od
}

/* ---- Time ---- */

/* A live process does what is due before the next tick, and its requests are answered, or lost, within one. */
#define due(p) (alive(p) && (state[p] == JOINING || state[p] == ENDING || (state[p] == HOLDING && left[p] == 0) || \
    (state[p] == WAITING && (since[p] > 0 || !listening[p]))) && quiet(p))
#define overdue(p) (alive(p) && !quiet(p) && age[p] > 0)
#ifdef NO_REFRESH
#define may_pass(p) (state[p] == WAITING || (!due(p) && !overdue(p)))
#else
#define may_pass(p) (!due(p) && !overdue(p))
#endif

inline count_down(x) { if :: x > 0 -> x-- :: else fi }

inline pass_time(p) {
    count_down(window[p]);
    count_down(left[p]);
    if :: !quiet(p) && age[p] < LONG_AGO -> age[p]++ :: else fi;
    if :: state[p] == WAITING -> since[p] = 1 :: else fi;
    if :: alive(p) && state[p] == WAITING -> somebody = true :: else fi;
    check(p)
}

active proctype Time() {
    byte i;
    bool somebody;
end:
    do
    :: atomic {
        may_pass(0) && may_pass(1) && (PROCESSES < 3 || may_pass(PROCESSES - 1)) ->
        if :: ttl < 255 -> count_down(ttl) :: else fi;
        if :: ttl == 0 -> holder = 0 :: else fi;
        for (i : 1 .. TOKENS) {
#ifdef HEAD_ONLY
            skip
#else
            count_down(place[i])
#endif
        }
        i = 0;
        pass_time(0); pass_time(1);
#if PROCESSES > 2
        pass_time(2);
#endif
        if
        :: somebody && (holder == 0 || crashed[owner(holder)] || token[owner(holder)] != holder) -> idle++
        :: else -> idle = 0
        fi;
        somebody = false;
        assert(idle <= IDLE)
       }
    od
}

init {
    atomic {
        run Process(0);
        run Process(1);
#if PROCESSES > 2
        run Process(2)
#endif
    }
}
