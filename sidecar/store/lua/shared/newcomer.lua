-- @include "shared/standing"
-- @include "shared/addresses"
-- Newcomers, after the call.

-- How many wait and are inside, and the last order in line, as the newcomers change them.
local waiting, active = redis_call('ZCARD', WAITING), redis_call('ZCARD', ACTIVE)
local last = tonumber(redis_call('ZRANGE', WAITING, -1, -1, 'WITHSCORES')[2] or -1)

-- How many are ahead of a newcomer who has just taken this place.
local function newcomer_rank(visitor, order)
  waiting = waiting + 1
  if order > last then
    last = order
    return waiting - 1
  end
  flush()
  return redis_call('ZRANK', WAITING, visitor)
end

-- Nobody holds a place for longer than claim_window without a poll: ask in half of it.
local function wait_here(order, ahead, draw)
  local wait = wait_ms(ahead)
  local refresh = math.min(refresh_ms(ahead, wait, draw), math.floor(claim_ms / 2))
  return waiting_reply(int(order), ahead, refresh, wait, 0)
end

-- Whoever waits after a call could not be called, so a newcomer is admitted at once only
-- where nobody does.
local function enter(visitor, draw, address)
  if is_hoarding(address) then
    count('refused_address')
    return refused_reply(FULL, refresh_ms(waiting, wait_ms(waiting), draw))
  end
  local order = next_order(draw)
  if waiting == 0 and not room.queue_all and not is_recovering()
    and active < room.total_active_users and rate_tokens() >= 1 then
    spend_token()
    active = active + 1
    note_address(address, visitor)
    event('admitted', visitor, 'at_once', 'order', int(order))
    return admitted_reply(order, now, admit(visitor, now))
  end
  if room.queueing_method == 'reject' then
    count('rejected')
    return refused_reply(REJECTED, refresh_ms(0, nil, draw))
  end
  if room.max_waiting and waiting >= room.max_waiting then
    count('refused_full')
    return refused_reply(FULL, refresh_ms(waiting, wait_ms(waiting), draw))
  end
  put(WAITING, int(order), visitor)
  local ahead = newcomer_rank(visitor, order)
  event('joined', visitor, 'new', 'order', int(order), 'position', ahead + 1)
  note_address(address, visitor)
  put(DUE, unpolled_score(), visitor)
  return wait_here(order, ahead, draw)
end
