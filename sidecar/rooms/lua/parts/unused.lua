-- Unused places and slots: a place without a poll (`due`), a slot for which no cookie was shown
-- (`active`). A client without cookies takes any number of them and uses none. Half a millisecond
-- in the score marks them.
local UNUSED = 0.5
local function is_unused(score)
  return score % 1 == UNUSED
end
