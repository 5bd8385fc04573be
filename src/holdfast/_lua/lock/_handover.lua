-- Shared by the scripts of a lock: the direct hand-over.
-- MODEL    models/handover.pml
-- CODES    GRANTED
-- INCLUDE  shared/_constants
-- INCLUDE  shared/_parse
-- INCLUDE  shared/_state
-- INCLUDE  shared/_grant
-- INCLUDE  shared/_inbox
-- INCLUDE  shared/_waiters

-- The lock is free: hands it to the first live waiter. Answers that token, or nil if there is none, and the last number issued.
-- `me` (the caller, or false) is answered, not granted: it takes the lock itself. A waiter whose process does not listen
-- just now is passed over, and with it all others of that process; and so is one that has given no sign of life for as long as a
-- claim counts: it would not believe what it is told without asking (`_core/lock/server_queue.py`), and if it hangs, each of its places
-- would cost a claim. They keep their places until their deadlines. A request is a sign of life of its whole process: the first
-- waiter of that process has the lock, and asks for it if it cannot be notified. One run looks at a thousand places and removes a hundred at
-- most: others want the server, too.
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
          -- Refused by access control: the waiter listens, and looks within a second. Passed over, it could wait for ever.
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

-- The answer to a waiter: {0, ms until the holder's lease ends (-1: it has no end), last fence issued, holder's process, 1 if
-- it may keep the lock after use}. Only our own tokens have a public part; the value of a foreign lock is nobody's business.
local function waiting(lock, holder, last, pause, now)
  -- Nobody has it, as far as this server knows. Until that is over no fence is issued, so a message with a lower one is from before
  -- all was forgotten, and nobody shall believe it.
  if not holder then return {0, pause, (math.floor(now / 1000) + pause) * 1000 - 1, 'guard', 0} end
  local process, lingers = string.match(holder, '^(%x[%x{}@]*)%.%x+(~?)$')
  return {0, redis.call('PTTL', lock), last or 0, short(process), lingers == '~' and 1 or 0}
end
