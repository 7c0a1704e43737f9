-- Marks unused places, for which nobody has polled, in `due`, and unused sessions, whose passes
-- nobody has sent, in `active`. A client that keeps no cookies takes many places or sessions and
-- uses none of them, so they expire early. The mark is a score with a fraction of half a
-- millisecond.
local UNUSED = 0.5
local function is_unused(score)
  return score % 1 == UNUSED
end
