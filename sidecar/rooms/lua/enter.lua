-- Gives each newcomer a session if a slot is free and nobody waits, else a place in the queue.
-- ARGV    from 6 on, for each visitor:
--         id
--         random number in [0, 1)
--         when the pre-queue began in which this number is the visitor's lot (ms, 0: none)
--         IP address or ''
--         class or ''
--         id of a one-time grant of that class or ''
--         when the grant expires (ms)
--         the deadline until which the client waits for the reply (ms). A request that was delayed
--         beyond the deadline, in a batch or by a frozen Redis, gets no slot: its client is gone.
-- RETURNS rooms/parts/standing
-- EVENTS  admitted, joined, called, expired
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/newcomer"

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_elapsed()
  expire()
  call_next()
  local visitors = read_visitors(ARGV, 8)
  begin_newcomers(#visitors)
  local revoked, sessions = queue.scores_of(REVOKED, visitors), queue.scores_of(ACTIVE, visitors)
  local dues = queue.scores_of(DUE, visitors)
  local was_handled, replies = {}, {}
  for n, visitor in ipairs(visitors) do
    local i = 8 * n - 2 -- the index of the visitor's first argument
    local session, has_place, number = sessions[n], dues[n], tonumber(ARGV[i + 1])
    if was_handled[visitor] then -- an earlier request of this batch got a session or a place
      flush()
      session = redis_call('ZSCORE', ACTIVE, visitor)
      has_place = redis_call('ZSCORE', DUE, visitor)
    end
    was_handled[visitor] = true
    if now > tonumber(ARGV[i + 7]) then
      replies[n] = make_refusal(GONE, 0)
    elseif revoked[n] then -- a late retry must not bring back a visitor who has left
      replies[n] = make_refusal(GONE, 0)
    elseif session then -- the client retries because it lost the first reply
      replies[n] = claim_session(visitor, now * 1000, session)
    elseif has_place then
      flush()
      if reserved.return_to_queue(visitor, now) then waiting = waiting + 1 end
      local place = redis_call('ZSCORE', WAITING, visitor)
      replies[n] = phase == CLOSED and make_refusal(REJECTED, 60000)
        or make_place_reply(visitor, place, redis_call('ZRANK', WAITING, visitor), number)
    else
      replies[n] = admit_or_queue(visitor, number, unpack(ARGV, i + 2, i + 6))
    end
  end
  return finish_batch(replies)
end
