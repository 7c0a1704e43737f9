-- Releases leases, reservations and places in the queue. Idempotent.
-- ARGV    after the resources' names, for each holder: the index of the resource, the holder, the
--         fencing number of the lease, or '' to release any lease, reservation or place of the
--         holder
-- RETURNS {now, born, 1 if Redis recovers, {for each holder a row as in parts/clients}}. The
--         outcome is GRANTED if something was released.
-- @include "leases/parts/clients"

-- Releases what one holder has, and returns the reply.
local function release(resource, client, fence)
  if fence ~= '' then
    if not client.fence then return make_reply(GONE) end
    if client.fence ~= tonumber(fence) then return make_reply(STALE) end
  end
  if client.ends then
    free_slot(resource, client)
  elseif client.order then
    leave_queue(resource, client)
  else
    return make_reply(GONE)
  end
  return make_reply(GRANTED)
end

local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  local replies = handle_batch(ARGV, 3, read_clients, release)
  for _, resource in ipairs(resources) do
    update_resource(resource)
  end
  return finish_reply(replies)
end
