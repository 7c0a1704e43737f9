-- @include "rooms/parts/sub_queues"
-- Computes the position that a visitor is shown, and how many other visitors are called before that
-- visitor. The two numbers differ only if the room has sub-queues or shows positions by arrival.

-- Stores the arrival of a visitor in `arrivals`, with the lowest order of the sub-queue added.
local function store_arrival(visitor, arrival, order)
  local line = sub_queue_of(order)
  stats.shown_lines = #lines
  put(ARRIVALS, int(line and arrival + order_range(line) or arrival), visitor)
end

-- Adds a place to `waiting` and, if positions are shown by arrival, to `arrivals`.
local function add_place(visitor, order, arrival)
  put(WAITING, int(order), visitor)
  local line = cache.lengths and sub_queue_of(order)
  if line then cache.lengths[line] = cache.lengths[line] + 1 end
  if is_by_arrival and not is_drawn(order) then store_arrival(visitor, arrival, order) end
end

-- Deletes `arrivals` if it is not used any more, or if its scores are wrong because the number of
-- sub-queues was changed. Then each poll stores the visitor's arrival again.
local function check_arrivals()
  if not is_by_arrival or (stats.shown_lines or #lines) ~= #lines then
    redis_call('UNLINK', ARRIVALS)
  end
end

-- Removes visitors who have left `waiting` from `arrivals`.
local function remove_arrivals(visitors)
  if is_by_arrival and #visitors > 0 then redis_call('ZREM', ARRIVALS, unpack(visitors)) end
end

-- Returns for a visitor with this order and rank in `waiting`:
--   how many visitors are called before
--   how many visitors are ahead in the visitor's sub-queue, or in `waiting` if there is none
--   the number of the sub-queue, from 1; nil if there is none
--   the total length of the sub-queues before it; nil if there is none
local function count_calls(order, rank)
  local line, before_line = sub_queue_of(order), 0
  if not line then return rank, rank end
  for n = 1, line - 1 do before_line = before_line + get_sub_queue_lengths()[n] end
  local ahead = rank - before_line - get_drawn_length()
  return count_calls_before(line, ahead, rank), ahead, line, before_line
end

-- Returns for a visitor with this rank in `waiting`:
--   the number of visitors to show as ahead of this one
--   the number of visitors who will be called before this one
--   the index of the visitor's sub-queue, from 0; nil if there is none
--   the length of that sub-queue; nil if there is none
local function find_shown_position(visitor, order, rank, joined)
  if room.is_plain then return rank, rank end
  order = tonumber(order)
  if is_drawn(order) then return rank, rank end
  flush()
  local calls, ahead, line, before_line = count_calls(order, rank)
  if is_by_arrival then
    local place = redis_call('ZRANK', ARRIVALS, visitor)
    if not place then -- `arrivals` was lost or deleted since the visitor joined
      store_arrival(visitor, (joined or now) * 1000, order)
      flush()
      place = redis_call('ZRANK', ARRIVALS, visitor)
    end
    local is_complete = cache.has_all_arrivals
    if not is_complete then
      is_complete = redis_call('ZCARD', ARRIVALS) >= size(WAITING) - get_drawn_length()
      cache.has_all_arrivals = is_complete
      if line and not is_complete then before_line = count_below(ARRIVALS, order_range(line)) end
    end
    place = line and place - before_line or place + get_drawn_length()
    -- Until the arrivals of all waiting visitors are stored, show the larger of the two numbers, so
    -- that no position is too low.
    ahead = is_complete and place or math.max(place, ahead)
  end
  return ahead, calls, line and line - 1, line and get_sub_queue_lengths()[line]
end
