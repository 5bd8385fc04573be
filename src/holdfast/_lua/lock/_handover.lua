-- Shared by the scripts of a lock: the direct hand-over.
-- MODEL    models/lock_handover.pml
-- CODES    GRANTED
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_grant
-- INCLUDE  shared/_inbox
-- INCLUDE  shared/_waiters

-- Hand a free lock over to the first live waiter. Return its token, or nil if there is none, and the last fence issued.
-- If that waiter is `me` (the token of the caller, or false), it is returned without a grant: the caller acquires the lock.
--
-- If a process does not listen, all its waiters are passed over. A waiter that was not refreshed for the time of a claim
-- window is passed over, too. Its process may hang, and each place of a hung process would cost a claim window. If the process
-- lives, this waiter would ask the server before it believed a message (`_core/lock/server_queue.py`). Waiters that are passed
-- over keep their places until the places expire. The process that sends this request is alive, so its first waiter may get
-- the lock, and asks for it if it cannot be notified.
-- One run reads at most a thousand places and removes at most a hundred, because a longer run would delay other clients.
local function hand_over(lock, state, queue, now, me, last)
  local silent, granted, removed, from, page = {}, false, 0, 0, 1
  local asking = me and string.match(me, '^[^.]+')
  while from < 1000 do
    local line = redis.call('ZRANGE', queue, from, from + page - 1)
    for _, token in ipairs(line) do
      local at = whole(redis.call('HGET', state, 'at:' .. token))
      local process = string.match(token, '^[^.]*')
      if at and at * 1000 > now then
        if token == me then return me, last end
        local lively = process == asking or at * 1000 - now >= (PLACE - CLAIM) * 1000
        if lively and not silent[process] then
          local first
          first, last = take(lock, state, token, CLAIM, now, last)
          granted = true
          local inbox = inbox_of(lock, token)
          local heard = listens(inbox) and publish(inbox, GRANTED .. ' ' .. token .. ' ' .. integer(first))
          -- If access control refuses PUBLISH, the waiter gets the lock, and asks within a second. If it were passed over, it
          -- could wait forever.
          local knows = type(heard) == 'table' or (heard and heard > 0)
          if process == asking or knows then
            leave(state, queue, token)
            return token, last
          end
          silent[process] = true
        end
        from = from + 1
      elseif removed < 100 then
        leave(state, queue, token)
        removed = removed + 1
      else
        from = from + 1
      end
    end
    if #line < page then break end
    page = 100
  end
  if granted then redis.call('DEL', lock) end
  return nil, last
end

-- Return the reply to a waiter: {0, ms until the holder's lease expires (-1: never), last fence issued, holder's process, 1 if
-- the holder may keep the lock after use}. The process is empty if the value is not a token of holdfast.
local function waiting(lock, holder, last, pause, now)
  -- There is no holder, but the server is in quarantine. No fence is issued until its end. The fence returned is higher than
  -- that of any message from before the loss of data, so waiters ignore such messages.
  if not holder then return {0, pause, (math.floor(now / 1000) + pause) * 1000 - 1, 'guard', 0} end
  local process, lingers = string.match(holder, '^(%x[%x{}@]*)%.%x+(~?)$')
  return {0, redis.call('PTTL', lock), last or 0, short(process), lingers == '~' and 1 or 0}
end
