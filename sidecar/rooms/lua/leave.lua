-- Releases places and sessions. Idempotent.
-- ARGV    from 6 on, for each visitor: id, the operator or '', and 'left' (by the visitor),
--         'released', or 'unseen' (the reply with the place or session never reached the visitor,
--         so no pass is out and the slot is free at once; instead of the operator comes the id of
--         a grant, which is released if it gave this place its class)
-- RETURNS rooms/parts/standing; every outcome is GONE
-- EVENTS  left, released, called, expired, operator
-- @include "rooms/parts/room"
-- @include "rooms/parts/expire"
-- @include "rooms/parts/call_next"
-- @include "rooms/parts/standing"

-- Voids the visitor's tokens: `revoked` voids the pass, and is kept as long as a pass can be valid;
-- `spent` voids the ticket. A session that began in this Redis has put its ticket into `spent`
-- already, if there was one. Returns false if the visitor was revoked before.
local function void_tokens(visitor, started)
  if redis_call('ZADD', REVOKED, 'NX', int(now), visitor) == 0 then return false end
  if not started or tonumber(started) < stats.born then
    redis_call('ZADD', SPENT, 'NX', int(now), visitor)
  end
  return true
end

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
    resized(WAITING)
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
      resized(ACTIVE)
      redis_call('ZREM', ADMITTED, visitor)
      measure_ends(1, 0)
      event(why, visitor, is_unseen and 'unseen' or 'called')
    end
  end
  return true
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_start()
  local replies = {}
  for i = 6, #ARGV, 3 do
    local reply = refused_reply(GONE, 0)
    if leave(ARGV[i], ARGV[i + 2], ARGV[i + 1]) then
      reply[1] = GIVEN_UP
      log_action(ARGV[i + 2] == 'unseen' and '' or ARGV[i + 1], 'release', ARGV[i], '')
    end
    replies[#replies + 1] = reply
  end
  expire()
  call_next()
  return finish_with(replies)
end
