-- Lets newcomers enter: a session if a slot is free and nobody waits, else a place in the queue.
-- ARGV    from 6 on, for each visitor: id, random number in [0, 1), when the pre-queue began in
--         which this number is the visitor's lot (ms, 0: none), address or '', class or '', id of
--         a one-time grant of that class or '', when the grant expires, ms, until when the client
--         waits for the reply, ms, because a call that was delayed in a batch or by a frozen Redis
--         must not give a slot to a client that is gone
-- RETURNS rooms/parts/standing
-- EVENTS  admitted, joined, called, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/newcomer"

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_start()
  expire()
  call_next()
  local visitors = batch(ARGV, 8)
  begin_newcomers(#visitors)
  local revoked, sessions = queue.scores_of(REVOKED, visitors), queue.scores_of(ACTIVE, visitors)
  local dues = queue.scores_of(DUE, visitors)
  local was_handled, replies = {}, {}
  for n, visitor in ipairs(visitors) do
    local i = 8 * n - 2 -- the index of the visitor's first argument
    local session, is_here, number = sessions[n], dues[n], tonumber(ARGV[i + 1])
    if was_handled[visitor] then -- an item before gave the visitor a session or a place
      flush()
      session = redis_call('ZSCORE', ACTIVE, visitor)
      is_here = redis_call('ZSCORE', DUE, visitor)
    end
    was_handled[visitor] = true
    if now > tonumber(ARGV[i + 7]) then
      replies[n] = refused_reply(GONE, 0)
    elseif revoked[n] then -- a late retry must not bring back a visitor who has left since
      replies[n] = refused_reply(GONE, 0)
    elseif session then -- a retry, because the first reply was lost
      replies[n] = claim(visitor, now * 1000, session)
    elseif is_here then
      flush()
      if reserved.take_back(visitor, now) then waiting = waiting + 1 end
      local place = redis_call('ZSCORE', WAITING, visitor)
      replies[n] = phase == CLOSED and refused_reply(REJECTED, 60000)
        or place_reply(visitor, place, redis_call('ZRANK', WAITING, visitor), number)
    else
      replies[n] = enter(visitor, number, unpack(ARGV, i + 2, i + 6))
    end
  end
  return finish_with(replies)
end
