/*
 * A lease that the threads of one process hand on among themselves, while another process waits at the server.
 *
 * SPEAKS OF  _lua/lock/acquire.lua _lua/lock/release.lua _lua/lock/renew.lua _core/lock/local_queue.py _core/lock/acquire.py _core/lock/renewal.py
 *
 * The process acquires the lock once, with a block of BLOCK fences: the server counts them all as issued. When a thread is
 * done, it hands the lock on to one that waits in the same process, with the next fence of the block. It does so if the lease
 * lasts longer than any holder needs (HOLD), the block is not used up, and others have not waited too long. The limits are
 * PASSES hand-ons if another process is known to wait, and LIMIT ticks in any case, since the message of the other process
 * may be lost. Otherwise the thread releases the lock on the server. A waiting thread that was given the lock may be
 * cancelled before it wakes up: then it hands the lock on. The whole process may be stopped for a while, once, at any time.
 * Requests and clocks are the subject of lock_lease.pml.
 *
 * The code is stricter in one point: it counts from when the lock was acquired, not from when another process is known to
 * wait. If the block is used up, or the remaining time is short, the code need not release the lock: it asks for more of
 * both.
 *
 * Holds: there are never two holders, except one that was stopped until its lease had ended; every fence is higher than all
 * before; no holder's lease ends unless it was stopped; the other process waits for a limited number of hand-ons, and of
 * ticks; no thread waits while the process has the lock and no thread holds it.
 */
#define THREADS 3
#define LEASE   3
#define HOLD    1       /* ticks for which a thread holds at most */
#define BLOCK   6
#define PASSES  2
#define LIMIT   3
#define PATIENT 5       /* ticks that the other process waits at most: LIMIT, and a hold before and after */
#define FENCES  24      /* tick at which the model ends */

mtype = { NOBODY, PROCESS, OTHER };                 /* who has the lock */
mtype = { OUT, WAITS, PASSED, HOLDS, STALE };       /* a thread; STALE: it was told that the lease is lost, and is not done yet */

/* The server. */
mtype holder = NOBODY;
byte ttl;
byte last;              /* the last fence issued, the whole block included */

/* The process. */
mtype thread[THREADS] = OUT;
byte held[THREADS];     /* ticks for which it has held */
byte left;              /* ticks for which the lease may be believed */
byte next, end_of_block;
byte passes;            /* hand-ons since another process is known to wait */
byte since;             /* ticks since the lock was taken from the server */
bool known;             /* the process knows that another process waits */
bool stopped, has_stopped;

/* The other process. */
mtype other = OUT;
byte other_held;
byte waited;            /* ticks that it has waited */

byte highest;           /* for the check alone: the highest fence of any holder */

inline draw(f) { assert(f > highest); highest = f }

#define holds(i) (thread[i] == PASSED || thread[i] == HOLDS)
#define anybody  (holds(0) || holds(1) || holds(2))
#define queued   (thread[0] == WAITS || thread[1] == WAITS || thread[2] == WAITS)

inline check() { assert(!(anybody && other == HOLDS)) }

/* The lock is free on the server: the other process gets it, if it waits. */
inline hand_over() {
    holder = NOBODY; ttl = 0;
    if
    :: other == WAITS -> holder = OTHER; ttl = LEASE; last++; draw(last); other = HOLDS; waited = 0; known = false; check()
    :: else
    fi
}

inline give_back() {
#ifdef LATE_BLOCK
    if :: next > last + 1 -> last = next - 1 :: else fi;            /* the server learns now which fences were used */
#endif
    left = 0; next = 0; end_of_block = 0; passes = 0; since = 0;
    if :: holder == PROCESS -> hand_over() :: else fi
}

inline pass_to_next() {
    if
    :: thread[0] == WAITS -> thread[0] = PASSED
    :: thread[1] == WAITS -> thread[1] = PASSED
    :: thread[2] == WAITS -> thread[2] = PASSED
    fi;
    draw(next); next++;
    if :: known -> passes++; assert(passes <= PASSES) :: else fi;
    check()
}

#ifdef NO_DEADLINE
#define lasts true
#else
#define lasts (left > HOLD)
#endif
#ifdef NO_BOUND
#define fair true
#elif defined(NO_LIMIT)
#define fair (!known || passes < PASSES)
#else
#define fair ((!known || passes < PASSES) && since < LIMIT)
#endif
#ifdef BEYOND_BLOCK
#define numbered true
#else
#define numbered (next <= end_of_block)
#endif

