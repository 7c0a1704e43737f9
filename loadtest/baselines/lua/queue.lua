-- What the gate (control.lua) and the poll (status.lua) share.
--
-- queue:zset               zset: waiting visitor -> when they came, s
-- queue:heartbeat:zset     zset: waiting visitor -> their last poll, s
-- queue:authorized:set     set: admitted visitors
-- queue:active:count       how many are inside
-- queue:config:max_active  how many may be
local redis = require "nginx.redis"

local ngx = ngx
local var, header = ngx.var, ngx.header
local tonumber = tonumber

local LINE, AUTHORIZED = "queue:zset", "queue:authorized:set"
local ACTIVE, MAX_ACTIVE = "queue:active:count", "queue:config:max_active"
local COUNTER_LIFE_S = 3600
local PASS = "queue_authorized=1; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax"

-- `address` of Redis is set when nginx starts.
local queue = { LINE = LINE, AUTHORIZED = AUTHORIZED, HEARTBEATS = "queue:heartbeat:zset" }

local function give_up(err)
  ngx.log(ngx.ERR, "Redis: ", err)
  return ngx.exit(ngx.HTTP_SERVICE_UNAVAILABLE)
end
queue.give_up = give_up

-- A connection of the pool; `set_keepalive` puts it back.
function queue.connect()
  local connection = redis:new()
  local connected, err = connection:connect(queue.address)
  if not connected then return give_up(err) end
  return connection
end

-- The replies of what was pipelined.
function queue.commit(connection)
  local replies, err = connection:commit_pipeline()
  if not replies then return give_up(err) end
  return replies
end

-- The visitor's id; for one without, a new one and the cookie that makes it theirs.
function queue.visitor()
  local id = var.cookie_queue_id
  if id and #id == 32 then return id end
  id = var.request_id
  return id, "queue_id=" .. id .. "; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax"
end

-- Adds to a pipeline what `free` reads.
function queue.ask_counters(connection)
  connection:get(ACTIVE)
  connection:get(MAX_ACTIVE)
end

function queue.free(active, max_active)
  return (tonumber(max_active) or 0) - (tonumber(active) or 0)
end

function queue.admit(connection, id)
  connection:init_pipeline(4)
  connection:incr(ACTIVE)
  connection:expire(ACTIVE, COUNTER_LIFE_S)
  connection:sadd(AUTHORIZED, id)
  connection:zrem(LINE, id)
  queue.commit(connection)
end

-- Sets the pass, and the cookie of a new id if there is one.
function queue.give_pass(id_cookie)
  header["Set-Cookie"] = id_cookie and { id_cookie, PASS } or PASS
end

return queue
