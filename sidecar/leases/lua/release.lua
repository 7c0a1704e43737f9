-- Releases leases, turns and places in the queue. Idempotent.
-- ARGV    after the names, for each holder: number of the resource, holder, fencing number of the
--         lease, or '' to release the holder's lease, turn or place, whichever it is
-- RETURNS {now, born, whether Redis recovers, for each holder a row as in parts/people: GRANTED if
--         something was released}
-- @include "leases/parts/people"

local function answer(r, p, fence)
  if fence ~= '' then
    if not p.fence then return refused_reply(GONE) end
    if p.fence ~= tonumber(fence) then return refused_reply(STALE) end
  end
  if p.ends then
    end_hold(r, p)
  elseif p.order then
    leave_queue(r, p)
  else
    return refused_reply(GONE)
  end
  return refused_reply(GRANTED)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  local replies = answer_all(ARGV, 3, read_people, answer)
  for _, r in ipairs(resources) do
    settle(r)
  end
  return with_header(replies)
end
