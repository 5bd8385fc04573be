/*
 * A schedule: each tick of a job runs once, and again only after a crash.
 *
 * SPEAKS OF  _lua/schedule/serve.lua _lua/schedule/_job.lua _lua/schedule/register.lua _lua/schedule/command.lua _lua/schedule/jobs.lua _core/schedule/loop.py
 *
 * There is one job with the ticks 1 .. TICKS, each due when `now` has reached it. A tick that is due while the job runs is
 * queued. After a crash a tick runs again, up to ATTEMPTS times. A process sends requests as often as there is something to
 * do: it reports a run that has ended, claims the next tick that it knows of, whatever its clock shows, and asks for a run,
 * under a token. If the reply is lost, it asks again under the same token. A copy of any request may arrive at any later
 * time. A process may stop for good. A lease ends if its holder does not run; lock_lease.pml shows that it does not end while
 * its holder runs.
 *
 * Holds: no attempt at a tick begins twice; two never run at the same time; in the end each tick was begun, and none is left.
 */
#ifndef TICKS
#define TICKS 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#define ATTEMPTS 3
#define TOKENS   6   /* tokens of each process; process p has those from p * TOKENS + 1 on */
#define NOBODY   255

byte now, last;

/* The run: the process that has its lease (0: nobody), the token under which it is stored (0: there is none), and its tick. */
byte lease, token, tick, attempt;

chan queue = [6] of { byte, byte };   /* tick and attempt of the waiting run */
chan spare = [6] of { byte, byte };

/* A request: the token under which a run has ended, the last tick known, the token of the process that asks for a run. */
typedef Request { bool sent; bool stale; bool cut; byte ended; byte known; byte wanted };
Request copy[2];

byte running[2] = NOBODY;   /* the tick that it runs */
bool dead[2];
bool begun[16];
byte crashes = 1, losses = LOSSES, copies = 1, cuts = 1;

#define which(t, a) ((t) * 4 + (a))

inline first(t, a) {   /* before the queued ones */
    do :: queue?moved_t, moved_a -> spare!moved_t, moved_a :: len(queue) == 0 -> break od;
    queue!t, a;
    do :: spare?moved_t, moved_a -> queue!moved_t, moved_a :: len(spare) == 0 -> break od;
    moved_t = 0; moved_a = 0
}

inline close(again) {
    if
    :: (again) && attempt < ATTEMPTS -> first(tick, attempt + 1)
    :: else
    fi;
    token = 0; tick = 0; attempt = 0
}

/* The script carries out the request in `e`, `is_cut`, `k` and `w`. `got`: a run was granted under the token wanted. */
inline serve() {
    got = 0;
#ifdef BLIND_END
    if :: e != 0 && token != 0 -> lease = 0; close(is_cut) :: else fi;
#else
    if :: e != 0 && token == e -> lease = 0; close(is_cut) :: else fi;
#endif
    if :: token != 0 && lease != token -> close(true) :: else fi;
#ifdef NO_CLAIM
    if :: k < TICKS && k + 1 <= now -> queue!k + 1, 1; last = k + 1 :: else fi;
#elif defined(EARLY)
    if :: k == last && k < TICKS && k + 1 <= now + 1 -> last = k + 1; if :: last <= now -> queue!last, 1 :: else fi :: else fi;
#else
    if :: k == last && k < TICKS && k + 1 <= now -> queue!k + 1, 1; last = k + 1 :: else fi;
#endif
    if
#ifndef FORGETS_WHO
    :: w != 0 && token == w -> got = 1
#endif
    :: w != 0 && token == 0 && len(queue) > 0 -> queue?tick, attempt; token = w; lease = w; got = 1
    :: else
    fi
}

inline begin() {
    assert(!begun[which(tick, attempt)]);
    assert(running[1 - me] == NOBODY);
    begun[which(tick, attempt)] = true;
    running[me] = tick
}

proctype Process(byte me) {
    byte drawn, mine, known, ended, got, moved_t, moved_a, e, k, w;
    bool cut, unanswered, is_cut;
end:
    do
    :: atomic { !dead[me] && (known < now || ended != 0 || unanswered || (running[me] == NOBODY &&
            ((token != 0 && lease != token) || (token == 0 && len(queue) > 0)))) ->
        if
        :: running[me] == NOBODY && mine == 0 && drawn < TOKENS -> drawn++; mine = me * TOKENS + drawn
        :: else
        fi;
        e = ended; is_cut = cut; k = known; w = (running[me] == NOBODY -> mine : 0);
        copy[me].stale = true;
        if
        :: copies > 0 && !copy[me].sent -> copies--; copy[me].sent = true; copy[me].stale = false;
            copy[me].ended = e; copy[me].cut = is_cut; copy[me].known = k; copy[me].wanted = w
        :: true
        fi;
        if
        :: losses > 0 -> losses--; unanswered = true;   /* carried out, or later if there is a copy, or never */
            if :: serve(); copy[me].stale = true :: got = 0 fi
#ifdef NEW_TOKEN
            ; mine = 0
#endif
        :: serve(); copy[me].stale = true; unanswered = false; ended = 0; cut = false; known = last;
            if
            :: got -> begin()
            :: else
            fi
        fi;
        got = 0; e = 0; is_cut = false; k = 0; w = 0
       }
    :: atomic { !dead[me] && running[me] != NOBODY -> running[me] = NOBODY; ended = mine; mine = 0 }
    :: atomic { !dead[me] && running[me] != NOBODY && cuts > 0 -> cuts--; cut = true; running[me] = NOBODY; ended = mine; mine = 0 }
    :: atomic { !dead[me] && crashes > 0 -> crashes--; dead[me] = true; running[me] = NOBODY }
    od
}

/* Late copies; the time; leases that end. */
active proctype World() {
    byte got, moved_t, moved_a, c, e, k, w;
    bool is_cut;
end:
    do
    :: atomic { now < TICKS -> now++ }
    :: atomic { crashes > 0 -> crashes-- }   /* no process does */
    :: atomic { copy[0].sent || copy[1].sent ->
        if :: c = 0 :: c = 1 fi;
        if
        :: copy[c].sent ->
            e = copy[c].ended; is_cut = copy[c].cut; k = copy[c].known; w = copy[c].wanted;
#ifdef NO_NUMBER
            serve();
#else
            if :: !copy[c].stale -> serve() :: else fi;
#endif
            copy[c].sent = false; copy[c].ended = 0; copy[c].cut = false; copy[c].known = 0; copy[c].wanted = 0
        :: else
        fi;
        got = 0; c = 0; e = 0; is_cut = false; k = 0; w = 0
       }
    :: atomic { lease != 0 && running[(lease - 1) / TOKENS] == NOBODY && dead[(lease - 1) / TOKENS] -> lease = 0 }
    :: atomic { timeout ->
        assert(last == TICKS && token == 0 && len(queue) == 0);
        for (c : 1 .. TICKS) { assert(begun[which(c, 1)] || begun[which(c, 2)] || begun[which(c, 3)]) }
        c = 0;
        break
       }
    od
}

init { atomic { run Process(0); run Process(1) } }
