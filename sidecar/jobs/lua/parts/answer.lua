-- What a claim does and says (jobs/parts/claim).

-- When the first of those who wait can be called, unless somebody active has to end before.
local function claim()
  local opens = opens_at()
  if opens > now then return redis_call('ZCARD', LINE) > 0 and opens or math.huge end
  if room <= 0 then return math.huge end
  local last = math.min(BOUND, room, wanted + AHEAD) - 1
  local rows = redis_call('ZRANGE', LINE, 0, last, 'WITHSCORES')
  if #rows == 0 then return math.huge end
  local heads = {}
  for i = 1, #rows, 2 do heads[#heads + 1] = rows[i] end
  open_rate()
  local taken, at = call(heads, rows, redis_call('SMISMEMBER', ONLINE, unpack(heads)))
  if at then return at end
  return taken < room and redis_call('ZCARD', LINE) > 0 and now or math.huge
end

local function next_moment()
  local moment = claim()
  if is_more then return now end
  return math.min(moment, first_of(ACTIVE), first_of(LATER))
end

local moment = next_moment()
local born = 0
if not target.ready then
  redis_call('HSETNX', STATE, 'born', int(now))
  born = tonumber(redis_call('HGET', STATE, 'born'))
end
finish_state()
local answer = {now, target.ready and 1 or 0, moment < math.huge and moment or -1, born}
for _, word in ipairs(replies) do answer[#answer + 1] = word end
return answer
