/*
 * The timestamp lock: the value of the key is the time at which the lock expires, by the clock of the client that wrote it.
 *
 * SPEAKS OF  _lua/timestamp/compare_and_set.lua _lua/timestamp/clock.lua _core/timestamp.py
 *
 * Time is counted in ticks, up to LAST. All clocks show the same time, except one that may be AHEAD. Any step may come late:
 * a client reads its clock, and sends the request later. A reply may be lost; then the client goes on without it, and the
 * request was carried out, or will be at any later time, or never. A holder may stop for good. Client 0 tries twice, the
 * others once.
 *
 * Holds: two clients never believe at the same time that they hold the lock. Two clients that read their clocks in one tick
 * write the same value.
 */
#define CLIENTS 3
#define TTL     1
#define LAST    5
#ifdef AHEAD
#define clock(c) (c == 0 -> now + 2 : now)
#else
#define clock(c) (now)
#endif

mtype = { IDLE, ASK, LOOK, SWAP, AGAIN, HOLD, GIVE };

byte now = 1;
byte key;              /* 0: the key does not exist */

/* One request of each client without a reply, which may be carried out later: replace one value by another. */
typedef Late { bool sent; byte old; byte new };
Late late[CLIENTS];

bool holds[CLIENTS];
byte until[CLIENTS];   /* it believes before that */
#define believes(c) (holds[c] && now < until[c])

inline swap(expected, value, done) {
    done = (key == expected);
    if :: done -> key = value :: else fi
}

active proctype Time() {
end:
    do
    :: atomic { now < LAST -> now++ }
    od
}

active proctype Network() {
    byte c;
    bool done;
end:
    do
    :: atomic {
        select(c : 0 .. CLIENTS - 1);
        if
        :: late[c].sent -> swap(late[c].old, late[c].new, done); late[c].sent = false; late[c].old = 0; late[c].new = 0
        :: late[c].sent -> late[c].sent = false; late[c].old = 0; late[c].new = 0     /* it never arrives */
        :: !late[c].sent
        fi;
        c = 0; done = false
       }
    od
}

/* A request is carried out, and its reply arrives. Or there is no reply. */
inline unanswered(from, to) {
    !late[me].sent;
    late[me].sent = true; late[me].old = from; late[me].new = to
}

inline win() {
    holds[me] = true;
    until[me] = read + TTL;
    assert(!(believes(0) && believes(1)) && !(believes(0) && believes(2)) && !(believes(1) && believes(2)));
    state = HOLD
}

inline idle() { state = IDLE; mine = 0; seen = 0; read = 0; holds[me] = false; until[me] = 0 }

proctype Client(byte me; byte turns) {
    mtype state = IDLE;
    byte read, mine, seen;
    bool done;
end:
    do
    :: atomic { state == IDLE && turns > 0 -> turns--; read = now; mine = clock(me) + TTL; state = ASK }

    /* SETNX */
    :: atomic { state == ASK -> swap(0, mine, done); if :: done -> win() :: else -> state = LOOK fi; done = false }
    :: atomic { state == ASK -> unanswered(0, mine);
#ifdef CLAIM
        state = AGAIN }
    :: atomic { state == AGAIN -> if :: key == mine -> win() :: else -> state = LOOK fi }
#else
        state = LOOK }
#endif

    /* GET, and has the time passed? By the clock as it was read before. */
    :: atomic { state == LOOK -> seen = key;
        if
        :: seen != 0 && seen < clock(me) - now + read -> state = SWAP
        :: else -> idle()
        fi }

#ifdef DELETE_FIRST
    :: atomic { state == SWAP -> key = 0; state = GIVE }
    :: atomic { state == GIVE -> swap(0, mine, done); if :: done -> win() :: else -> idle() fi; done = false }
#elif defined(PLAIN_GETSET)
    :: atomic { state == SWAP -> done = (key == seen); key = mine; if :: done -> win() :: else -> idle() fi; done = false }
#else
    /* GETSET, by a script that compares first */
    :: atomic { state == SWAP -> swap(seen, mine, done); if :: done -> win() :: else -> idle() fi; done = false }
    :: atomic { state == SWAP -> unanswered(seen, mine); idle() }
#endif

    /* Release: if the client still believes that it holds the lock, and the value is its own. */
#ifdef BLIND
    :: atomic { state == HOLD && believes(me) -> state = GIVE; holds[me] = false }
    :: atomic { state == GIVE && !holds[me] -> key = 0; idle() }
#else
    :: atomic { state == HOLD && believes(me) -> swap(mine, 0, done); done = false; idle() }
    :: atomic { state == HOLD && believes(me) -> unanswered(mine, 0);
#ifdef RESEND
        swap(mine, 0, done); done = false;
#endif
        idle() }
#endif
    :: atomic { state == HOLD && !believes(me) -> idle() }
    od
}

init { atomic { run Client(0, 2); run Client(1, 1); run Client(2, 1) } }
