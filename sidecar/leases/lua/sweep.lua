-- Ends expired leases and turns, and drops silent holders from queues, at resources that get no
-- requests. A resource without holders and queue keeps no key.
-- RETURNS {now, born, whether Redis recovers, how many resources need another sweep}
-- @include "leases/parts/settle"
local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  for _, r in ipairs(resources) do
    settle(r)
  end
  if now - (state.seen or 0) >= 1000 then state.seen = now end
  local reply = with_header(0)
  for _, r in ipairs(resources) do
    if r.held + r.waiting > 0 and r.soonest <= now then reply[4] = reply[4] + 1 end
  end
  return reply
end
