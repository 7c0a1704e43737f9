-- Removes visitors from the queue and ends sessions. Idempotent.
-- ARGV    from 6 on, for each visitor: id, the operator or '', and the cause:
--         'left': the visitor left
--         'released': an operator or the site ended the place or session
--         'unseen': the reply never reached the client, so nobody has a pass, and the slot is free
--         at once. Instead of the operator comes the id of the grant that gave the place its class,
--         or ''. This grant may then be used again.
-- RETURNS rooms/parts/standing; every outcome is GIVEN_UP or GONE
-- EVENTS  left, released, called, expired, operator
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/standing"

-- Voids the visitor's pass, by adding the visitor to `revoked`, and the ticket, by adding the
-- visitor to `spent`. If the session began in this Redis, the ticket is in `spent` already. Returns
-- false if the pass was void before.
local function void_tokens(visitor, started)
  if redis_call('ZADD', REVOKED, 'NX', int(now), visitor) == 0 then return false end
  if not started or tonumber(started) < stats.born then
    redis_call('ZADD', SPENT, 'NX', int(now), visitor)
  end
  return true
end

-- Returns whether the visitor had a place or a session.
local function leave(visitor, why, grant)
  local is_unseen, started = why == 'unseen', redis_call('ZSCORE', ADMITTED, visitor)
  if is_unseen then why = 'released' end
  if not void_tokens(visitor, is_unseen and now or started) then return false end
  local ahead = redis_call('ZRANK', WAITING, visitor)
  if ahead then
    local order = tonumber(redis_call('ZSCORE', WAITING, visitor))
    if is_unseen and not is_drawn(order) and order % STEP > 0 then
      redis_call('ZREM', GRANTS, grant)
    end
    redis_call('ZREM', WAITING, visitor)
    forget_size(WAITING)
    redis_call('ZREM', DUE, visitor)
    remove_arrivals({visitor})
    measure_drops(1)
    event(why, visitor, 'waiting', unpack({'position', ahead + 1}, phase == PREQUEUE and 3 or 1))
  else
    local ends = redis_call('ZSCORE', ACTIVE, visitor)
    if not ends then
      if redis_call('ZREM', DUE, visitor) == 0 then return false end
      redis_call('ZREM', RESERVED, visitor)
      event(why, visitor, 'waiting')
    elseif not is_unseen and started then
      -- The slot is free as soon as no replica and no cached verdict accepts the pass any more.
      ends = math.min(math.floor(ends), now + room.release_hold_ms)
      redis_call('ZADD', ACTIVE, int(ends), visitor)
      event(why, visitor, 'session')
    else
      redis_call('ZREM', ACTIVE, visitor)
      forget_size(ACTIVE)
      redis_call('ZREM', ADMITTED, visitor)
      measure_ended_sessions(1, 0)
      event(why, visitor, is_unseen and 'unseen' or 'called')
    end
  end
  return true
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_elapsed()
  local replies = {}
  for i = 6, #ARGV, 3 do
    local reply = make_refusal(GONE, 0)
    if leave(ARGV[i], ARGV[i + 2], ARGV[i + 1]) then
      reply[1] = GIVEN_UP
      log_action(ARGV[i + 2] == 'unseen' and '' or ARGV[i + 1], 'release', ARGV[i], '')
    end
    replies[#replies + 1] = reply
  end
  expire()
  call_next()
  return finish_batch(replies)
end
