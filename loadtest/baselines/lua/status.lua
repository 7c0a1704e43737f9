-- The poll of who waits: a heartbeat, and the way in when a slot is free.
-- Answers state (waiting, admitted, absent), position (null but while waiting), waiting.
local ngx = ngx
local queue = require "queue"

local WINDOW_S, POLLS = 60, 30

local now = ngx.now()
local id, id_cookie = queue.visitor()
local connection = queue.connect()

local polls_key = "rate_limit:" .. id .. ":" .. math.floor(now / WINDOW_S)
local polls, err = connection:get(polls_key)
if err then return queue.give_up(err) end
if (tonumber(polls) or 0) >= POLLS then
  connection:set_keepalive()
  ngx.header["Retry-After"] = math.ceil(WINDOW_S - now % WINDOW_S)
  return ngx.exit(ngx.HTTP_TOO_MANY_REQUESTS)
end

connection:init_pipeline(7)
connection:incr(polls_key)
connection:expire(polls_key, WINDOW_S)
connection:zadd(queue.HEARTBEATS, now, id)
connection:zrank(queue.LINE, id)
connection:zcard(queue.LINE)
queue.ask_counters(connection)
local replies = queue.commit(connection)

local rank, waiting = tonumber(replies[4]), tonumber(replies[5])
local state, position = "absent", "null"
if rank and rank < queue.free(replies[6], replies[7]) then
  queue.admit(connection, id)
  queue.give_pass(id_cookie)
  state, waiting = "admitted", waiting - 1
else
  if rank then state, position = "waiting", rank + 1 end
  if id_cookie then ngx.header["Set-Cookie"] = id_cookie end
end
connection:set_keepalive()

local body = '{"state":"' .. state .. '","position":' .. position .. ',"waiting":' .. waiting .. "}"
ngx.header["Cache-Control"] = "no-store"
ngx.header["Content-Length"] = #body
ngx.print(body)
