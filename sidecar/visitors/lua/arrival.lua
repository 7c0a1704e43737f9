-- The order decides who is next. It is given once; the smallest is next.
--   order = arrival - head start - band * BAND + number of the class
-- arrival: now in µs, and later than any before; in a random room a number drawn below DRAWS.
-- Arrivals are multiples of STEP, so that the class's number (1 to 7) keeps two orders apart.
-- Orders are exact in a double until 2041, when arrivals reach BAND; without sub-queues and events
-- until 2255, when they reach 2^53.
local STEP, BAND = 8, 2 ^ 51

local function arrive_after(last, now_us)
  local next_us = math.max(now_us, (math.floor((last or 0) / STEP) + 1) * STEP)
  return math.ceil(next_us / STEP) * STEP
end

-- Without a class the last three arguments are 0.
local function order_by(arrival, head_start_us, band, number)
  return arrival - head_start_us - band * BAND + number
end
