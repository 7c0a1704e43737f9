-- Updates resources that get no requests: ends expired leases and reservations, removes silent
-- holders from the queues, and calls the next holders. Deletes the keys of a resource that nobody
-- holds or waits for.
-- RETURNS {now, born, 1 if Redis recovers, how many resources need another sweep}
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
