-- wrk sends the requests of a file, and says what became of them in one line of JSON.
--   wrk … -s requests.lua URL -- FILE
-- A line of the file is METHOD, path and any headers ("Name: value"), with tabs between.
-- The lines are sent in turn, again from the first. But if an empty line follows, each line above
-- it is a visitor's page, and below it stand the pictures, which the visitor asks for next. A
-- visitor keeps cookies, and has one request under way. Below another empty line may stand what
-- comes in turn: a request of nobody inside, or - for the next of a visitor.
local requests, pictures, turns, at, turn = {}, {}, {}, 0, 0
local threads = {}
ok = 0

function setup(thread)
  threads[#threads + 1] = thread
end

local function read_lines(path)
  local into = requests
  local after = { [requests] = pictures, [pictures] = turns }
  for line in io.lines(path) do
    local fields, headers = {}, {}
    for field in line:gmatch('[^\t]+') do fields[#fields + 1] = field end
    for i = 3, #fields do
      local name, value = fields[i]:match('^([^:]+): (.*)$')
      headers[name] = value
    end
    if #fields == 0 then
      into = after[into]
    else
      into[#into + 1] = { fields[1], fields[2], headers }
    end
  end
end

local function format_all(lines)
  for i, line in ipairs(lines) do
    lines[i] = line[1] ~= '-' and wrk.format(unpack(line))
  end
end

-- Visitors between two requests of theirs, the longest idle first.
local idle, first, last = {}, 1, 0
local visitors = {}

local function begin_visit()
  for _ = 1, #requests do -- who is in the middle of a visit is skipped once
    at = at % #requests + 1
    local known = visitors[at]
    if not (known and known.is_asking) then break end
    known.is_asking = false -- wrk throws its first request away, and some get no response
  end
  local visitor = visitors[at]
  if not visitor then
    local method, path, headers = unpack(requests[at])
    local jar = {}
    for name, value in (headers.Cookie or ''):gmatch('([^=;%s]+)=([^;]*)') do jar[name] = value end
    headers.Cookie = nil
    -- Without the empty line at its end: cookies follow.
    visitor = { page = wrk.format(method, path, headers):sub(1, -3), jar = jar, visits = 0 }
    visitors[at] = visitor
  end
  visitor.asked, visitor.is_asking, visitor.tail = 0, true, nil
  visitor.visits = visitor.visits + 1
  visitor.name = at .. '.' .. visitor.visits
  return visitor
end

local function write_cookies(visitor)
  local pairs_of = {}
  for name, value in pairs(visitor.jar) do pairs_of[#pairs_of + 1] = name .. '=' .. value end
  visitor.tail = 'X-Visitor: ' .. visitor.name .. '\r\nCookie: ' .. table.concat(pairs_of, '; ') .. '\r\n\r\n'
end

local function next_of_visit()
  local visitor = idle[first]
  if visitor then
    idle[first] = nil
    first = first + 1
  else
    visitor = begin_visit()
  end
  if not visitor.tail then write_cookies(visitor) end
  return (visitor.asked == 0 and visitor.page or pictures[visitor.asked]) .. visitor.tail
end

local function next_in_turn()
  turn = turn % #turns + 1
  return turns[turn] or next_of_visit()
end

-- The site says who asked, in which visit, because a connection does not. The response to a visit
-- that was given up is for nobody.
local function end_of_request(status, headers)
  local name = headers['X-Visitor']
  local visitor = name and visitors[tonumber(name:match('^%d+'))]
  if not visitor or visitor.name ~= name or not visitor.is_asking then return end
  ok = ok + 1
  local given = headers['Set-Cookie']
  if given then
    local name, value = given:match('^([^=]+)=([^;]*)')
    visitor.jar[name] = value
    visitor.tail = nil
  end
  visitor.asked = visitor.asked + 1
  visitor.is_asking = visitor.asked <= #pictures
  if visitor.is_asking then
    last = last + 1
    idle[last] = visitor
  end
end

function init(args)
  read_lines(args[1])
  if #pictures > 0 then
    for i, picture in ipairs(pictures) do pictures[i] = wrk.format(unpack(picture)):sub(1, -3) end
    format_all(turns)
    request, response = #turns > 0 and next_in_turn or next_of_visit, end_of_request
    return
  end
  format_all(requests)
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local counted = 0
  for _, thread in ipairs(threads) do counted = counted + thread:get('ok') end
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "seconds": %.6f, "bytes": %d, "p50_ms": %.3f, "p90_ms": %.3f, '
      .. '"p99_ms": %.3f, "refused": %d, "broken": %d, "ok": %d}\n',
    summary.requests, summary.duration / 1e6, summary.bytes, latency:percentile(50) / 1e3,
    latency:percentile(90) / 1e3, latency:percentile(99) / 1e3, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout, counted))
end
