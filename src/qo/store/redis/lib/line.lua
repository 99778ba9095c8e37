-- Join, enter and leave the line. The rules are in `store/__init__.py`, the order key in `policy/ordering.py`.
-- These functions change the row and every index; the row is written at the end of the step.
-- include lib/lanes.lua
-- include lib/turns.lua
-- exports line

local line = {}

function line.priority_of(order_key)
  return math.floor(order_key / PLACES)
end

function line.place_of(order_key)
  return order_key % PLACES
end

function line.order_key(priority, place)
  return priority * PLACES + place
end

local function drawn_place(boost)
  return (step.draw_sequence() - boost) * CELL - boost
end
line.drawn_place = drawn_place

function line.was_moved(place)
  local value = place % CELL
  return value >= 1 and value <= STEPS_PER_CELL
end

function line.sequence_of(place)
  -- The sequence of a drawn place; nil for a place that a move gave.
  local cell = math.ceil(place / CELL)
  return cell + (cell * CELL - place)
end

function line.note_disturbance(row)
  -- Note that the job is about to get another key, by a person or to make room for a moved job.
  row.undisturbed_key = row.undisturbed_key or row.key
end

function line.note_displacement(row, reason, order_key)
  -- Note that a person is about to give the job this key: `ordering.displacement`.
  line.note_disturbance(row)
  if order_key <= row.undisturbed_key then
    row.displaced = nil
  elseif order_key > row.key then
    row.displaced = reason
  end
  rows.save(row)
end

-- --- how many are in line, and before one --------------------------------------------------------------------

local up_to -- by priority: how many in line have it or a better one, counted once and then kept right
local lone -- the only one in line, where this step has put it there

