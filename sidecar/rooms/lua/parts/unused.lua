-- Marks unused places (in `due`: nobody has polled for the place) and unused sessions (in `active`:
-- nobody has sent the pass). A client that keeps no cookies takes many and uses none, so they
-- expire early. The mark is a score with a fraction of half a millisecond.
local UNUSED = 0.5
local function is_unused(score)
  return score % 1 == UNUSED
end
