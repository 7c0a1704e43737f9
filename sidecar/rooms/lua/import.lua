-- Imports a room from another Redis, in each call some items of one key. Idempotent: an order that
-- exists here stays, a session ends at the later of the two ends, and a visitor who has left in one
-- Redis has left. Nobody is called during the import and for one recovery window after it.
-- ARGV    6 what to import: begin, stats, or a sorted set's name
--         7 when the other Redis was read, ms
--         8 the operator
--         from 9 on, for each item:
--         begin: the queue's epoch
--         stats: name, value
--         active: visitor, when the session ends, when the session began or ''
--         waiting: visitor, order, score in `due`
--         other sets: member, score
-- RETURNS {now, how many members were added; for begin: 0, or -1 if this queue has a later epoch}
-- EVENTS  operator
-- @include "rooms/parts/room"
-- @include "rooms/parts/measure"
-- @include "rooms/parts/heartbeat_due"
-- Each function of `importers` imports one item of the kind that names the function. It returns how
-- many members were added.
local read_ms, operator, importers = nil, nil, {}
function importers.begin(imported)
  if tonumber(imported) < epoch and size(WAITING) + size(ACTIVE) > 0 then return -1 end
  redis_call('HSET', CONFIG, 'epoch', imported, 'queue_all', 'true', 'revision', revision + 1)
  log_action(operator, 'import', '', 'began')
  return 0
end

function importers.stats(name, value)
  local own, imported = stats[name], tonumber(value)
  if name == 'last_order' or name == 'last_end' then stats[name] = math.max(own or 0, imported)
  elseif name == 'born' then stats.born = math.min(own, imported) -- else its data would seem lost
  elseif name == 'drawn_from' and imported > (own or 0) then
    redis_call('UNLINK', DRAWN) -- it has the places of an earlier pre-queue
    stats.drawn_from = imported
  elseif IS_NUMBER[name] then
    stats[name] = own or imported
  elseif imported > tonumber(redis_call('HGET', STATS, name) or 0) then
    redis_call('HSET', STATS, name, int(imported))
  end
  return 0
end
local function leave_queue(visitor)
  for _, key in ipairs({WAITING, DUE, ARRIVALS}) do redis_call('ZREM', key, visitor) end
end
local function add_if_new(key, ...) return redis_call('ZADD', key, 'NX', ...) end
function importers.addresses(member, score) return add_if_new(ADDRESSES, score, member) end
function importers.drawn(member, score) return add_if_new(DRAWN, score, member) end
function importers.grants(member, score) return add_if_new(GRANTS, score, member) end
function importers.spent(visitor, spent_ms)
  leave_queue(visitor)
  return add_if_new(SPENT, spent_ms, visitor)
end
function importers.revoked(visitor, revoked_ms)
  leave_queue(visitor)
  local is_new, ends = add_if_new(REVOKED, revoked_ms, visitor), now + room.release_hold_ms
  if is_new == 1 then redis_call('ZADD', ACTIVE, 'XX', 'LT', int(ends), visitor) end
  return is_new
end
function importers.active(visitor, ends, started)
  local revoked_ms, ends = tonumber(redis_call('ZSCORE', REVOKED, visitor) or nil), tonumber(ends)
  if revoked_ms then ends = math.min(ends, now + room.release_hold_ms) end
  if ends <= now or (revoked_ms and revoked_ms > read_ms) then return 0 end
  leave_queue(visitor)
  if started ~= '' then add_if_new(ADMITTED, started, visitor) end
  return redis_call('ZADD', ACTIVE, 'GT', ends, visitor)
end
function importers.waiting(visitor, order, due)
  if redis_call('ZSCORE', ACTIVE, visitor) or redis_call('ZSCORE', REVOKED, visitor)
    or redis_call('ZSCORE', SPENT, visitor) then return 0 end
  due = tonumber(due)
  -- The time that the import takes does not count as silence.
  local score = int(math.max(due, math.min(now, now - read_ms + due)))
  redis_call('ZADD', DUE, 'GT', is_unused(due) and make_unpolled_score() or score, visitor)
  return add_if_new(WAITING, order, visitor)
end
local function run(KEYS, ARGV)
  begin(KEYS, ARGV)
  measure_elapsed()
  local kind, added = ARGV[6], 0
  read_ms, operator = tonumber(ARGV[7]), ARGV[8]
  local step = (kind == 'active' or kind == 'waiting') and 3 or 2
  for i = 9, #ARGV, step do added = added + importers[kind](ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
  -- `near`: the replicas of the other Redis have told visitors near the head their poll intervals.
  if added >= 0 then stats.recovery, stats.near = now, select(2, get_longest_intervals()) end
  finish()
  return {now, added}
end