at_the_beginning[#at_the_beginning + 1] = function()
  up_to, lone = {}, nil
end

function line.length()
  return step.counter('in_line')
end

local function count(order_key, change)
  local priority = line.priority_of(order_key)
  for other, number in pairs(up_to) do
    if priority <= other then
      up_to[other] = number + change
    end
  end
end

local function position_of_newest(order_key, boost)
  -- The position of a job that is about to enter. Its place was drawn last, so in its priority only the jobs that its
  -- boost has passed stand behind it.
  local own = line.priority_of(order_key)
  if line.length() == 0 then
    up_to[own] = 0
    return 1
  elseif not up_to[own] then
    up_to[own] = call('ZCOUNT', written(key('line')), '-inf', below(line.order_key(own + 1, 0)))
  end
  if not boost then
    return up_to[own] + 1
  end
  local behind = call('ZCOUNT', written(key('line')), below(order_key), below(line.order_key(own + 1, 0)))
  return up_to[own] + 1 - behind
end

-- --- where a job stands ---------------------------------------------------------------------------------------

local stands_in -- by number: the lane of a job in line, as far as it was looked up

at_the_beginning[#at_the_beginning + 1] = function()
  stands_in = {}
end

function line.lane_of(row)
  -- The lane that a job in line stands in.
  local lane = stands_in[row.number]
  if not lane then
    lane = lanes.get(tasks.lane_of(row), tasks.source_of(row))
    stands_in[row.number] = lane
  end
  return lane
end

function line.note_lane(number, lane)
  -- The lane is known, because the job was found in it.
  stands_in[number] = lane
end

function line.look_up_lanes(jobs)
  -- Read the lanes of these jobs in one command: those they stand in, or will join. A job in line must be looked up
  -- before its priority or its tier changes, or it could not be found in the lane that it leaves.
  if #jobs < 2 then
    if jobs[1] and jobs[1].state == 'queued' then
      line.lane_of(jobs[1])
    end
    return
  end
  local names, task_of = {}, {}
  for i, row in ipairs(jobs) do
    names[i] = not stands_in[row.number] and tasks.lane_of(row)
    if names[i] then
      task_of[names[i]] = tasks.source_of(row)
    end
  end
  lanes.load(task_of)
  for i, row in ipairs(jobs) do
    if names[i] and row.state == 'queued' then
      stands_in[row.number] = lanes.get(names[i], tasks.source_of(row))
    end
  end
end

local function take_out(name, row)
  if rows.is_new(row) then
    take_back(name, row.number)
  else
    later('ZREM', name, row.number)
  end
end

local function join_lane(row, name)
  local lane = lanes.get(name, tasks.source_of(row))
  stands_in[row.number] = lane
  lanes.enter(lane, row.number, row.key, tasks.groups_of(row, name), GATES + 1)
end

function line.enter(row, order_key)
  row.key = order_key
  row.aged_at = step.now
  join_lane(row, tasks.lane_of(row))
  count(order_key, 1)
  lone = line.length() == 0 and row or nil
  step.set_counter('in_line', line.length() + 1)
  later('ZADD', key('line'), order_key, row.number)
  later('ZADD', key('aged'), step.now, row.number)
  rows.save(row)
end

local function change_key(row, order_key)
  count(row.key, -1)
  count(order_key, 1)
  later('ZADD', key('line'), order_key, row.number)
  row.key = order_key
  if row.turn then
    turns.touch()
  end
  rows.save(row)
end

function line.enter_again(row, order_key)
  -- Enter the line again after the key or the groups of the job have changed.
  local lane, name = line.lane_of(row), tasks.lane_of(row)
  local has_other_key = order_key ~= row.key
  change_key(row, order_key)
  if lane.name ~= name then
    lanes.leave(lane, row.number)
    join_lane(row, name)
    return
  end
  if has_other_key then
    lanes.rekey(lane, row.number, order_key)
  end
  lanes.look_if_first(lane, row.number, tasks.groups_of(row, name), GATES + 1)
end

function line.make_room(row, order_key)
  -- Give the job another key between the same neighbours. It does not enter the line again.
  lanes.rekey(line.lane_of(row), row.number, order_key)
  change_key(row, order_key)
end

function line.look_at_lane(row)
  lanes.look_at(line.lane_of(row), tasks.groups_of(row), GATES + 1)
end

function line.park(row, group)
  -- Park the lane of a job that was found blocked by this group.
  lanes.park(line.lane_of(row), group)
end

function line.leave(row)
  -- Leave the line and keep the key, so that the job can come back to its place.
  lanes.leave(line.lane_of(row), row.number)
  stands_in[row.number] = nil
  count(row.key, -1)
  lone = nil
  step.set_counter('in_line', line.length() - 1)
  take_out(key('line'), row)
  take_out(key('aged'), row)
  turns.begin_anew(row)
  row.aged_at = nil
  rows.save(row)
end

function line.candidates(task)
  -- The ready jobs of a task with their keys, if they are known without a read: the line is empty, or has only the job
  -- that has just joined.
  if line.length() == 0 then
    return NONE
  elseif lone and not line.lane_of(lone).group then
    return tasks.source_of(lone) == task and { lone.number, lone.key } or NONE
  end
end

function line.give_up_place(row)
  if row.key and line.was_moved(line.place_of(row.key)) then
    later('HDEL', key('moved'), digits(line.place_of(row.key)))
  end
  row.key = nil
  rows.save(row)
end

-- --- joining --------------------------------------------------------------------------------------------------

local function parent_order(parent)
  -- A string that sorts parents: no parent first, then digits as numbers, then all others.
  if not parent then
    return ''
  end
  if parent:find('^%d+$') then
    local digits = parent:gsub('^0+', '')
    return string.format('1%03d%s', #digits, digits)
  end
  return '2' .. parent
end

local function joining_order(row)
  -- The order of jobs that are due at the same time. Numbers have twelve digits, so they sort as text.
  return parent_order(row.parent) .. '\0' .. string.format('%010d', row.phase or 0) .. '\0' .. row.number
end

function line.is_due(row)
  -- Whether the job need not wait for a time or a span.
  if row.steady_at then
    return row.steady_at <= step.steady_now()
  end
  return not row.run_at or row.run_at <= step.now
end

function line.wait_until_due(row)
  if row.steady_at then
    row.due_at = row.steady_at
    step.comes('spans', row.due_at, joining_order(row))
  else
    row.due_at = row.run_at
    step.comes('due', row.due_at, joining_order(row))
  end
  rows.save(row)
end

function line.stop_waiting(row)
  if row.due_at then
    later('ZREM', row.steady_at and key('spans') or key('due'), joining_order(row))
    row.due_at = nil
    rows.save(row)
  end
end

function line.note_start_by(row)
  -- The job waits and has never started.
  if row.steady_start_by then
    step.comes('steady_start_by', row.steady_start_by, row.number)
  elseif row.start_by then
    step.comes('start_by', row.start_by, row.number)
  end
end

function line.forget_start_by(row)
  -- The job starts or ends. Once it has started, it is in neither index any more.
  if (row.steady_start_by or row.start_by) and not row.started_at then
    take_out(row.steady_start_by and key('steady_start_by') or key('start_by'), row)
  end
end

function line.number_of_due(member)
  return member:sub(-12)
end

function line.set_deferred(row, deferred)
  row.deferred = deferred or nil
  if deferred then
    later('ZADD', key('deferred:', row.user), row.run_at, row.number)
  else
    later('ZREM', key('deferred:', row.user), row.number)
  end
  rows.save(row)
end

function line.tell_time(kind, row)
  -- Without cjson, which keeps only fourteen digits.
  step.event_with(kind, row.id, '{"run_at":' .. digits(row.run_at) .. '}')
end

function line.join(row)
  rows.reach(row, 'queued')
  line.stop_waiting(row)
  row.steady_at = nil
  if row.deferred then
    line.set_deferred(row, false)
  end
  row.joined_at, row.undisturbed_key, row.displaced = step.now, nil, nil
  local order_key = line.order_key(row.priority, drawn_place(row.boost or 0))
  row.position_original = position_of_newest(order_key, row.boost)
  line.enter(row, order_key)
  step.event_with('queued', row.id, '{"position":' .. digits(row.position_original) .. '}')
end

function line.join_in_order(joining)
  -- Several jobs in one step, all due at the same time or in the order of their due times.
  for _, row in ipairs(joining) do
    line.join(row)
  end
end

function line.sort_by_joining_order(joining)
  local orders = {}
  for _, row in ipairs(joining) do
    orders[row.number] = joining_order(row)
  end
  table.sort(joining, function(a, b)
    return comes_before(orders[a.number], orders[b.number])
  end)
end

function line.come_back(row, reason)
  rows.reach(row, 'queued')
  line.enter(row, row.key)
  step.event('queued', row.id, { reason = reason })
end
