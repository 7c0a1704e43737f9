-- wrk sends the requests of a file in turn, again from its start, and says what became of
-- them in one line of JSON.
--   wrk … -s requests.lua URL -- FILE [count]
-- A line of the file is METHOD, path and any headers ("Name: value"), with tabs between.
-- count: also count the answers with status 200; it costs wrk a little.
local requests, at = {}, 0
local threads = {}
ok = 0

function setup(thread)
  threads[#threads + 1] = thread
end

function init(args)
  for line in io.lines(args[1]) do
    local fields, headers = {}, {}
    for field in line:gmatch('[^\t]+') do fields[#fields + 1] = field end
    for i = 3, #fields do
      local name, value = fields[i]:match('^([^:]+): (.*)$')
      headers[name] = value
    end
    requests[#requests + 1] = wrk.format(fields[1], fields[2], headers)
  end
  if args[2] == 'count' then
    response = function(status)
      if status == 200 then ok = ok + 1 end
    end
  end
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
