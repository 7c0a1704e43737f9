-- Allows at most `limit` units in any interval of the window's length. Each unit is a member with
-- its time as the score. The members are growing numbers, which begin with 2 if the limit paces.
-- @include "limits/parts/unit_set"
-- The first member. All have the same number of digits, because Redis sorts members of one score as
-- strings.
local FIRST = 100000000000000
local sliding_window = {}
-- The time between two removals of old units, less than the window.
local step
local is_due -- whether to remove old units now

function sliding_window.load()
  load_top()
  step, is_due = math.min(1000000, LENGTH / 4), false
  return top_score, top and top >= 2 * FIRST
end

function sliding_window.find(cost, limit, base)
  return find_units(cost, limit, base, LENGTH)
end

function sliding_window.take(at, after, cost)
  is_due = is_due or math.floor(at / step) > math.floor(top_score / step)
  local is_behind = top and top >= 2 * FIRST and at == top_score
  top = (free or is_behind) and 2 * FIRST + (top or 0) % FIRST or FIRST + (top or 0) % FIRST
  for n = 1, cost do add_unit(int(at), int(top + n)) end
  top, top_score = top + cost, at
  units_in_use, counted_after = after, at - LENGTH
end

function sliding_window.save(ends)
  flush_units()
  if is_due then
    redis_call('ZREMRANGEBYSCORE', state, '-inf', int(now - LENGTH))
    redis_call('PEXPIRE', state, int(life_ms(ends)))
  end
end
