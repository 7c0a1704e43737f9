-- Newcomers: a session where a slot is free and nobody waits, else a place in the queue.
-- ARGV    from 6 on, for each visitor: id, random number in [0, 1), when the pre-queue begins of
--         which that is the lot (ms, 0: none), address or '', class or '', id of a grant that gives
--         it once or '', when that expires, until when somebody waits for the reply (ms): a call
--         that lay in a batch, or in a frozen store, must not give a slot to a client that is gone
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
  local met, replies = {}, {}
  for n, visitor in ipairs(visitors) do
    local i = 8 * n - 2 -- where its arguments begin
    local session, is_here, draw = sessions[n], dues[n], tonumber(ARGV[i + 1])
    if met[visitor] then -- twice in this batch: now there is a session or place
      flush()
      session = redis_call('ZSCORE', ACTIVE, visitor)
      is_here = redis_call('ZSCORE', DUE, visitor)
    end
    met[visitor] = true
    if now > tonumber(ARGV[i + 7]) then
      replies[n] = refused_reply(GONE, 0)
    elseif revoked[n] then -- a call that is repeated late must not bring back who has left since
      replies[n] = refused_reply(GONE, 0)
    elseif session then -- the first reply was lost
      replies[n] = claim(visitor, now * 1000, session)
    elseif is_here then
      flush()
      if reserved.take_back(visitor, now) then waiting = waiting + 1 end
      local place = redis_call('ZSCORE', WAITING, visitor)
      replies[n] = phase == CLOSED and refused_reply(REJECTED, 60000)
        or wait_here(visitor, place, redis_call('ZRANK', WAITING, visitor), draw)
    else
      replies[n] = enter(visitor, draw, unpack(ARGV, i + 2, i + 6))
    end
  end
  return headed(replies)
end
