-- Ends expired leases and reservations, and removes silent holders from queues, at resources that
-- get no requests. A resource without holders and queue keeps no key.
-- RETURNS {now, born, whether Redis recovers, how many resources need another sweep}
-- @include "leases/parts/expiry_and_calls"
local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  for _, resource in ipairs(resources) do
    update_resource(resource)
  end
  if now - (state.seen or 0) >= 1000 then state.seen = now end
  local reply = finish_reply(0)
  for _, resource in ipairs(resources) do
    local is_used = resource.held + resource.waiting > 0
    if is_used and resource.next_expiry <= now then reply[4] = reply[4] + 1 end
  end
  return reply
end
