-- Who is next: one number, given once; smaller is sooner.
--   order = arrival - head start - band * BAND + number of the class
-- arrival: now in µs, later than any before, or in a random room a number drawn below DRAWS.
-- Arrivals are multiples of STEP, so that the class's number (1 to 7) keeps two orders apart.
-- All of it is exact in a double: until 2041, and without lines and events until 2255, when
-- arrivals reach BAND and 2^53.
local STEP, BAND = 8, 2 ^ 51

local function arrive_after(last, now_us)
  local next_us = math.max(now_us, (math.floor((last or 0) / STEP) + 1) * STEP)
  return math.ceil(next_us / STEP) * STEP
end

-- Without a class the last three are 0.
local function order_by(arrival, head_start_us, band, number)
  return arrival - head_start_us - band * BAND + number
end
