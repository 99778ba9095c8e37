-- Counters of a namespace: numbers that are drawn, the two times, and before when nothing is due.
-- include lib/writing.lua
-- exports step, NEVER

local step = {} -- what every operation uses; other parts add to it
local NEVER = 2 ^ 53
local NOTHING = {}
local TOKEN = '%0' .. TOKEN_DIGITS .. 'd'
-- Each with what it is at first. They are stored in this order, which `store/redis/reading.py` knows, too.
local COUNTERS = {
  { 'newest_event', 0 }, { 'newest_signal', 0 }, { 'oldest_event', 1 }, { 'next_sequence', FIRST_SEQUENCE },
  { 'last_token', 0 }, { 'last_job', 0 }, { 'oldest_job', 1 }, { 'last_audit', 0 }, { 'forget_from', 0 },
  { 'noted_at', false }, { 'lease_ms', DEFAULT_LEASE_MS }, { 'uncounted_ms', 0 }, { 'fallen_ms', 0 },
  { 'renewed_since_gap', true }, { 'token_at_gap', 0 }, { 'waiting_callers', 0 }, { 'soonest_due', NEVER },
  { 'soonest_spans', NEVER }, { 'soonest_closed', NEVER }, { 'soonest_expiry', NEVER },
  { 'soonest_ticket_expiry', NEVER }, { 'in_line', 0 }, { 'turns', 0 }, { 'turn_after', DEFAULT_TURN_AFTER },
  { 'kept', 0 }, { 'soonest_start_by', NEVER }, { 'soonest_steady_start_by', NEVER }, { 'suspects', 0 },
}
local FIRST_STATE = #COUNTERS + 1
for i = 1, #STATES do
  COUNTERS[#COUNTERS + 1] = { 'state:' .. STATES[i], 0 } -- how many jobs are in it
end
-- The outbox of the history: at how many records it is full (0 is off), how many were ever added and recorded, the id of
-- the newest, how many were dropped; what a full outbox does, and whether payloads and results are added.
local OF_THE_OUTBOX = {
  { 'outbox_max', 0 }, { 'outbox_added', 0 }, { 'outbox_recorded', 0 }, { 'outbox_newest', 0 }, { 'outbox_dropped', 0 },
  { 'outbox_drops', false }, { 'outbox_payloads', false },
}
for i = 1, #OF_THE_OUTBOX do
  COUNTERS[#COUNTERS + 1] = OF_THE_OUTBOX[i]
end
local place_of = {}
for place = 1, #COUNTERS do
  place_of[COUNTERS[place][1]] = place
end
local counters, counters_changed, in_line_before

at_the_beginning[#at_the_beginning + 1] = function()
  counters, counters_changed, step.comes_sooner = nil, false, false
end

local function count_states()
  -- Once, in a namespace that was filled before states were counted.
  local cursor = '0'
  repeat
    local found = call('HSCAN', key('jobs'), cursor, 'COUNT', 1000)
    cursor = found[1]
    for i = 2, #found[2], 2 do
      local place = place_of['state:' .. cmsgpack.unpack(found[2][i]).state]
      counters[place] = counters[place] + 1
    end
  until cursor == '0'
end

local function read_counters()
  local stored = call('GET', key('counters'))
  counters = stored and cmsgpack.unpack(stored) or {}
  local known = #counters
  for place = known + 1, #COUNTERS do
    counters[place] = COUNTERS[place][2]
  end
  if stored and known < FIRST_STATE then
    count_states()
  end
  in_line_before = counters[place_of.in_line]
end

function step.depth_if_changed()
  -- How many jobs are in line, if that is another number than before the step.
  local depth = counters and counters[place_of.in_line]
  return depth ~= in_line_before and depth or nil
end

function step.counter(name)
  if not counters then
    read_counters()
  end
  return counters[place_of[name]]
end

function step.set_counter(name, value)
  if not counters then
    read_counters()
  end
  counters[place_of[name]] = value
  counters_changed = true
end

function step.count_state(state, change)
  local name = 'state:' .. state
  step.set_counter(name, step.counter(name) + change)
end

local function draw(name)
  local value = step.counter(name)
  step.set_counter(name, value + 1)
  return value
end

function step.draw_sequence()
  return draw('next_sequence')
end

-- Tokens are stored with leading zeros, so that they sort as text; people see them without.
function step.draw_token()
  local token = math.max(step.counter('last_token') + 1, step.now * 1000)
  step.set_counter('last_token', token)
  return string.format(TOKEN, token)
end

function step.plain(token)
  return (token:gsub('^0+', ''))
end

-- Numbers of jobs have twelve digits, so that they sort as text.
function step.draw_job_number()
  local number = step.counter('last_job') + 1
  step.set_counter('last_job', number)
  return string.format('%012d', number)
end

function step.write_counters()
  if counters_changed then
    call('SET', key('counters'), cmsgpack.pack(counters))
  end
end

-- --- what comes due -------------------------------------------------------------------------------------------

-- `store/__init__.py` has the rules of both times. Both are the store's clock less one number, so a gap or a fall of
-- the clock moves all ends without rewriting them.

function step.counted_now()
  -- The present time on the scale on which leases and tickets end.
  return step.now - step.counter('uncounted_ms')
end

function step.steady_now()
  -- The present time on the scale on which spans end.
  return step.now - step.counter('fallen_ms')
end

-- Indexes by time. A counter of each is a time before which nothing in it is due, so most steps need not read it.
local SOONEST = {
  due = 'soonest_due', spans = 'soonest_spans', closed = 'soonest_closed', expiry = 'soonest_expiry',
  ticket_expiry = 'soonest_ticket_expiry', start_by = 'soonest_start_by', steady_start_by = 'soonest_steady_start_by',
}
-- The difference between their scale and the store's clock; `due` and `start_by` use the clock itself.
local DIFFERENCE = {
  spans = 'fallen_ms', closed = 'fallen_ms', expiry = 'uncounted_ms', ticket_expiry = 'uncounted_ms',
  steady_start_by = 'fallen_ms',
}

local function difference(index)
  return DIFFERENCE[index] and step.counter(DIFFERENCE[index]) or 0
end

function step.comes(index, at, member)
  later('ZADD', key(index), at, member)
  if at < step.soonest(index) then
    step.set_counter(SOONEST[index], at)
    -- Sooner than anything that idle workers know of. No job can start because a caller's ticket ends.
    step.comes_sooner = step.comes_sooner or index ~= 'ticket_expiry'
  end
end

function step.soonest(index)
  return step.counter(SOONEST[index])
end

function step.soonest_on_the_clock(index)
  return step.soonest(index) + difference(index)
end

function step.due_with_times(index)
  -- The due members of this index, one more than a portion, each followed by its time.
  local now = step.now - difference(index)
  if now < step.soonest(index) then
    return NOTHING
  end
  local found = call(
    'ZRANGEBYSCORE', written(key(index)), '-inf', now, 'WITHSCORES', 'LIMIT', 0, step.bounds.portion + 1
  )
  if #found == 0 then
    local first = call('ZRANGE', key(index), 0, 0, 'WITHSCORES')
    step.set_counter(SOONEST[index], tonumber(first[2]) or NEVER)
  end
  return found
end

function step.due(index)
  -- One portion of the due members of this index, and whether that was all.
  local portion, found = step.bounds.portion, {}
  for i, text in ipairs(step.due_with_times(index)) do
    if i % 2 == 1 then
      found[#found + 1] = text
    end
  end
  local all = #found <= portion
  found[portion + 1] = nil
  return found, all
end
