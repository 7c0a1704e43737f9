-- The gate, at every request of the site: lets through, or queues and sends to the page.
local ngx = ngx
local queue = require "queue"

local connection = queue.connect()
if ngx.var.cookie_queue_authorized then
  connection:set_keepalive()
  return queue.give_pass()
end

local id, id_cookie = queue.visitor()
connection:init_pipeline(3)
connection:sismember(queue.AUTHORIZED, id)
queue.ask_counters(connection)
local replies = queue.commit(connection)
local admitted = replies[1] == 1
if not admitted and queue.free(replies[2], replies[3]) > 0 then
  queue.admit(connection, id)
  admitted = true
end
if admitted then
  connection:set_keepalive()
  return queue.give_pass(id_cookie)
end

-- NX: a reload keeps the place.
local _, err = connection:zadd(queue.LINE, "NX", ngx.now(), id)
if err then return queue.give_up(err) end
connection:set_keepalive()
if id_cookie then ngx.header["Set-Cookie"] = id_cookie end
return ngx.redirect("/queue/waiting.html")
