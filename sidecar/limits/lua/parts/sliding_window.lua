-- Allows at most `limit` units of cost in any interval of the window's length. Each unit is a
-- member of a sorted set, with its time as the score. Members are ascending numbers, which begin
-- with 2 if the limit paces, else with 1.
-- @include "limits/parts/unit_set"
-- The first member. All members have the same number of digits, because Redis sorts members with
-- equal scores as strings.
local FIRST_MEMBER = 100000000000000
local sliding_window = {}
local removal_interval -- the time between two removals of old units, µs
local is_removal_due -- whether to remove old units now

function sliding_window.load()
  load_top()
  removal_interval, is_removal_due = math.min(1000000, LENGTH / 4), false
  return top_score, top and top >= 2 * FIRST_MEMBER
end

function sliding_window.find(cost, limit, base)
  return find_time_for_units(cost, limit, base, LENGTH)
end

function sliding_window.take(at, after, cost)
  is_removal_due = is_removal_due
    or math.floor(at / removal_interval) > math.floor(top_score / removal_interval)
  local is_behind = top and top >= 2 * FIRST_MEMBER and at == top_score
  top = ((free or is_behind) and 2 or 1) * FIRST_MEMBER + (top or 0) % FIRST_MEMBER
  for n = 1, cost do add_unit(int(at), int(top + n)) end
  top, top_score = top + cost, at
  units_in_use, counted_after = after, at - LENGTH
end

function sliding_window.save(ends)
  flush_units()
  if is_removal_due then
    redis_call('ZREMRANGEBYSCORE', state, '-inf', int(now - LENGTH))
    redis_call('PEXPIRE', state, int(get_life_ms(ends)))
  end
end