/* Under the process's own mutex: decided and done in one step. */
inline pass_on() {
    if
    :: queued && lasts && numbered && fair && next > 0 -> pass_to_next()
    :: else -> give_back()
    fi
}

proctype Thread(byte me) {
end:
    do
    :: atomic { !stopped && thread[me] == OUT -> thread[me] = WAITS }
    /* No thread of this process has the lock: acquire it from the server, for the first that comes. */
    :: atomic { !stopped && thread[me] == WAITS && left == 0 && holder == NOBODY && last + BLOCK <= FENCES ->
        holder = PROCESS; ttl = LEASE; left = LEASE; since = 0; passes = 0;
        next = last + 1; end_of_block = last + BLOCK;
#ifdef LATE_BLOCK
        last = next;
#else
        last = end_of_block;
#endif
        thread[me] = HOLDS; held[me] = 0; draw(next); next++; check() }
    :: atomic { !stopped && thread[me] == WAITS -> thread[me] = OUT }                  /* cancelled, or out of time */
    :: atomic { !stopped && thread[me] == PASSED -> thread[me] = HOLDS; held[me] = 0 }
    :: atomic { !stopped && thread[me] == PASSED -> thread[me] = OUT;                  /* cancelled just then */
#ifdef FENCE_AGAIN
        next--;
#endif
#ifndef DROPPED_PASS
        pass_on()
#endif
       }
    :: atomic { !stopped && thread[me] == HOLDS -> thread[me] = OUT; held[me] = 0; pass_on() }
    :: atomic { !stopped && thread[me] == STALE -> thread[me] = OUT; held[me] = 0;
#ifdef AFTER_LOSS
        if :: left == 0 && next > 0 && queued -> pass_to_next() :: else fi             /* as if nothing had happened */
#endif
       }
    od
}

active proctype Keeper() {
end:
    do
    :: atomic { !stopped && left > 0 && left < LEASE && holder == PROCESS -> left = LEASE; ttl = LEASE }
    :: atomic { !has_stopped -> stopped = true; has_stopped = true }
    :: atomic { stopped -> stopped = false; waited = 0 }
    od
}

active proctype Other() {
end:
    do
    :: atomic { other == OUT && last < FENCES ->
        if
        :: holder == NOBODY -> other = WAITS; hand_over()
        :: else -> other = WAITS; waited = 0;
            if :: known = true; passes = 0 :: true fi                                  /* the message may be lost */
        fi }
    :: atomic { other == HOLDS -> other = OUT; other_held = 0; hand_over() }
    od
}

inline lose(i) { if :: holds(i) -> thread[i] = STALE; held[i] = 0 :: else fi }
inline hold_on(i) { if :: thread[i] == HOLDS && !stopped -> held[i]++ :: else fi }
#define done(i) (thread[i] != PASSED && (thread[i] != HOLDS || held[i] < HOLD) && thread[i] != STALE)

active proctype Time() {
end:
    do
    :: atomic {
        /* Unless the process is stopped, everything that is due is done: threads wake up, and hold for HOLD at most. */
        (stopped || (done(0) && done(1) && done(2))) && other_held < HOLD && last < FENCES ->
        hold_on(0); hold_on(1); hold_on(2);
        if :: other == HOLDS -> other_held++ :: else fi;
        if :: since < LIMIT && left > 0 -> since++ :: else fi;
        if
        :: left > 0 ->
            left--;
            if
            :: left == 0 ->
                assert(has_stopped || !anybody);                    /* a hand-on counts as much as a hold */
                lose(0); lose(1); lose(2);
#ifndef AFTER_LOSS
                next = 0; end_of_block = 0; passes = 0; since = 0;
#endif
            :: else
            fi
        :: else
        fi;
        if :: ttl > 0 -> ttl--; if :: ttl == 0 && holder == PROCESS -> hand_over() :: else fi :: else fi;
        if :: other == WAITS && !stopped -> waited++; assert(waited <= PATIENT) :: else fi;
        assert(stopped || left == 0 || !queued || anybody)          /* the lock that is handed on is not lost */
       }
    od
}

init {
    atomic {
        run Thread(0);
        run Thread(1);
        run Thread(2)
    }
}
