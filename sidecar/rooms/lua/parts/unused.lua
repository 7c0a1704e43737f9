-- Marks unused places and slots: a place without a poll (in `due`), and a slot whose pass was not
-- used (in `active`). A client without cookies takes many of them and uses none. A score with a
-- fraction of half a millisecond is the mark.
local UNUSED = 0.5
local function is_unused(score)
  return score % 1 == UNUSED
end
