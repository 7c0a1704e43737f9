-- Releases leases, turns and places in the queue. Idempotent.
-- ARGV    after the names, for each: number of the resource, holder, fencing number of the lease
--         or '' for whatever the holder has
-- RETURNS {now, born, whether it recovers, a row as in parts/people for each: GRANTED if
--         something was released}
-- @include "leases/parts/people"

local function answer(r, p, fence)
  if fence ~= '' then
    if not p.fence then return refused(GONE) end
    if p.fence ~= tonumber(fence) then return refused(STALE) end
  end
  if p.ends then
    end_hold(r, p)
  elseif p.order then
    leave_queue(r, p)
  else
    return refused(GONE)
  end
  return refused(GRANTED)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  local replies = answer_all(ARGV, 3, look_up, answer)
  for _, r in ipairs(resources) do
    settle(r)
  end
  return headed(replies)
end
