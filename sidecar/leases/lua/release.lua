-- Releases leases, reservations and places in the queue. Idempotent.
-- ARGV    after the names, for each holder: number of the resource, holder, fencing number of the
--         lease, or '' to release whatever the holder has: lease, reservation or place
-- RETURNS {now, born, whether Redis recovers, for each holder a row as in parts/clients: GRANTED if
--         something was released}
-- @include "leases/parts/clients"

local function answer(resource, client, fence)
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
  local replies = answer_batch(ARGV, 3, read_clients, answer)
  for _, resource in ipairs(resources) do
    update_resource(resource)
  end
  return finish_reply(replies)
end
