-- Ends leases and turns that are over, and drops silent places, at resources without requests.
-- Resources that everybody left keep no key.
-- RETURNS {now, born, whether it recovers, how many resources have more to do}
-- @include "leases/parts/settle"
local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  for _, r in ipairs(resources) do
    settle(r)
  end
  if now - (state.seen or 0) >= 1000 then state.seen = now end
  local reply = headed(0)
  for _, r in ipairs(resources) do
    if r.held + r.waiting > 0 and r.soonest <= now then reply[4] = reply[4] + 1 end
  end
  return reply
end
