-- Computes orders. Each member of a queue gets an order when it joins. The member with the smallest
-- order is next.
--   order = arrival - head start - band * BAND + number of the class
-- arrival: the time in µs, but greater than every earlier arrival; in a room with random order, a
-- random number below DRAWS. Arrivals are multiples of STEP, so that the number of the class (1 to
-- 7) never makes two orders equal. All orders of a smaller band come after those of a greater band.
-- Doubles represent orders exactly until 2041, when arrivals reach BAND; without sub-queues and
-- events until 2255, when arrivals reach 2^53.
local STEP, BAND = 8, 2 ^ 51

-- Returns the arrival of a member that joins now, greater than the last arrival.
local function next_arrival_after(last, now_us)
  local next_us = math.max(now_us, (math.floor((last or 0) / STEP) + 1) * STEP)
  return math.ceil(next_us / STEP) * STEP
end

-- Returns an order by the formula above. For a member without a class, the last three arguments are
-- 0.
local function compose_order(arrival, head_start_us, band, number)
  return arrival - head_start_us - band * BAND + number
end
